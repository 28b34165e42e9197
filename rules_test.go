package orbit

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// SUB-005 … SUB-008, AMB-019.
func TestNamesAndVersions(t *testing.T) {
	for field, most := range map[string]int{"handler": 128, "handler_version": 64, "payload_version": 32} {
		good := []string{"a", "0", "Z9_.:-", strings.Repeat("a", most)}
		bad := []string{"", strings.Repeat("a", most+1), "_a", ".a", "-a", ":a", "a b", "a/b", "é", "a\u00e9", "a\n", " a", "a\x00"}
		for _, name := range good {
			if got := refusal(t, with(field, quoted(name))); got != "" {
				t.Errorf("%s %q refused for %q", field, name, got)
			}
		}
		for _, name := range bad {
			if got := refusal(t, with(field, quoted(name))); got != field {
				t.Errorf("%s %q refused for %q", field, name, got)
			}
		}
	}
}

// API-018, SUB-004.
func TestIDsAre32LowerCaseHexCharacters(t *testing.T) {
	good := strings.Repeat("0123456789abcdef", 2)
	if !ValidID(good) {
		t.Errorf("ValidID(%s) = false", good)
	}
	for _, id := range []string{"", good[:31], good + "0", strings.ToUpper(good), "g" + good[1:], " " + good[1:],
		"01234567-89ab-cdef-0123-456789abcdef", strings.Repeat("é", 16)} {
		if ValidID(id) {
			t.Errorf("ValidID(%q) = true", id)
		}
		if got := refusal(t, with("queue_id", quoted(id))); got != "queue_id" {
			t.Errorf("queue_id %q refused for %q", id, got)
		}
	}
}

// KEY-001 … KEY-007, KEY-019, AMB-015, AMB-067: a submit (ParseSubmission) and an outbox or a
// client (Freeze) take what the one function takes.
func TestConcurrencyKeys(t *testing.T) {
	good := []string{"", "object/42", "a b", "a\u3000b", strings.Repeat("a", 191), strings.Repeat("😀", 191),
		"\u0301", "\u0301\u0302", "\u200b", "\u200d\u200b", "\ufeff", "\u200bobject", "{{x}}", "\\", `"`, "e\u0301", "é", "a\u00ad"}
	bad := []string{strings.Repeat("a", 192), strings.Repeat("é", 192), " a", "a ", "\ta", "a\n", "a\x00b", "a\x1fb", "a\x7fb",
		"a\u0085", "a\u0080b", "a\u009fb", "\u00a0a", "a\u00a0", "\u2003a", "a\u3000", "\u2028a", " ", "\u3000", "a\xff"}
	for _, key := range good {
		if err := ValidateConcurrencyKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		if got := refusal(t, with("concurrency_key", quoted(key))); got != "" {
			t.Errorf("%q: a submit is refused for %s", key, got)
		}
		if _, s, err := keyed(key).Freeze(); err != nil || s.Request.ConcurrencyKey != key {
			t.Errorf("%q is frozen as %q, %v", key, s.Request.ConcurrencyKey, err)
		}
	}
	for _, key := range bad {
		var refused *InvalidArgumentError
		if err := ValidateConcurrencyKey(key); !errors.As(err, &refused) || refused.Field != "concurrency_key" {
			t.Errorf("%q: error %v", key, err)
		}
		if _, _, err := keyed(key).Freeze(); !errors.As(err, &refused) || refused.Field != "concurrency_key" {
			t.Errorf("%q: Freeze = %v", key, err)
		}
		if got := refusal(t, with("concurrency_key", quoted(key))); got != "concurrency_key" && utf8.ValidString(key) {
			t.Errorf("%q: a submit is refused for %q", key, got)
		}
	}
}

// keyed is a request with a resource key.
func keyed(key string) SubmitTaskRequest {
	return SubmitTaskRequest{
		QueueID: strings.Repeat("1", 32), Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: []byte("{}"), ConcurrencyKey: key,
	}
}

// SUB-010, AMB-013, AMB-014.
func TestBusinessKeys(t *testing.T) {
	for _, key := range []string{"", " a ", "\ta", strings.Repeat("é", 191), "a\u2028b", "a\u0085"} {
		if err := ValidateBusinessKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{strings.Repeat("a", 192), "a\x00", "a\nb", "a\r", "\xff"} {
		if ValidateBusinessKey(key) == nil {
			t.Errorf("%q was accepted", key)
		}
	}
}

// IDEM-001.
// LIMIT-010.
func TestIdempotencyKeys(t *testing.T) {
	for _, key := range []string{"a", "!", "~", `"\`, strings.Repeat("k", 128)} {
		if err := ValidateIdempotencyKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{"", strings.Repeat("k", 129), "a b", " a", "a ", "\t", "a\n", "a\x7f", "é", "a\xff", "a\x00"} {
		if ValidateIdempotencyKey(key) == nil {
			t.Errorf("%q was accepted", key)
		}
	}
}

// API-033.
func TestTraceparents(t *testing.T) {
	good := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, text := range []string{good, "cc" + good[2:], "cc" + good[2:] + "-what-comes"} {
		if err := ValidateTraceparent(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", good[:54], good + "0", good + "-x", "ff" + good[2:], strings.ToUpper(good),
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		strings.ReplaceAll(good, "-", "_"), "cc" + good[2:] + "x", "cc" + good[2:] + "-\n", "cc" + good[2:] + "-" + strings.Repeat("x", 128)} {
		if ValidateTraceparent(text) == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// SUB-018, AMB-068.
func TestRecoverySafety(t *testing.T) {
	for text, field := range map[string]string{`"RECONCILE_ONLY"`: "", `"IDEMPOTENT"`: "", `""`: "recovery_safety",
		`"idempotent"`: "recovery_safety", `"IDEMPOTENT "`: "recovery_safety", `1`: "recovery_safety"} {
		if got := refusal(t, with("recovery_safety", text)); got != field {
			t.Errorf("%s refused for %q, want %q", text, got, field)
		}
	}
}

// SUB-017 … SUB-023, AMB-020 … AMB-022.
func TestDefaultsAreFilled(t *testing.T) {
	tests := map[string]RetryPolicy{
		`{}`:                   {1, 30000, 0, 0},
		`{"max_attempts":0}`:   {1, 30000, 0, 0},
		`{"max_attempts":3}`:   {3, 30000, 1000, 30000},
		`{"max_delay_ms":500}`: {1, 30000, 0, 500},
		`{"max_attempts":2,"initial_delay_ms":0,"max_delay_ms":0,"attempt_timeout_ms":0}`: {2, 30000, 1000, 30000},
	}
	for text, want := range tests {
		s, err := ParseSubmission(with("retry", text))
		if err != nil || s.Request.Retry != want {
			t.Errorf("%s = %+v, %v; want %+v", text, s.Request.Retry, err, want)
		}
		if s.Request.TaskTimeoutMS != 86400000 || s.Request.RecoverySafety != RecoveryReconcileOnly {
			t.Errorf("defaults %d, %q", s.Request.TaskTimeoutMS, s.Request.RecoverySafety)
		}
	}
}

func mustTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := ParseTime(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return at
}

// SUB-013 … SUB-017, AMB-023.
// LIMIT-005.
func TestTimeRulesAtTheirEdges(t *testing.T) {
	now := mustTime(t, "2026-09-17T12:00:00.5Z")
	at := func(d time.Duration) string { return quoted(FormatTime(now.Add(d))) }
	const hour = `3600000`
	tests := []struct{ available, start, field string }{
		{"", "", ""},
		{at(-time.Second), "", ""},
		{at(-time.Second - time.Microsecond), "", "available_at"},
		{at(time.Hour - time.Microsecond), "", ""},
		{at(time.Hour), "", "available_at"},
		{"", at(0), "start_deadline_at"},
		{"", at(time.Microsecond), ""},
		{"", at(time.Hour), ""},
		{"", at(time.Hour + time.Microsecond), "start_deadline_at"},
		{at(time.Minute), at(time.Minute), ""},
		{at(-time.Second), at(time.Microsecond), ""},
		{at(-time.Second), at(0), "start_deadline_at"},
	}
	for _, test := range tests {
		s, err := ParseSubmission(withMembers(map[string]string{
			"available_at": test.available, "start_deadline_at": test.start, "task_timeout_ms": hour}))
		if err != nil {
			t.Fatal(err)
		}
		field := ""
		if bad := (*InvalidArgumentError)(nil); errors.As(s.CheckAt(now), &bad) {
			field = bad.Field
		}
		if field != test.field {
			t.Errorf("available %s, start %s: refused for %q, want %q", test.available, test.start, field, test.field)
		}
	}
	if got := refusal(t, withMembers(map[string]string{"available_at": at(2), "start_deadline_at": at(-time.Hour)})); got != "start_deadline_at" {
		t.Errorf("start deadline before available_at refused for %q: the rule needs no clock", got)
	}
}

func TestTimesOfATask(t *testing.T) {
	now := time.Date(2026, 9, 17, 2, 0, 0, 123456789, time.FixedZone("", 7200))
	s, err := ParseSubmission(with("x", ""))
	if err != nil {
		t.Fatal(err)
	}
	available, deadline := s.Times(now)
	if FormatTime(available) != "2026-09-17T00:00:00.123456Z" || FormatTime(deadline) != "2026-09-18T00:00:00.123456Z" {
		t.Errorf("Times = %v, %v", available, deadline)
	}
	if available.Location() != time.UTC || available.Nanosecond() != 123456000 {
		t.Errorf("available_at %v is not UTC microseconds", available)
	}
	s, err = ParseSubmission(with("available_at", `"2026-09-17T01:00:00+00:30"`))
	if err != nil {
		t.Fatal(err)
	}
	if available, _ := s.Times(now); FormatTime(available) != "2026-09-17T00:30:00Z" {
		t.Errorf("available_at = %v", available)
	}
}

// API-019, API-020, AMB-025, AMB-069.
func TestTimeTexts(t *testing.T) {
	good := map[string]string{
		"2026-09-17T00:00:00Z":             "2026-09-17T00:00:00Z",
		"2026-09-17T00:00:00.1Z":           "2026-09-17T00:00:00.1Z",
		"2026-09-17T00:00:00.123456Z":      "2026-09-17T00:00:00.123456Z",
		"2026-09-17T00:00:00.100000Z":      "2026-09-17T00:00:00.1Z",
		"2026-09-17T23:59:59-23:59":        "2026-09-18T23:58:59Z",
		"2026-09-17T00:00:00+23:59":        "2026-09-16T00:01:00Z",
		"2026-09-17T00:00:00-00:00":        "2026-09-17T00:00:00Z",
		"2024-02-29T12:00:00Z":             "2024-02-29T12:00:00Z",
		"2000-01-01T00:00:00Z":             "2000-01-01T00:00:00Z",
		"9998-12-31T23:59:59.999999Z":      "9998-12-31T23:59:59.999999Z",
		"1999-12-31T23:59:59-00:01":        "2000-01-01T00:00:59Z",
		"9999-01-01T00:00:00+00:01":        "9998-12-31T23:59:00Z",
		"2026-03-29T02:30:00.000001+01:00": "2026-03-29T01:30:00.000001Z",
	}
	for text, want := range good {
		got, err := ParseTime(text)
		if err != nil || FormatTime(got) != want || got.Location() != time.UTC {
			t.Errorf("%s = %v, %v; want %s", text, got, err, want)
		}
	}
	bad := []string{"", "2026-09-17", "2026-09-17T00:00:00", "2026-09-17t00:00:00Z", "2026-09-17T00:00:00z", "2026-09-17 00:00:00Z",
		"2026-09-17T00:00:00.Z", "2026-09-17T00:00:00,1Z", "2026-09-17T00:00:00.1234567Z", "2026-09-17T00:00:00.0000000Z",
		"2026-09-17T00:00:60Z", "2026-09-17T23:59:60Z", "2026-09-17T24:00:00Z", "2026-09-17T00:60:00Z", "2026-02-29T00:00:00Z",
		"2026-04-31T00:00:00Z", "2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-00T00:00:00Z", "26-09-17T00:00:00Z",
		"02026-09-17T00:00:00Z", "2026-9-17T00:00:00Z", "2026-09-17T00:00:00+24:00", "2026-09-17T00:00:00+00:60", "2026-09-17T00:00:00+0000",
		"2026-09-17T00:00:00+00", "2026-09-17T00:00:00+1:00", "2026-09-17T00:00:00Z ", " 2026-09-17T00:00:00Z", "2026-09-17T00:00Z",
		"+2026-09-17T00:00:00Z", "2026-09-17T00:00:00ZZ", "2026-09-17T00:00:00\u221201:00", "1999-12-31T23:59:59Z", "9999-01-01T00:00:00Z",
		"2000-01-01T00:00:00+00:01", "9998-12-31T23:59:59-00:01", "٢٠٢٦-09-17T00:00:00Z", "20260917T000000Z"}
	for _, text := range bad {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q was accepted as %v", text, got)
		}
		if got := refusal(t, with("available_at", quoted(text))); got != "available_at" {
			t.Errorf("available_at %q refused for %q", text, got)
		}
	}
}

// Every time we accept is one that the standard library reads alike.
func FuzzParseTime(f *testing.F) {
	f.Add("2026-09-17T00:00:00.123456+05:45")
	f.Add("2024-02-29T23:59:59-23:59")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTime(text)
		if err != nil {
			return
		}
		want, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || !got.Equal(want) {
			t.Fatalf("%q = %v; the standard library says %v, %v", text, got, want, err)
		}
		if again, err := ParseTime(FormatTime(got)); err != nil || !again.Equal(got) {
			t.Fatalf("%q does not read back: %v, %v", FormatTime(got), again, err)
		}
	})
}

// REF-RETRY-002.
func TestRetryDelayDoublesUpToItsBound(t *testing.T) {
	tests := []struct {
		policy  RetryPolicy
		started int
		want    time.Duration
	}{
		{RetryPolicy{InitialDelayMS: 1000, MaxDelayMS: 30000}, 1, time.Second},
		{RetryPolicy{InitialDelayMS: 1000, MaxDelayMS: 30000}, 2, 2 * time.Second},
		{RetryPolicy{InitialDelayMS: 1000, MaxDelayMS: 30000}, 5, 16 * time.Second},
		{RetryPolicy{InitialDelayMS: 1000, MaxDelayMS: 30000}, 6, 30 * time.Second},
		{RetryPolicy{InitialDelayMS: 1000, MaxDelayMS: 30000}, 100, 30 * time.Second},
		{RetryPolicy{InitialDelayMS: 1, MaxDelayMS: MaxRetryDelayMS}, 100, MaxRetryDelayMS * time.Millisecond},
		{RetryPolicy{InitialDelayMS: 1, MaxDelayMS: MaxRetryDelayMS}, 43, 1 << 42 * time.Millisecond},
		{RetryPolicy{InitialDelayMS: MaxRetryDelayMS, MaxDelayMS: MaxRetryDelayMS}, 1 << 40, MaxRetryDelayMS * time.Millisecond},
		{RetryPolicy{InitialDelayMS: 1<<64 - 1, MaxDelayMS: 1<<64 - 1}, 3, MaxRetryDelayMS * time.Millisecond},
		{RetryPolicy{}, 1 << 40, 0},
		{RetryPolicy{InitialDelayMS: 5, MaxDelayMS: 5}, 0, 5 * time.Millisecond},
	}
	for _, test := range tests {
		if got := RetryDelay(test.policy, test.started); got != test.want {
			t.Errorf("RetryDelay(%+v, %d) = %v, want %v", test.policy, test.started, got, test.want)
		}
	}
}

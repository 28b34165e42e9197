package orbit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// refusal is the field that a refused body is refused for.
func refusal(t *testing.T, body []byte) string {
	t.Helper()
	_, err := ParseSubmission(body)
	var bad *InvalidArgumentError
	if err != nil && !errors.As(err, &bad) {
		t.Fatalf("error of type %T: %v", err, err)
	}
	if bad == nil {
		return ""
	}
	if bad.Rule == "" || err.Error() != bad.Field+": "+bad.Rule {
		t.Errorf("error %q does not name field and rule", err)
	}
	return bad.Field
}

func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

// TEST-042: strict JSON (API-006 … API-013, AMB-011, AMB-012). The field is the one
// that must be named; "" means accepted.
// API-004.
func TestBodiesAreReadStrictly(t *testing.T) {
	good := string(with("x", ""))
	in := func(member string) []byte { return []byte(good[:len(good)-1] + "," + member + "}") }
	tests := []struct {
		name  string
		body  []byte
		field string
	}{
		{"Valid", []byte(good), ""},
		{"OuterBlanks", []byte(" \t\r\n" + good + "\n"), ""},
		{"UnknownField", in(`"namespace_id":"33333333333333333333333333333333"`), "namespace_id"},
		{"UnknownFieldInRetry", with("retry", `{"jitter":1}`), "retry.jitter"},
		{"UnknownFieldInPayloadIsBusiness", with("payload", `{"jitter":1}`), ""},
		{"CaseAlias", in(`"Queue_ID":"11111111111111111111111111111111"`), "Queue_ID"},
		{"CaseAliasOfRetry", in(`"RETRY":{}`), "RETRY"},
		{"CaseAliasInRetry", with("retry", `{"Max_Attempts":1}`), "retry.Max_Attempts"},
		{"CaseTwinsInPayloadAreTwo", with("payload", `{"a":1,"A":2}`), ""},
		{"DuplicateField", in(`"handler":"file.convert"`), "handler"},
		{"DuplicateByEscape", in(`"h\u0061ndler":"file.convert"`), "handler"},
		{"EscapedNameAlone", []byte(strings.Replace(good, `"handler"`, `"h\u0061ndler"`, 1)), ""},
		{"DuplicateInRetry", with("retry", `{"max_attempts":1,"max_attempts":1}`), "retry.max_attempts"},
		{"DuplicateInPayload", with("payload", `{"a":[{"b":1,"\u0062":1}]}`), "payload.a[0].b"},
		{"BadUTF8InPayload", with("payload", "\"\xff\""), "payload"},
		{"BadUTF8InKey", with("payload", "{\"\xc3\x28\":1}"), "payload"},
		{"OverlongUTF8", with("payload", "\"\xc0\xaf\""), "payload"},
		{"SurrogateInUTF8", with("payload", "\"\xed\xa0\x80\""), "payload"},
		{"BadUTF8InField", with("business_key", "\"\xff\""), "business_key"},
		{"LoneHighSurrogate", with("payload", `{"a":"\ud800"}`), "payload.a"},
		{"LoneLowSurrogate", with("payload", `["\udc00x"]`), "payload[0]"},
		{"SwappedSurrogates", with("payload", `"\udc00\ud800"`), "payload"},
		{"LoneSurrogateInName", with("payload", `{"\ud800":1}`), "payload"},
		{"LoneSurrogateInField", with("business_key", `"\ud800"`), "business_key"},
		{"SurrogatePair", with("payload", `"\ud83d\ude00"`), ""},
		{"Depth32", with("payload", nested(31)), ""},
		{"Depth33", with("payload", nested(32)), "payload" + strings.Repeat("[0]", 31)},
		{"Depth33ByObjects", with("payload", strings.Repeat(`{"a":`, 31)+"{}"+strings.Repeat("}", 31)), "payload" + strings.Repeat(".a", 31)},
		{"AbsurdDepth", with("payload", nested(100_000)), "payload" + strings.Repeat("[0]", 31)},
		{"NullBelowPayload", with("payload", `{"a":null,"b":[null]}`), ""},
		{"NullPayload", with("payload", ` null `), "payload"},
		{"NullRetryMember", with("retry", `{"max_attempts":null}`), "retry.max_attempts"},
		{"NullAvailableAt", with("available_at", `null`), ""},
		{"NullStartDeadline", with("start_deadline_at", `null`), ""},
		{"MissingPayload", with("payload", ""), "payload"},
		{"MissingQueue", with("queue_id", ""), "queue_id"},
		{"Trailing", []byte(good + "{}"), "body"},
		{"TrailingGarbage", []byte(good + "x"), "body"},
		{"TrailingNUL", []byte(good + "\x00"), "body"},
		{"Empty", nil, "body"},
		{"OnlyBlanks", []byte(" \n"), "body"},
		{"BOM", []byte("\ufeff" + good), "body"},
		{"RootArray", []byte("[" + good + "]"), "body"},
		{"RootNull", []byte("null"), "body"},
		{"RootText", []byte(`"` + "x" + `"`), "body"},
		{"Cut", []byte(good[:len(good)-1]), "body"},
		{"SingleQuotes", with("payload", `'a'`), "payload"},
		{"Comment", with("payload", `1/**/`), "body"},
		{"TrailingComma", with("payload", `[1,]`), "payload"},
		{"NaN", with("payload", `NaN`), "payload"},
		{"LeadingZero", with("payload", `[01]`), "payload"},
		{"LeadingPlus", with("payload", `+1`), "payload"},
		{"ControlCharacterInText", with("payload", "\"\t\""), "payload"},
	}
	for _, field := range []string{"queue_id", "handler", "handler_version", "payload_version", "business_key", "concurrency_key",
		"priority", "task_timeout_ms", "recovery_safety", "retry"} {
		tests = append(tests, struct {
			name  string
			body  []byte
			field string
		}{"Null_" + field, with(field, `null`), field})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := refusal(t, test.body)
			if got != test.field {
				t.Errorf("refused for %q, want %q", got, test.field)
			}
		})
	}
}

// TEST-042, AMB-018, AMB-056.
func TestSizesAtAndOverTheLimits(t *testing.T) {
	text := func(bytes int) string { return `"` + strings.Repeat("a", bytes-2) + `"` }
	if got := refusal(t, with("payload", " \n"+text(262144)+" ")); got != "" {
		t.Errorf("payload of 262144 bytes and outer blanks refused for %q", got)
	}
	if got := refusal(t, with("payload", text(262145))); got != "payload" {
		t.Errorf("payload of 262145 bytes refused for %q", got)
	}
	inner := "[" + strings.Repeat(" ", 262144-2) + "]" // blanks inside count
	if got := refusal(t, with("payload", inner)); got != "" {
		t.Errorf("payload of 262144 bytes with inner blanks refused for %q", got)
	}
	if got := refusal(t, with("payload", " "+inner[:1]+" "+inner[1:])); got != "payload" {
		t.Errorf("payload of 262145 bytes with inner blanks refused for %q", got)
	}
	good := string(with("x", ""))
	if got := refusal(t, []byte(good+strings.Repeat(" ", 524288-len(good)))); got != "" {
		t.Errorf("body of 524288 bytes refused for %q", got)
	}
	if got := refusal(t, []byte(good+strings.Repeat(" ", 524289-len(good)))); got != "body" {
		t.Errorf("body of 524289 bytes refused for %q", got)
	}
}

// TEST-043 at the level of a body: the number rules hold for every number, and
// integer fields take plain literals only (SUB-026, SUB-040, AMB-016).
func TestNumbersOfABody(t *testing.T) {
	ones := strings.Repeat("1", 256)
	tests := []struct{ name, text, field string }{
		{"payload", ones, ""},
		{"payload", ones + "1", "payload"},
		{"payload", `[1e308,1e-308,-1e308]`, ""},
		{"payload", `[1e309]`, "payload[0]"},
		{"payload", `{"a":1e-309}`, "payload.a"},
		{"payload", `{"a":0e309}`, "payload.a"},
		{"payload", `1.7976931348623157e308`, ""},
		{"payload", `1.7976931348623158e308`, ""},
		{"payload", `1.7976931348623159e308`, "payload"},
		{"payload", `1.8e308`, "payload"},
		{"payload", `15e-308`, ""},
		{"payload", `1.5e-308`, "payload"},
		{"payload", `100e307`, "payload"},
		{"priority", "9", ""},
		{"priority", "10", "priority"},
		{"priority", "18446744073709551615", "priority"},
		{"priority", "-1", "priority"},
		{"priority", "-0", "priority"},
		{"priority", "1.0", "priority"},
		{"priority", "1e0", "priority"},
		{"priority", `"1"`, "priority"},
		{"priority", "true", "priority"},
		{"priority", "18446744073709551616", "priority"},
		{"priority", ones + "1", "priority"},
		{"task_timeout_ms", "2592000000", ""},
		{"task_timeout_ms", "2592000001", "task_timeout_ms"},
		{"task_timeout_ms", "30000", ""},
		{"task_timeout_ms", "29999", "retry.attempt_timeout_ms"}, // AMB-020
		{"task_timeout_ms", "86400000.0", "task_timeout_ms"},
		{"task_timeout_ms", "18446744073709551616", "task_timeout_ms"},
		{"retry", `{"max_attempts":100}`, ""},
		{"retry", `{"max_attempts":101}`, "retry.max_attempts"},
		{"retry", `{"max_attempts":-1}`, "retry.max_attempts"},
		{"retry", `{"max_attempts":"1"}`, "retry.max_attempts"},
		{"retry", `{"attempt_timeout_ms":86400000}`, ""},
		{"retry", `{"attempt_timeout_ms":86400001}`, "retry.attempt_timeout_ms"},
		{"retry", `{"initial_delay_ms":1}`, "retry.initial_delay_ms"}, // AMB-021: the maximum stays 0
		{"retry", `{"initial_delay_ms":1,"max_delay_ms":1}`, ""},
		{"retry", `{"max_delay_ms":9223372036854}`, ""},
		{"retry", `{"max_delay_ms":9223372036855}`, "retry.max_delay_ms"},
		{"retry", `{"max_attempts":2,"initial_delay_ms":30000}`, ""},
		{"retry", `{"max_attempts":2,"initial_delay_ms":60000}`, "retry.initial_delay_ms"}, // AMB-022
		{"retry", `{"max_attempts":2,"max_delay_ms":999}`, "retry.initial_delay_ms"},
		{"retry", `{"max_attempts":2,"max_delay_ms":1000}`, ""},
		{"retry", `[]`, "retry"},
		{"retry", `1`, "retry"},
	}
	for _, test := range tests {
		if got := refusal(t, with(test.name, test.text)); got != test.field {
			t.Errorf("%s = %.60s: refused for %q, want %q", test.name, test.text, got, test.field)
		}
	}
}

// ERR-015: what an error says can be logged.
func TestErrorsNeverHoldAValue(t *testing.T) {
	const secret = "s3cret-value"
	bodies := [][]byte{
		with("payload", `{"a":"`+secret+`\ud800"}`),
		with("payload", `{"a":"`+secret+`"x}`),
		with("payload", `"`+secret),
		with("queue_id", `"`+secret+`"`),
		with("handler", `"`+secret+` "`),
		with("business_key", `"`+secret+`\n"`),
		with("concurrency_key", `" `+secret+`"`),
		with("available_at", `"`+secret+`"`),
		with("recovery_safety", `"`+secret+`"`),
		with("priority", `"`+secret+`"`),
		with("retry", `"`+secret+`"`),
		[]byte(secret),
	}
	for _, body := range bodies {
		_, err := ParseSubmission(body)
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("%s: error %v", body, err)
		}
	}
}

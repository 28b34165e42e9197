package orbit

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func fullRequest() SubmitTaskRequest {
	available := time.Date(2026, 9, 17, 2, 0, 0, 250_000_000, time.FixedZone("", 7200))
	start := time.Date(2026, 9, 17, 8, 0, 0, 0, time.UTC)
	return SubmitTaskRequest{
		QueueID: "11111111111111111111111111111111", Handler: "object.update", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:     json.RawMessage("\n {\"n\" : 9007199254740993, \"x\":\"<\\u0061>\"} "),
		BusinessKey: " b\t\"<é>", ConcurrencyKey: "object/42", Priority: 4,
		AvailableAt: &available, StartDeadlineAt: &start, TaskTimeoutMS: 3600000, RecoverySafety: RecoveryIdempotent,
		Retry: RetryPolicy{MaxAttempts: 3, AttemptTimeoutMS: 10000, InitialDelayMS: 2000, MaxDelayMS: 60000},
	}
}

func TestFreezeWritesWhatParseSubmissionReads(t *testing.T) {
	requests := []SubmitTaskRequest{
		fullRequest(),
		{QueueID: "11111111111111111111111111111111", Handler: "h", HandlerVersion: "v", PayloadVersion: "p", Payload: json.RawMessage(`0`)},
	}
	for _, r := range requests {
		body, frozen, err := r.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseSubmission(body)
		if err != nil || !reflect.DeepEqual(parsed, frozen) {
			t.Errorf("ParseSubmission(%s)\n%+v, %v\nwant %+v", body, parsed, err, frozen)
		}
	}
}

func TestFreezeLeavesZeroValuesOutAndPayloadBytesAlone(t *testing.T) { // SUB-059
	r := SubmitTaskRequest{QueueID: "11111111111111111111111111111111", Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(" {\"b\" : 1.0,\n\"a\":\"<\\u0061>\"}\t")}
	body, s, err := r.Freeze()
	want := `{"queue_id":"11111111111111111111111111111111","handler":"h","handler_version":"v1","payload_version":"v1",` +
		"\"payload\":{\"b\" : 1.0,\n\"a\":\"<\\u0061>\"}}"
	if err != nil || string(body) != want {
		t.Fatalf("Freeze = %s, %v; want %s", body, err, want)
	}
	clear(r.Payload)
	if string(s.Request.Payload) != "{\"b\" : 1.0,\n\"a\":\"<\\u0061>\"}" {
		t.Fatalf("frozen payload %q changed with the caller's", s.Request.Payload)
	}
}

func TestFreezeRefusesByTheRulesOfTheServer(t *testing.T) {
	early := time.Date(2000, 1, 1, 0, 30, 0, 0, time.FixedZone("", 3600)) // 1999 in UTC
	nano := time.Date(2026, 9, 17, 0, 0, 0, 1, time.UTC)
	tests := map[string]func(*SubmitTaskRequest){
		"queue_id":                 func(r *SubmitTaskRequest) { r.QueueID = "" },
		"handler":                  func(r *SubmitTaskRequest) { r.Handler = "a b" },
		"handler_version":          func(r *SubmitTaskRequest) { r.HandlerVersion = "" },
		"payload_version":          func(r *SubmitTaskRequest) { r.PayloadVersion = strings.Repeat("v", 33) },
		"payload":                  func(r *SubmitTaskRequest) { r.Payload = nil },
		"business_key":             func(r *SubmitTaskRequest) { r.BusinessKey = "\xff" },
		"concurrency_key":          func(r *SubmitTaskRequest) { r.ConcurrencyKey = " " },
		"priority":                 func(r *SubmitTaskRequest) { r.Priority = -1 },
		"available_at":             func(r *SubmitTaskRequest) { r.AvailableAt = &nano },
		"start_deadline_at":        func(r *SubmitTaskRequest) { r.StartDeadlineAt = new(time.Time) },
		"available_at ":            func(r *SubmitTaskRequest) { r.AvailableAt = &early },
		"task_timeout_ms":          func(r *SubmitTaskRequest) { r.TaskTimeoutMS = 2592000001 },
		"recovery_safety":          func(r *SubmitTaskRequest) { r.RecoverySafety = "MAYBE" },
		"retry.max_attempts":       func(r *SubmitTaskRequest) { r.Retry.MaxAttempts = 101 },
		"retry.attempt_timeout_ms": func(r *SubmitTaskRequest) { r.Retry.AttemptTimeoutMS = 3600001 },
		"retry.initial_delay_ms":   func(r *SubmitTaskRequest) { r.Retry.InitialDelayMS = 60001 },
		"retry.max_delay_ms":       func(r *SubmitTaskRequest) { r.Retry.MaxDelayMS = 9223372036855 },
	}
	for field, spoil := range tests {
		r := fullRequest()
		spoil(&r)
		body, _, err := r.Freeze()
		var bad *InvalidArgumentError
		if body != nil || !errors.As(err, &bad) || bad.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %s, %v", field, body, err)
		}
	}
}

func TestFreezeRefusesPayloadsThatAreNotOneStrictValue(t *testing.T) {
	for payload, field := range map[string]string{
		``: "payload", ` `: "payload", `null`: "payload", ` null `: "payload",
		`1,"priority":9`: "payload", `{}{}`: "payload", `1 2`: "payload", `"a`: "payload",
		`{"a":1,"a":2}`: "payload.a", `[1,{"x":1e999}]`: "payload[1].x", "\"\xff\"": "payload",
		nested(32): "payload" + strings.Repeat("[0]", 31), `"` + strings.Repeat("a", 262143) + `"`: "payload",
	} {
		r := fullRequest()
		r.Payload = json.RawMessage(payload)
		_, _, err := r.Freeze()
		var bad *InvalidArgumentError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%.40s: %v, want a refusal of %s", payload, err, field)
		}
	}
	r := fullRequest()
	r.Payload = json.RawMessage(nested(31))
	if _, _, err := r.Freeze(); err != nil {
		t.Errorf("32 levels: %v", err)
	}
}

func TestValidatePayloadHoldsResultsToThePayloadRules(t *testing.T) {
	got, err := ValidatePayload("result", json.RawMessage(" { \"a\" : 1.0 } "))
	if err != nil || string(got) != `{ "a" : 1.0 }` {
		t.Fatalf("ValidatePayload = %q, %v", got, err)
	}
	for text, field := range map[string]string{"": "result", "null": "result", `{"a":{"b":1e999}}`: "result.a.b", nested(32): "result" + strings.Repeat("[0]", 31)} {
		var bad *InvalidArgumentError
		if _, err := ValidatePayload("result", json.RawMessage(text)); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%.20s: %v, want a refusal of %s", text, err, field)
		}
	}
}

// What ParseSubmission accepts can be frozen again, with the same digest and the
// same meaning; what a batch carries is read like a single body.
func FuzzSubmission(f *testing.F) {
	for _, v := range []string{
		string(with("x", "")), string(with("payload", ` [1.0, {"b":1,"a":"\u0061"}] `)), string(with("priority", "9")),
		string(with("retry", `{"max_attempts":2}`)), string(with("available_at", `"2026-09-17T00:00:00.5+01:00"`)),
		string(with("business_key", `" \u00e9\t"`)), string(with("concurrency_key", `"\ufeff"`)), `{}`, `[`,
	} {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := ParseSubmission(body)
		entries, batchErr := ParseBatch([]byte(`{"items":[{"idempotency_key":"k","task":` + string(body) + `}]}`))
		if err != nil {
			if batchErr == nil && len(entries) == 1 && entries[0].Err == nil && json.Valid(body) {
				t.Fatalf("%q is refused alone (%v) and accepted in a batch", body, err)
			}
			return
		}
		if batchErr != nil || len(entries) != 1 || entries[0].Err != nil || !reflect.DeepEqual(entries[0].Submission, s) {
			t.Fatalf("%q in a batch: %v, %+v", body, batchErr, entries)
		}
		again, frozen, err := s.Request.Freeze()
		if err != nil || frozen.Digest != s.Digest || !reflect.DeepEqual(frozen, s) {
			t.Fatalf("Freeze of %q: %+v, %v; want %+v", body, frozen, err, s)
		}
		if parsed, err := ParseSubmission(again); err != nil || !reflect.DeepEqual(parsed, s) {
			t.Fatalf("%q frozen as %q: %+v, %v", body, again, parsed, err)
		}
		if !bytes.Contains(body, s.Request.Payload) || !bytes.Contains(again, s.Request.Payload) {
			t.Fatalf("payload %q is not the text of %q", s.Request.Payload, body)
		}
	})
}

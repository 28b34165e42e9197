package orbit

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func acceptedTask(t *testing.T, r SubmitTaskRequest, now time.Time) Task {
	t.Helper()
	_, s, err := r.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	available, deadline := s.Times(now)
	return Task{
		ID: "22222222222222222222222222222222", NamespaceID: "33333333333333333333333333333333", QueueID: s.Request.QueueID,
		State: StateWaiting, Revision: 1, Handler: s.Request.Handler, HandlerVersion: s.Request.HandlerVersion,
		PayloadVersion: s.Request.PayloadVersion, Payload: s.Request.Payload, BusinessKey: s.Request.BusinessKey,
		ConcurrencyKey: s.Request.ConcurrencyKey, Priority: s.Request.Priority, AvailableAt: available,
		StartDeadlineAt: s.Request.StartDeadlineAt, DeadlineAt: deadline, RecoverySafety: s.Request.RecoverySafety,
		Retry: s.Request.Retry, CreatedAt: now, UpdatedAt: now,
	}
}

// SUB-051: the documented answer, member by member.
func TestTaskHasTheDocumentedForm(t *testing.T) {
	task := acceptedTask(t, SubmitTaskRequest{
		QueueID: "11111111111111111111111111111111", Handler: "file.convert", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:     json.RawMessage(`{"source_ref":"objects/input.txt","format":"pdf","sequence":9007199254740993}`),
		BusinessKey: "conversion-001",
	}, mustTime(t, "2026-09-17T00:00:00Z"))
	const want = `{"id":"22222222222222222222222222222222","namespace_id":"33333333333333333333333333333333",` +
		`"queue_id":"11111111111111111111111111111111","state":"WAITING","revision":"1","handler":"file.convert",` +
		`"handler_version":"v1","payload_version":"v1",` +
		`"payload":{"source_ref":"objects/input.txt","format":"pdf","sequence":9007199254740993},` +
		`"business_key":"conversion-001","available_at":"2026-09-17T00:00:00Z","deadline_at":"2026-09-18T00:00:00Z",` +
		`"recovery_safety":"RECONCILE_ONLY","retry":{"max_attempts":1,"initial_delay_ms":0,"max_delay_ms":0,` +
		`"attempt_timeout_ms":30000},"attempt_count":0,"created_at":"2026-09-17T00:00:00Z","updated_at":"2026-09-17T00:00:00Z"}`
	if got := string(task.AppendJSON(nil)); got != want {
		t.Errorf("AppendJSON\n%s\nwant\n%s", got, want)
	}
}

func fullTask(t *testing.T) Task {
	task := acceptedTask(t, fullRequest(), mustTime(t, "2026-09-17T00:00:00.000001Z"))
	done := mustTime(t, "2026-09-17T00:00:05Z")
	task.State, task.Revision, task.AttemptCount = StateSucceeded, 1<<64-1, 1<<53+1
	task.Result = json.RawMessage("{\"n\" : 9007199254740993,\n \"x\":\"<\\u0061>\" }")
	task.CancelRequestedAt, task.CompletedAt, task.EffectUncertain = &done, &done, true
	task.RetryOf = "44444444444444444444444444444444"
	return task
}

// SUB-046, SUB-053, SUB-054, API-017, API-023.
func TestTaskReadsBackExactly(t *testing.T) {
	want := fullTask(t)
	text := want.AppendJSON([]byte("x"))[1:]
	if !json.Valid(text) || !strings.Contains(string(text), string(want.Payload)) || !strings.Contains(string(text), string(want.Result)) {
		t.Fatalf("%s does not hold payload and result byte for byte", text)
	}
	var got Task
	newer := append(text[:len(text)-1:len(text)-1], `,"shiny":{"new":1},"STATE":"x"}`...)
	if err := json.Unmarshal(newer, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %+v, %v\nwant %+v", got, err, want)
	}
	viaMarshal, err := json.Marshal(want)
	if err != nil || json.Unmarshal(viaMarshal, &got) != nil || got.ID != want.ID || got.Revision != want.Revision {
		t.Fatalf("json.Marshal = %s, %v", viaMarshal, err)
	}
}

func TestReceiptWithoutPayloadBecomesWholeAgain(t *testing.T) {
	for _, task := range []Task{fullTask(t), acceptedTask(t, fullRequest(), time.Unix(2e9, 0))} {
		prefix := []byte(`{"task":`)
		cut, at := task.AppendJSONWithoutPayload(prefix)
		whole := string(cut[:at]) + string(task.Payload) + string(cut[at:])
		if want := string(task.AppendJSON(prefix)); whole != want {
			t.Errorf("put together\n%s\nwant\n%s", whole, want)
		}
		if strings.Contains(string(cut), string(task.Payload)) {
			t.Error("the payload was not cut out")
		}
	}
}

func membersOf(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	names := make(map[string]bool)
	for name := range members {
		names[name] = true
	}
	return names
}

// AMB-026, AMB-027, LIST-013, REF-BATCH-002.
func TestPartialFormsHaveExactlyTheirMembers(t *testing.T) {
	full := fullTask(t)
	bare := Task{State: StateWaiting}
	names := func(list string) map[string]bool {
		set := make(map[string]bool)
		for _, n := range strings.Fields(list) {
			set[n] = true
		}
		return set
	}
	const always = "id queue_id state revision handler handler_version available_at deadline_at attempt_count created_at updated_at "
	tests := []struct {
		name string
		text []byte
		want string
	}{
		{"Minimal", full.AppendMinimalJSON(nil), "id queue_id handler state revision created_at"},
		{"SummaryOfBare", bare.AppendSummaryJSON(nil), always},
		{"SummaryOfFull", full.AppendSummaryJSON(nil),
			always + "business_key concurrency_key priority start_deadline_at cancel_requested_at completed_at effect_uncertain"},
		{"Bare", bare.AppendJSON(nil), always + "namespace_id payload_version recovery_safety retry"},
		{"Full", full.AppendJSON(nil), always + "namespace_id payload_version recovery_safety retry payload result retry_of " +
			"business_key concurrency_key priority start_deadline_at cancel_requested_at completed_at effect_uncertain"},
	}
	for _, test := range tests {
		if got := membersOf(t, test.text); !reflect.DeepEqual(got, names(test.want)) {
			t.Errorf("%s: members %v, want %s", test.name, got, test.want)
		}
	}
}

func TestTaskRefusesNumbersThatAreNotExact(t *testing.T) {
	for _, text := range []string{`{"revision":1}`, `{"revision":"01"}`, `{"revision":"-1"}`, `{"revision":"1.0"}`, `{"revision":""}`,
		`{"revision":"18446744073709551616"}`, `{"attempt_count":1.5}`, `{"attempt_count":-1}`, `{"created_at":"yesterday"}`, `[]`} {
		var task Task
		if err := json.Unmarshal([]byte(text), &task); err == nil {
			t.Errorf("%s was read as %+v", text, task)
		}
	}
}

// TOK-001, TOK-003, TOK-014.
func TestAttemptReadsBackExactly(t *testing.T) {
	at := mustTime(t, "2026-09-17T00:00:00.000001Z")
	want := Attempt{
		ID: "55555555555555555555555555555555", TaskID: "22222222222222222222222222222222", Number: 2, Epoch: 1<<53 + 1,
		State: AttemptEnded, Outcome: OutcomeUnknown, QueueID: "11111111111111111111111111111111",
		WorkerID: "66666666666666666666666666666666", Retryable: true, Reason: "lease_expired",
		ConcurrencyToken: 1<<64 - 2, FenceToken: 1<<64 - 1, ClaimedAt: at, StartedAt: &at, LeaseUntil: &at, EndedAt: &at,
		ErrorText: "gone\n\"away\"", Progress: "half", ProgressAt: &at, Result: json.RawMessage(`{"n" : 9007199254740993}`),
	}
	text := want.AppendJSON(nil)
	for _, part := range []string{`"concurrency_token":"18446744073709551614"`, `"fence_token":"18446744073709551615"`, string(want.Result)} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
	var got Attempt
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %+v, %v\nwant %+v", got, err, want)
	}
	keyless := Attempt{State: AttemptLeased}
	for _, name := range []string{"concurrency_token", "fence_token", "outcome", "started_at", "ended_at", "result", "error", "progress", "progress_at"} {
		if membersOf(t, keyless.AppendJSON(nil))[name] {
			t.Errorf("an unset %s is shown", name)
		}
	}
	if err := json.Unmarshal([]byte(`{"concurrency_token":7}`), &got); err == nil {
		t.Error("a numeric token was read")
	}
}

func TestErrorTextCutInsideACharacterStaysJSON(t *testing.T) {
	a := Attempt{ErrorText: "caf\xc3"}
	if text := a.AppendJSON(nil); !strings.Contains(string(text), "caf\uFFFD") || !json.Valid(text) {
		t.Fatalf("AppendJSON = %s", text)
	}
}

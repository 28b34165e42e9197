package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const testTaskID = "22222222222222222222222222222222"

// parsers read the bodies of the commands on one thing.
var parsers = map[string]func(body string) (Digest, error){
	"cancel":             func(b string) (Digest, error) { _, d, err := ParseCancel([]byte(b)); return d, err },
	"review":             func(b string) (Digest, error) { _, d, err := ParseReview([]byte(b)); return d, err },
	"retry":              func(b string) (Digest, error) { _, d, err := ParseRetry([]byte(b)); return d, err },
	"create queue":       func(b string) (Digest, error) { _, d, err := ParseCreateQueue([]byte(b)); return d, err },
	"update queue":       func(b string) (Digest, error) { _, d, err := ParseUpdateQueue([]byte(b)); return d, err },
	"update application": func(b string) (Digest, error) { _, d, err := ParseUpdateApplication([]byte(b)); return d, err },
}

// CAN-005, CAN-006, LIMIT-013, REF-REV-002, AMB-070, AMB-072, API-006 … API-013: the field
// is the one that must be named; "" means accepted.
func TestBodiesOfCommandsAreReadStrictly(t *testing.T) {
	reason := func(text string) string { return `{"expected_revision":"1","reason":` + text + `}` }
	revision := func(text string) string { return `{"reason":"r","expected_revision":` + text + `}` }
	review := func(members string) string { return `{"expected_revision":"1","note":"n",` + members + `}` }
	tests := []struct{ command, body, field string }{
		{"cancel", `{"expected_revision":"1","reason":"source object was replaced"}`, ""},
		{"cancel", revision(`"18446744073709551615"`), ""},
		{"cancel", revision(`"18446744073709551616"`), "expected_revision"},
		{"cancel", revision(`"0"`), "expected_revision"},
		{"cancel", revision(`"01"`), "expected_revision"},
		{"cancel", revision(`"+1"`), "expected_revision"},
		{"cancel", revision(`"-1"`), "expected_revision"},
		{"cancel", revision(`" 1"`), "expected_revision"},
		{"cancel", revision(`"1.0"`), "expected_revision"},
		{"cancel", revision(`""`), "expected_revision"},
		{"cancel", revision(`1`), "expected_revision"},
		{"cancel", revision(`null`), "expected_revision"},
		{"cancel", `{"reason":"r"}`, "expected_revision"},
		{"cancel", `{"expected_revision":"1"}`, "reason"},
		{"cancel", reason(`""`), "reason"},
		{"cancel", reason(`" \t\u3000\n"`), "reason"},
		{"cancel", reason(`" x "`), ""},
		{"cancel", reason(`"\u0000x"`), "reason"},
		{"cancel", reason(`"` + strings.Repeat("界", 1024) + `"`), ""},
		{"cancel", reason(`"` + strings.Repeat("界", 1025) + `"`), "reason"},
		{"cancel", reason(`7`), "reason"},
		{"cancel", reason(`"\ud800"`), "reason"},
		{"cancel", reason("\"\xff\""), "reason"},
		{"cancel", `{"expected_revision":"1","reason":"r","Reason":"r"}`, "Reason"},
		{"cancel", `{"expected_revision":"1","rea\u0073on":"r","reason":"r"}`, "reason"},
		{"cancel", `{"expected_revision":"1","reason":"r","namespace_id":"x"}`, "namespace_id"},
		{"cancel", `[]`, "body"},
		{"cancel", ``, "body"},
		{"cancel", `{"expected_revision":"1","reason":"r"}{}`, "body"},
		{"cancel", "\ufeff" + reason(`"r"`), "body"},
		{"cancel", padded(reason(`"r"`), 524288), ""},
		{"cancel", padded(reason(`"r"`), 524289), "body"},
		{"retry", reason(`"r"`), ""},
		{"retry", reason(`" "`), "reason"},
		{"review", review(`"decision":"SUCCEEDED"`), ""},
		{"review", review(`"decision":"FAILED"`), ""},
		{"review", review(`"decision":"CANCELLED"`), ""},
		{"review", review(`"decision":"WAITING"`), "decision"},
		{"review", review(`"decision":"succeeded"`), "decision"},
		{"review", `{"expected_revision":"1","note":"n"}`, "decision"},
		{"review", `{"expected_revision":"1","decision":"FAILED"}`, "note"},
		{"review", `{"expected_revision":"1","decision":"FAILED","note":" "}`, "note"},
		{"review", review(`"decision":"SUCCEEDED","result":{"n":9007199254740993}`), ""},
		{"review", review(`"decision":"SUCCEEDED","result":null`), "result"},
		{"review", review(`"decision":"FAILED","result":1`), "result"},
		{"review", review(`"decision":"SUCCEEDED","result":1e309`), "result"},
		{"review", review(`"decision":"SUCCEEDED","result":` + text(262144)), ""},
		{"review", review(`"decision":"SUCCEEDED","result":` + text(262145)), "result"},
		{"review", review(`"decision":"FAILED","evidence":` + text(4096)), ""},
		{"review", review(`"decision":"FAILED","evidence":` + text(4097)), "evidence"},
		{"review", review(`"decision":"FAILED","evidence":` + nested(31)), ""},
		{"review", review(`"decision":"FAILED","evidence":` + nested(32)), "evidence" + strings.Repeat("[0]", 31)},
		{"review", review(`"decision":"FAILED","source":` + text(130)), ""},
		{"review", review(`"decision":"FAILED","source":` + text(131)), "source"},
		{"create queue", `{"name":"q"}`, ""},
		{"create queue", `{"name":"q","max_backlog":0,"max_concurrency":1000000000}`, ""},
		{"create queue", `{"name":"q","max_backlog":1000000001}`, "max_backlog"},
		{"create queue", `{"name":"q","max_concurrency":-1}`, "max_concurrency"},
		{"create queue", `{"name":"q","max_concurrency":"1"}`, "max_concurrency"},
		{"create queue", `{"max_backlog":1}`, "name"},
		{"create queue", `{"name":""}`, "name"},
		{"create queue", `{"name":" q"}`, "name"},
		{"create queue", `{"name":"q\u0007"}`, "name"},
		{"create queue", `{"name":` + text(130) + `}`, ""},
		{"create queue", `{"name":` + text(131) + `}`, "name"},
		{"update queue", `{"expected_revision":"1","paused":true}`, ""},
		{"update queue", `{"expected_revision":"1","name":"n","max_backlog":1,"max_concurrency":0,"paused":false}`, ""},
		{"update queue", `{"expected_revision":"1"}`, "body"},
		{"update queue", `{"paused":true}`, "expected_revision"},
		{"update queue", `{"expected_revision":"1","paused":null}`, "paused"},
		{"update queue", `{"expected_revision":"1","paused":1}`, "paused"},
		{"update queue", `{"expected_revision":"1","name":"n "}`, "name"},
		{"update queue", `{"expected_revision":"1","max_backlog":1000000001}`, "max_backlog"},
		{"update application", `{"expected_revision":"1","max_unfinished":5,"max_active_attempts":5,"dispatch_stopped":true}`, ""},
		{"update application", `{"expected_revision":"1"}`, "body"},
		{"update application", `{"expected_revision":"1","max_unfinished":1000000001}`, "max_unfinished"},
		{"update application", `{"expected_revision":"1","max_active_attempts":1.0}`, "max_active_attempts"},
	}
	for _, test := range tests {
		_, err := parsers[test.command](test.body)
		var bad *InvalidArgumentError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("%s %.80s: error of type %T: %v", test.command, test.body, err, err)
			continue
		}
		if got := fieldOf(bad); got != test.field {
			t.Errorf("%s %.80s: refused for %q (%v), want %q", test.command, test.body, got, err, test.field)
		}
	}
}

func fieldOf(bad *InvalidArgumentError) string {
	if bad == nil {
		return ""
	}
	return bad.Field
}

// text is a JSON string of n bytes.
func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// IDEM-005, IDEM-007, IDEM-008, IDEM-024: what is the same content and what is other. The
// canonical texts are written out, since stored digests must stay what they are.
func TestDigestsOfCommandsAreThoseOfTheirCanonicalText(t *testing.T) {
	tests := []struct{ command, body, canonical string }{
		{"cancel", `{"reason":"r\u0061","expected_revision":"7"}`, `{"expected_revision":"7","reason":"ra"}`},
		{"retry", ` { "expected_revision" : "7", "reason":"a\/b" } `, `{"expected_revision":"7","reason":"a/b"}`},
		{"review", `{"expected_revision":"7","decision":"SUCCEEDED","note":"n","result":{"b":1.0,"a":[10e-1]},"evidence":{"x":null},"source":"s"}`,
			`{"decision":"SUCCEEDED","evidence":{"x":null},"expected_revision":"7","note":"n","result":{"a":[1e0],"b":1e0},"source":"s"}`},
		{"review", `{"expected_revision":"7","decision":"FAILED","note":"n","source":""}`,
			`{"decision":"FAILED","expected_revision":"7","note":"n"}`},
		{"create queue", `{"name":"q"}`, `{"max_backlog":0,"max_concurrency":0,"name":"q"}`},
		{"create queue", `{"name":"q","max_backlog":100,"max_concurrency":0}`, `{"max_backlog":1e2,"max_concurrency":0,"name":"q"}`},
		{"update queue", `{"paused":false,"expected_revision":"2","max_backlog":0}`,
			`{"expected_revision":"2","max_backlog":0,"paused":false}`},
		{"update application", `{"max_unfinished":10,"expected_revision":"2","dispatch_stopped":true}`,
			`{"dispatch_stopped":true,"expected_revision":"2","max_unfinished":1e1}`},
	}
	for _, test := range tests {
		d, err := parsers[test.command](test.body)
		if err != nil {
			t.Errorf("%s %s: %v", test.command, test.body, err)
		}
		if want := digestOf([]byte(test.canonical)); d != want {
			t.Errorf("%s %s: digest is not the one of %s", test.command, test.body, test.canonical)
		}
	}
}

func FuzzBodiesOfCommands(f *testing.F) {
	f.Add("cancel", `{"expected_revision":"1","reason":"r"}`)
	f.Add("review", `{"expected_revision":"1","decision":"SUCCEEDED","note":"n","result":1e2,"evidence":{"a":[1]}}`)
	f.Add("update queue", `{"expected_revision":"1","paused":true}`)
	f.Fuzz(func(t *testing.T, command, body string) {
		parse := parsers[command]
		if parse == nil {
			return
		}
		first, err := parse(body)
		again, errAgain := parse(" " + body + "\n")
		if (err == nil) != (errAgain == nil) && len(body) < MaxBodyBytes-2 {
			t.Fatalf("white space decides: %v, %v", err, errAgain)
		}
		if err == nil && errAgain == nil && first != again {
			t.Fatal("white space changes the digest")
		}
	})
}

// SUB-058, GET-004, GET-006, LIST-016, CAN-016: what each call sends, and that the server's
// rules take it. IDEM-014: each is sent once.
func TestCallsSendWhatTheServerReads(t *testing.T) {
	type sent struct{ method, uri, key, body string }
	var got []sent
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, sent{r.Method, r.RequestURI, r.Header.Get(HeaderIdempotencyKey), string(body)})
		respond(w, 503, `"error":{"code":"UNAVAILABLE","message":"m"}`)
	})
	ctx, other := t.Context(), testRequestID
	five, yes, name := uint64(5), true, "n"
	at := time.Date(2026, 9, 17, 1, 2, 3, 4000, time.FixedZone("", 3600))
	calls := []struct {
		call   func() error
		want   sent
		parser string
	}{
		{func() error {
			_, err := c.CancelTask(ctx, testTaskID, "k1", CancelTaskRequest{1, "why \"so\""})
			return err
		}, sent{"POST", "/v1/tasks/" + testTaskID + ":cancel", "k1", `{"expected_revision":"1","reason":"why \"so\""}`}, "cancel"},
		{func() error {
			_, err := c.ReviewTask(ctx, testTaskID, "k2", ReviewTaskRequest{ExpectedRevision: 2, Decision: StateSucceeded, Note: "n",
				Result: json.RawMessage(" 1.50 "), Evidence: json.RawMessage(`{"b":1}`), Source: "s"})
			return err
		}, sent{"POST", "/v1/tasks/" + testTaskID + ":review", "k2",
			`{"decision":"SUCCEEDED","evidence":{"b":1},"expected_revision":"2","note":"n","result":1.50,"source":"s"}`}, "review"},
		{func() error { _, err := c.RetryTask(ctx, testTaskID, "k3", RetryTaskRequest{3, "r"}); return err },
			sent{"POST", "/v1/tasks/" + testTaskID + ":retry", "k3", `{"expected_revision":"3","reason":"r"}`}, "retry"},
		{func() error {
			_, err := c.CreateQueue(ctx, "k4", CreateQueueRequest{Name: "q", MaxBacklog: 5})
			return err
		},
			sent{"POST", "/v1/queues", "k4", `{"name":"q","max_backlog":5}`}, "create queue"},
		{func() error {
			_, err := c.UpdateQueue(ctx, other, "k5", UpdateQueueRequest{ExpectedRevision: 4, Name: &name, MaxConcurrency: &five, Paused: &yes})
			return err
		}, sent{"PATCH", "/v1/queues/" + other, "k5", `{"expected_revision":"4","max_concurrency":5,"name":"n","paused":true}`}, "update queue"},
		{func() error {
			_, err := c.UpdateApplication(ctx, "k6", UpdateApplicationRequest{ExpectedRevision: 5, MaxUnfinished: &five})
			return err
		}, sent{"PATCH", "/v1/application", "k6", `{"expected_revision":"5","max_unfinished":5}`}, "update application"},
		{func() error {
			_, err := c.ListTasks(ctx, ListTasksRequest{QueueID: other, State: StateFailed, BusinessKey: "a ", CreatedFrom: at, CreatedBefore: at, Limit: 3, Cursor: "x+y"})
			return err
		}, sent{"GET", "/v1/tasks?business_key=a+&created_before=2026-09-17T00%3A02%3A03.000004Z&created_from=2026-09-17T00%3A02%3A03.000004Z&cursor=x%2By&limit=3&queue_id=" + other + "&state=FAILED", "", ""}, ""},
		{func() error { _, err := c.GetTaskSource(ctx, testTaskID); return err }, sent{"GET", "/v1/tasks/" + testTaskID + "/source", "", ""}, ""},
		{func() error { _, err := c.GetAttempt(ctx, testTaskID, other); return err }, sent{"GET", "/v1/tasks/" + testTaskID + "/attempts/" + other, "", ""}, ""},
		{func() error { _, err := c.ListEvidence(ctx, testTaskID, PageRequest{Limit: 1}); return err }, sent{"GET", "/v1/tasks/" + testTaskID + "/evidence?limit=1", "", ""}, ""},
		{func() error { _, err := c.GetEvidence(ctx, testTaskID, other); return err }, sent{"GET", "/v1/tasks/" + testTaskID + "/evidence/" + other, "", ""}, ""},
		{func() error { _, err := c.ListQueues(ctx, PageRequest{}); return err }, sent{"GET", "/v1/queues", "", ""}, ""},
		{func() error { _, err := c.GetQueue(ctx, other); return err }, sent{"GET", "/v1/queues/" + other, "", ""}, ""},
		{func() error { _, err := c.GetApplication(ctx); return err }, sent{"GET", "/v1/application", "", ""}, ""},
	}
	for i, call := range calls {
		var none *UnknownOutcomeError
		if err := call.call(); !errors.As(err, &none) { // a 503 tells nothing (ERR-012)
			t.Errorf("%s: error = %v, want an UnknownOutcomeError", call.want.uri, err)
		}
		if len(got) != i+1 || got[i] != call.want {
			t.Fatalf("sent %+v\nwant %+v", got[i:], call.want)
		}
		if call.parser == "" {
			continue
		}
		if _, err := parsers[call.parser](got[i].body); err != nil {
			t.Errorf("%s: the server refuses its body: %v", call.want.uri, err)
		}
	}
}

// Nothing is sent that the server would refuse (REL-013 counts on it).
func TestInvalidCommandsAreNotSent(t *testing.T) {
	c := serve(t, ClientConfig{}, func(http.ResponseWriter, *http.Request) { t.Error("an invalid command was sent") })
	ctx, good := t.Context(), CancelTaskRequest{1, "r"}
	review := ReviewTaskRequest{ExpectedRevision: 1, Decision: StateFailed, Note: "n"}
	injected := review
	injected.Evidence = json.RawMessage(`1,"decision":"SUCCEEDED"`)
	huge := uint64(MaxLimit + 1)
	checks := map[string]func() error{
		"task_id":           func() error { _, err := c.CancelTask(ctx, "x", "k", good); return err },
		"idempotency_key":   func() error { _, err := c.CancelTask(ctx, testTaskID, "", good); return err },
		"expected_revision": func() error { _, err := c.RetryTask(ctx, testTaskID, "k", RetryTaskRequest{0, "r"}); return err },
		"reason":            func() error { _, err := c.CancelTask(ctx, testTaskID, "k", CancelTaskRequest{1, "\xff"}); return err },
		"evidence":          func() error { _, err := c.ReviewTask(ctx, testTaskID, "k", injected); return err },
		"body": func() error {
			_, err := c.UpdateQueue(ctx, testTaskID, "k", UpdateQueueRequest{ExpectedRevision: 1})
			return err
		},
		"queue_id": func() error { _, err := c.ListTasks(ctx, ListTasksRequest{}); return err },
		"name":     func() error { _, err := c.CreateQueue(ctx, "k", CreateQueueRequest{}); return err },
		"id":       func() error { _, err := c.GetAttempt(ctx, testTaskID, "X"); return err },
		"max_unfinished": func() error {
			_, err := c.UpdateApplication(ctx, "k", UpdateApplicationRequest{ExpectedRevision: 1, MaxUnfinished: &huge})
			return err
		},
	}
	for field, check := range checks {
		var refused *InvalidArgumentError
		if err := check(); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// CAN-004, CAN-011, CAN-012: 202 and 200 are receipts; another task's is none.
func TestReceiptsOfCommandsAreRead(t *testing.T) {
	status, id := 202, testTaskID
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, r *http.Request) {
		respond(w, status, `"data":{"deduplicated":true,"task":`+taskText(id, StateRunning)+`}`)
	})
	receipt, err := c.CancelTask(t.Context(), testTaskID, "k", CancelTaskRequest{1, "r"})
	if err != nil || !receipt.Deduplicated || receipt.Task.State != StateRunning || receipt.RequestID == "" {
		t.Errorf("CancelTask = %+v, %v", receipt, err)
	}
	for _, wrong := range []struct {
		status int
		id     string
	}{{200, testRequestID}, {201, testTaskID}, {204, testTaskID}} {
		status, id = wrong.status, wrong.id
		var none *UnknownOutcomeError
		if _, err := c.CancelTask(t.Context(), testTaskID, "k", CancelTaskRequest{1, "r"}); !errors.As(err, &none) {
			t.Errorf("status %d, task %s: %v, want an unknown outcome", wrong.status, wrong.id, err)
		}
	}
}

func taskText(id, state string) string {
	task := Task{ID: id, QueueID: testRequestID, NamespaceID: testRequestID, State: state, Handler: "h", Revision: 1}
	task.AvailableAt = time.Date(2026, 9, 17, 0, 0, 0, 0, time.UTC)
	task.DeadlineAt, task.CreatedAt, task.UpdatedAt = task.AvailableAt, task.AvailableAt, task.AvailableAt
	return string(task.AppendJSON(nil))
}

// The iterators ask for a page when it is needed and end with the first error.
func TestIteratorsReadPagesAsTheyGo(t *testing.T) {
	var asked []string
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, r *http.Request) {
		cursor := r.URL.Query().Get("cursor")
		asked = append(asked, cursor)
		switch cursor {
		case "":
			respond(w, 200, `"data":{"items":[`+taskText(testTaskID, StateWaiting)+`,`+taskText(testTaskID, StateFailed)+`],"next_cursor":"a"}`)
		case "a":
			respond(w, 200, `"data":{"items":[`+taskText(testTaskID, StateRunning)+`],"next_cursor":"b"}`)
		default:
			respond(w, 400, `"error":{"code":"INVALID_ARGUMENT","message":"m"}`)
		}
	})
	var states []string
	var failed error
	for task, err := range c.Tasks(t.Context(), ListTasksRequest{QueueID: testRequestID}) {
		if err != nil {
			failed = err
			continue
		}
		states = append(states, task.State)
	}
	var refused *APIError
	if !slices.Equal(states, []string{StateWaiting, StateFailed, StateRunning}) || !errors.As(failed, &refused) || refused.Code != CodeInvalidArgument {
		t.Errorf("loop saw %v, %v", states, failed)
	}
	asked = nil
	for range c.Tasks(t.Context(), ListTasksRequest{QueueID: testRequestID}) {
		break
	}
	if len(asked) != 1 {
		t.Errorf("a loop of one step asked for %d pages", len(asked))
	}
}

// REF-SUBSCR-001: WaitTask outlives a server that is away, and no refusal.
func TestWaitTaskLooksUntilTheTaskIsFinal(t *testing.T) {
	var looks atomic.Int64
	last := StateSucceeded
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, r *http.Request) {
		switch looks.Add(1) {
		case 1:
			respond(w, 200, `"data":`+taskText(testTaskID, StateWaiting))
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		default:
			respond(w, 200, `"data":`+taskText(testTaskID, last))
		}
	})
	bounded, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for _, last = range []string{StateSucceeded, StateFailed, StateCancelled, StateNeedsReview} {
		looks.Store(0)
		if task, err := c.WaitTask(bounded, testTaskID); err != nil || task.State != last || looks.Load() != 3 {
			t.Errorf("WaitTask = %s, %v after %d looks", task.State, err, looks.Load())
		}
	}
	last = StateRunning
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if task, err := c.WaitTask(ctx, testTaskID); !errors.Is(err, context.DeadlineExceeded) || task.State != StateRunning {
		t.Errorf("WaitTask past its deadline = %s, %v", task.State, err)
	}
	gone := serve(t, ClientConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 404, `"error":{"code":"NOT_FOUND","message":"no such task"}`)
	})
	var refused *APIError
	if _, err := gone.WaitTask(t.Context(), testTaskID); !errors.As(err, &refused) || refused.Code != CodeNotFound {
		t.Errorf("WaitTask for a missing task = %v", err)
	}
}

// API-033: SubmitTask sends the trace context that the configuration finds, and SubmitTasks
// for each item that has none.
func TestSubmitTaskSendsTheTraceOfItsContext(t *testing.T) {
	type key struct{}
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var got, body string
	config := ClientConfig{Traceparent: func(ctx context.Context) string { return fmt.Sprint(ctx.Value(key{})) }}
	c := serve(t, config, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get(HeaderTraceparent)
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		respond(w, 503, `"error":{"code":"UNAVAILABLE","message":"m"}`)
	})
	c.SubmitTask(context.WithValue(t.Context(), key{}, trace), "k", smallRequest())
	if got != trace {
		t.Errorf("Traceparent = %q, want %q", got, trace)
	}
	own := strings.Replace(trace, "0af7", "0af8", 1)
	got = ""
	c.SubmitTasks(context.WithValue(t.Context(), key{}, trace), []BatchItem{{Key: "a", Request: smallRequest()}, {Key: "b", Request: smallRequest(), Traceparent: own}})
	if got != trace {
		t.Errorf("Traceparent of the batch = %q, want %q", got, trace)
	}
	if strings.Count(body, trace) != 1 || strings.Count(body, own) != 1 {
		t.Errorf("body of the batch: %s, want one trace context of each kind", body)
	}
}

package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	testToken     = "orbit_secret-token-value"
	testRequestID = "44444444444444444444444444444444"
)

// serve starts a server that answers every request with f and returns a client of it.
func serve(t *testing.T, cfg ClientConfig, f http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c, err := NewClient(srv.URL, testToken, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// respond answers with an envelope around inner, such as "data":{…}.
func respond(w http.ResponseWriter, status int, inner string) {
	w.Header().Set(HeaderRequestID, testRequestID)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"request_id":%q,%s}`, testRequestID, inner)
}

func smallRequest() SubmitTaskRequest {
	return SubmitTaskRequest{QueueID: "11111111111111111111111111111111", Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"n":9007199254740993}`)}
}

// receipt is the data of an answer that accepts r.
func receipt(t *testing.T, r SubmitTaskRequest, deduplicated bool) string {
	task := acceptedTask(t, r, time.Unix(2e9, 0).UTC())
	return fmt.Sprintf(`{"deduplicated":%t,"task":%s}`, deduplicated, task.AppendJSON(nil))
}

func TestSubmitTaskSendsFrozenBytesAndReadsTheReceipt(t *testing.T) {
	r := smallRequest()
	frozen, s, err := r.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	var sent []byte
	var header http.Header
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, req *http.Request) {
		sent, _ = io.ReadAll(req.Body)
		header = req.Header
		w.Header().Set(HeaderContentDigest, s.Digest.String())
		w.Header().Set(HeaderReplayed, "true")
		respond(w, 200, `"data":`+receipt(t, r, true))
	})
	got, err := c.SubmitTask(t.Context(), "key-1", r)
	if err != nil {
		t.Fatal(err)
	}
	if string(sent) != string(frozen) {
		t.Errorf("sent %s, frozen %s", sent, frozen)
	}
	for name, want := range map[string]string{"Authorization": "Bearer " + testToken, "Idempotency-Key": "key-1", "Content-Type": "application/json"} {
		if header.Get(name) != want {
			t.Errorf("header %s = %q, want %q", name, header.Get(name), want)
		}
	}
	if !got.Deduplicated || !got.Replayed || got.RequestID != testRequestID || got.ContentDigest != s.Digest.String() {
		t.Errorf("receipt %+v", got)
	}
	if string(got.Task.Payload) != `{"n":9007199254740993}` || got.Task.State != StateWaiting || got.Task.Revision != 1 {
		t.Errorf("task %+v", got.Task)
	}
}

// IDEM-014: the standard transport would repeat a POST that has an
// Idempotency-Key on another connection when a kept one breaks.
func TestEachCallOfAWriteHitsTheServerOnce(t *testing.T) {
	r := smallRequest()
	frozen, s, err := r.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(*Client) error{
		"SubmitTask": func(c *Client) error {
			_, err := c.SubmitTask(context.Background(), "k", r)
			return err
		},
		"SubmitFrozen": func(c *Client) error {
			_, err := c.SubmitFrozen(context.Background(), "k", frozen, "")
			return err
		},
		"SubmitTasks": func(c *Client) error {
			_, err := c.SubmitTasks(context.Background(), []BatchItem{{Key: "k", Request: r}})
			return err
		},
		"SubmitFrozenBatch": func(c *Client) error {
			_, err := c.SubmitFrozenBatch(context.Background(), []FrozenItem{{Key: "k", Body: frozen}})
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var hits, kills atomic.Int64
			c := serve(t, ClientConfig{}, func(w http.ResponseWriter, req *http.Request) {
				io.Copy(io.Discard, req.Body)
				if hits.Add(1) == 1 { // so that the next call finds a kept connection
					w.Header().Set(HeaderContentDigest, s.Digest.String())
					respond(w, 201, `"data":`+receipt(t, r, false))
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					kills.Add(1)
					conn.Close()
				}
			})
			call(c)
			for i := range 3 {
				before := hits.Load()
				var unknown *UnknownOutcomeError
				if err := call(c); !errors.As(err, &unknown) {
					t.Errorf("call %d = %v, want an UnknownOutcomeError", i, err)
				}
				if n := hits.Load() - before; n != 1 {
					t.Errorf("call %d hit the server %d times", i, n)
				}
			}
			if kills.Load() != 3 {
				t.Fatalf("%d connections were killed, want 3", kills.Load())
			}
		})
	}
}

func TestRedirectsAreAnswersAndNeverFollowed(t *testing.T) {
	var hits atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		c := serve(t, ClientConfig{}, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, elsewhere.URL, status)
		})
		body, _, _ := smallRequest().Freeze()
		a, err := c.SubmitFrozen(t.Context(), "k", body, "")
		if err != nil || a.Status != status || a.Unreadable == nil {
			t.Errorf("%d: %+v, %v", status, a, err)
		}
		var unknown *UnknownOutcomeError
		if _, err := c.GetTask(t.Context(), testRequestID); !errors.As(err, &unknown) || unknown.Status != status {
			t.Errorf("%d: GetTask = %v", status, err)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("%d redirects were followed", hits.Load())
	}
}

// The facts that a relay classifies by (REL-007, REL-011, REL-026).
func TestAnswersReportWhatCameBack(t *testing.T) {
	r := smallRequest()
	good := `"data":` + receipt(t, r, false)
	refusal := func(code string) string { return `"error":{"code":"` + code + `","message":"m"}` }
	const accepted, refused, unreadable = "accepted", "refused", "unreadable"
	raw := func(status int, id, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if id != "" {
				w.Header().Set(HeaderRequestID, id)
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	env := func(status int, inner string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { respond(w, status, inner) }
	}
	tests := []struct {
		name   string
		answer http.HandlerFunc
		status int
		want   string
	}{
		{"Created", env(201, good), 201, accepted},
		{"Replayed", env(200, good), 200, accepted},
		{"UnknownMembers", env(201, good+`,"shiny":1`), 201, accepted},
		{"Accepted202", env(202, good), 202, unreadable},
		{"NoContent", raw(204, testRequestID, ""), 204, unreadable},
		{"SuccessWithoutData", env(201, `"x":1`), 201, unreadable},
		{"SuccessWithError", env(201, good+","+refusal(CodeUnavailable)), 201, unreadable},
		{"SuccessOfText", raw(200, testRequestID, "<html>hello</html>"), 200, unreadable},
		{"SuccessWithoutTask", env(201, `"data":{"deduplicated":false}`), 201, unreadable},
		{"SuccessWithListAsData", env(201, `"data":[]`), 201, unreadable},
		{"SuccessWithNullData", env(201, `"data":null`), 201, unreadable},
		{"SuccessWithBadTaskID", env(201, `"data":{"task":{"id":"x","queue_id":"11111111111111111111111111111111","handler":"h"}}`), 201, unreadable},
		{"SuccessWithForeignRequestID", raw(201, strings.Repeat("5", 32), `{"request_id":"`+testRequestID+`",`+good+`}`), 201, unreadable},
		{"SuccessWithoutRequestIDHeader", raw(201, "", `{"request_id":"`+testRequestID+`",`+good+`}`), 201, unreadable},
		{"Invalid", env(400, refusal(CodeInvalidArgument)), 400, refused},
		{"Unauthenticated", env(401, refusal(CodeUnauthenticated)), 401, refused},
		{"Denied", env(403, refusal(CodePermissionDenied)), 403, refused},
		{"NotFound", env(404, refusal(CodeNotFound)), 404, refused},
		{"Conflict", env(409, refusal(CodeIdempotencyConflict)), 409, refused},
		{"StateConflict", env(409, refusal(CodeStateConflict)), 409, refused},
		{"TooLarge", env(413, refusal(CodeBodyTooLarge)), 413, refused},
		{"MediaType", env(415, refusal(CodeUnsupportedMediaType)), 415, refused},
		{"QueueFull", env(429, refusal(CodeQueueFull)), 429, refused},
		{"ApplicationFull", env(429, refusal(CodeApplicationFull)), 429, refused},
		{"Unavailable", env(503, refusal(CodeUnavailable)), 503, refused},
		{"CodeOfAnotherStatus", env(404, refusal(CodeInvalidArgument)), 404, unreadable},
		{"CodeThatOrbitDoesNotHave", env(400, refusal("BAD")), 400, unreadable},
		{"RefusalWithData", env(400, refusal(CodeInvalidArgument)+`,"data":{}`), 400, unreadable},
		{"RefusalOfText", raw(404, testRequestID, "404 page not found"), 404, unreadable},
		{"RefusalWithForeignRequestID", raw(404, strings.Repeat("5", 32), `{"request_id":"`+testRequestID+`",`+refusal(CodeNotFound)+`}`), 404, unreadable},
		{"RefusalWithoutRequestID", raw(404, "", `{`+refusal(CodeNotFound)+`}`), 404, unreadable},
		{"Gateway", raw(502, "", "bad gateway"), 502, unreadable},
		{"DuplicateMembers", raw(201, testRequestID, `{"request_id":"`+testRequestID+`",`+good+`,`+good+`}`), 201, unreadable},
		{"DataAfterEnvelope", raw(201, testRequestID, `{"request_id":"`+testRequestID+`",`+good+`}{}`), 201, unreadable},
		{"CutOff", func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "100000")
			respond(w, 201, good)
		}, 201, unreadable},
		{"TooLong", raw(201, testRequestID, `{"request_id":"`+testRequestID+`",`+good+`}`+strings.Repeat(" ", 1<<20)), 201, unreadable},
		{"JustNotTooLong", raw(201, testRequestID, padded(`{"request_id":"`+testRequestID+`",`+good+`}`, 1<<20)), 201, accepted},
	}
	body, _, _ := r.Freeze()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, ClientConfig{}, test.answer)
			a, err := c.SubmitFrozen(t.Context(), "k", body, "")
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{accepted: a.Accepted != nil, refused: a.Err != nil, unreadable: a.Unreadable != nil}
			if a.Status != test.status || !reflect.DeepEqual(got, map[string]bool{accepted: false, refused: false, unreadable: false, test.want: true}) {
				t.Errorf("status %d, %v (%v); want %d, %s", a.Status, got, a.Unreadable, test.status, test.want)
			}
			if a.Err != nil && (a.Err.Status != test.status || a.Err.Message != "m" || a.Err.RequestID != testRequestID) {
				t.Errorf("error %+v", a.Err)
			}
		})
	}
}

func padded(text string, size int) string { return text + strings.Repeat(" ", size-len(text)) }

// ERR-016, ERR-012.
func TestSubmitTaskTellsRefusalFromUnknown(t *testing.T) {
	r := smallRequest()
	other := r
	other.Handler = "another"
	full := func(w http.ResponseWriter) { w.Header().Set("Retry-After", "7") }
	tests := []struct {
		name    string
		answer  http.HandlerFunc
		unknown bool
		code    string
	}{
		{"Refused", func(w http.ResponseWriter, _ *http.Request) {
			respond(w, 409, `"error":{"code":"IDEMPOTENCY_CONFLICT","message":"`+ConflictMessage+`"}`)
		}, false, CodeIdempotencyConflict},
		{"Full", func(w http.ResponseWriter, _ *http.Request) {
			full(w)
			respond(w, 429, `"error":{"code":"QUEUE_FULL","message":"m"}`)
		}, false, CodeQueueFull},
		{"Unavailable", func(w http.ResponseWriter, _ *http.Request) {
			respond(w, 503, `"error":{"code":"UNAVAILABLE","message":"m"}`)
		}, true, CodeUnavailable},
		{"Unreadable", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, true, ""},
		{"AnotherHandler", func(w http.ResponseWriter, _ *http.Request) { respond(w, 201, `"data":`+receipt(t, other, false)) }, true, ""},
		{"AnotherDigest", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(HeaderContentDigest, Digest{1}.String())
			respond(w, 201, `"data":`+receipt(t, r, false))
		}, true, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := serve(t, ClientConfig{}, test.answer).SubmitTask(t.Context(), "k", r)
			var unknown *UnknownOutcomeError
			if errors.As(err, &unknown) != test.unknown {
				t.Errorf("error %v (%T), unknown: want %t", err, err, test.unknown)
			}
			var api *APIError
			if errors.As(err, &api) != (test.code != "") || api != nil && api.Code != test.code {
				t.Errorf("error %v, want code %q", err, test.code)
			}
			if test.code == CodeQueueFull && (!api.HasRetryAfter || api.RetryAfter != 7*time.Second) {
				t.Errorf("Retry-After = %v", api.RetryAfter)
			}
		})
	}
}

func TestAnotherDigestAlgorithmIsNotCompared(t *testing.T) {
	r := smallRequest()
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(HeaderContentDigest, "orbit-json-v2:"+strings.Repeat("0", 64))
		respond(w, 201, `"data":`+receipt(t, r, false))
	})
	if _, err := c.SubmitTask(t.Context(), "k", r); err != nil {
		t.Fatal(err)
	}
}

func TestTimeoutAndRefusedConnectionAreUnknown(t *testing.T) {
	release := make(chan struct{})
	c := serve(t, ClientConfig{Timeout: 50 * time.Millisecond}, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // runs before the server is closed
	var unknown *UnknownOutcomeError
	if _, err := c.SubmitTask(t.Context(), "k", smallRequest()); !errors.As(err, &unknown) || unknown.Status != 0 {
		t.Errorf("timeout = %v, want an UnknownOutcomeError", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.SubmitTask(ctx, "k", smallRequest()); !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled = %v, want an UnknownOutcomeError that wraps the cause", err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	dead, err := NewClient(gone.URL, testToken, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dead.SubmitTask(t.Context(), "k", smallRequest()); !errors.As(err, &unknown) {
		t.Errorf("no server = %v, want an UnknownOutcomeError", err)
	}
}

func TestInvalidRequestsAreNotSent(t *testing.T) {
	var hits atomic.Int64
	c := serve(t, ClientConfig{}, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	r := smallRequest()
	body, _, _ := r.Freeze()
	bad := r
	bad.Handler = ""
	ctx := t.Context()
	checks := map[string]func() error{
		"idempotency_key": func() error { _, err := c.SubmitTask(ctx, "a b", r); return err },
		"handler":         func() error { _, err := c.SubmitTask(ctx, "k", bad); return err },
		"traceparent":     func() error { _, err := c.SubmitFrozen(ctx, "k", body, "x"); return err },
		"task":            func() error { _, err := c.SubmitFrozen(ctx, "k", nil, ""); return err },
		"body":            func() error { _, err := c.SubmitFrozen(ctx, "k", []byte(padded("{", 524289)), ""); return err },
		"items[1].task.handler": func() error {
			_, err := c.SubmitTasks(ctx, []BatchItem{{Key: "k", Request: r}, {Key: "k", Request: bad}})
			return err
		},
		"items[0].idempotency_key": func() error { _, err := c.SubmitTasks(ctx, []BatchItem{{Request: r}}); return err },
		"items":                    func() error { _, err := c.SubmitTasks(ctx, nil); return err },
		"task_id":                  func() error { _, err := c.GetTask(ctx, "../tasks"); return err },
		"task_id ":                 func() error { _, err := c.ListAttempts(ctx, "X", PageRequest{}); return err },
	}
	for field, check := range checks {
		var refused *InvalidArgumentError
		if err := check(); !errors.As(err, &refused) || refused.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("%d invalid requests were sent", hits.Load())
	}
}

// REF-BATCH-002, REL-027.
func TestBatchAnswersAreReadItemByItem(t *testing.T) {
	r := smallRequest()
	body, s, _ := r.Freeze()
	minimal := `{"deduplicated":true,"task":{"id":"22222222222222222222222222222222","queue_id":"11111111111111111111111111111111","handler":"h","state":"WAITING","revision":"1","created_at":"2026-09-17T00:00:00Z"}}`
	var prefer string
	c := serve(t, ClientConfig{MinimalBatchAnswers: true}, func(w http.ResponseWriter, req *http.Request) {
		prefer = req.Header.Get("Prefer")
		if req.Header.Get(HeaderIdempotencyKey) != "" {
			t.Error("a batch was sent with an Idempotency-Key header")
		}
		respond(w, 200, `"data":{"items":[`+
			`{"status":201,"content_digest":"`+s.Digest.String()+`","data":`+receipt(t, r, false)+`},`+
			`{"status":200,"content_digest":"`+s.Digest.String()+`","data":`+minimal+`},`+
			`{"status":429,"retry_after":3,"error":{"code":"QUEUE_FULL","message":"m"}},`+
			`{"status":409,"error":{"code":"NOT_FOUND","message":"m"}},`+
			`{"status":201,"data":{}},`+
			`7]}`)
	})
	items := make([]FrozenItem, 6)
	for i := range items {
		items[i] = FrozenItem{Key: fmt.Sprint("k", i), Body: body}
	}
	b, err := c.SubmitFrozenBatch(t.Context(), items)
	if err != nil || b.Status != 200 || b.Err != nil || b.Unreadable != nil || len(b.Items) != 6 || prefer != "return=minimal" {
		t.Fatalf("%+v, %v, Prefer %q", b, err, prefer)
	}
	if a := b.Items[0]; a.Status != 201 || a.Accepted == nil || a.Accepted.Deduplicated || a.Replayed || a.ContentDigest != s.Digest.String() || a.RequestID != testRequestID {
		t.Errorf("item 0: %+v", a)
	}
	if a := b.Items[1]; a.Status != 200 || a.Accepted == nil || !a.Replayed || a.Accepted.Task.Payload != nil || a.Accepted.ContentDigest == "" {
		t.Errorf("item 1: %+v", a)
	}
	if a := b.Items[2]; a.Err == nil || a.Err.Code != CodeQueueFull || a.RetryAfter != 3*time.Second || !a.Err.HasRetryAfter {
		t.Errorf("item 2: %+v", a)
	}
	for i := 3; i < 6; i++ {
		if a := b.Items[i]; a.Unreadable == nil || a.Accepted != nil || a.Err != nil {
			t.Errorf("item %d: %+v, want unreadable", i, a)
		}
	}
}

func TestBatchAnswersAsAWhole(t *testing.T) {
	body, _, _ := smallRequest().Freeze()
	one := `{"status":429,"error":{"code":"QUEUE_FULL","message":"m"}}`
	tests := map[string]struct {
		status         int
		inner          string
		items, refused bool
	}{
		"Good":         {200, `"data":{"items":[` + one + `]}`, true, false},
		"TooFew":       {200, `"data":{"items":[]}`, false, false},
		"TooMany":      {200, `"data":{"items":[` + one + `,` + one + `]}`, false, false},
		"NoItems":      {200, `"data":{}`, false, false},
		"Created":      {201, `"data":{"items":[` + one + `]}`, false, false},
		"Refused":      {403, `"error":{"code":"PERMISSION_DENIED","message":"m"}`, false, true},
		"Unavailable":  {503, `"error":{"code":"UNAVAILABLE","message":"m"}`, false, true},
		"ForeignError": {403, `"error":"no"`, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, ClientConfig{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "2")
				respond(w, test.status, test.inner)
			})
			b, err := c.SubmitFrozenBatch(t.Context(), []FrozenItem{{Key: "k", Body: body}})
			if err != nil || b.Status != test.status || (b.Items != nil) != test.items || (b.Err != nil) != test.refused ||
				(b.Unreadable != nil) != (!test.items && !test.refused) || !b.HasRetryAfter || b.RetryAfter != 2*time.Second {
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
}

func TestSubmitTasksGivesEachItemItsResult(t *testing.T) {
	r := smallRequest()
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, req *http.Request) {
		sent, _ := io.ReadAll(req.Body)
		if entries, err := ParseBatch(sent); err != nil || len(entries) != 2 || entries[1].Key != "b" || entries[1].Err != nil {
			t.Errorf("sent %s: %v", sent, err)
		}
		respond(w, 200, `"data":{"items":[{"status":201,"data":`+receipt(t, r, false)+`},{"status":400,"error":{"code":"INVALID_ARGUMENT","message":"m"}}]}`)
	})
	results, err := c.SubmitTasks(t.Context(), []BatchItem{{Key: "a", Request: r}, {Key: "b", Request: r}})
	if err != nil || len(results) != 2 {
		t.Fatalf("%+v, %v", results, err)
	}
	var api *APIError
	if results[0].Err != nil || results[0].Accepted.Task.Handler != "h" || !errors.As(results[1].Err, &api) {
		t.Errorf("results %+v", results)
	}
}

func TestReads(t *testing.T) {
	task := acceptedTask(t, smallRequest(), time.Unix(2e9, 0).UTC())
	attempt := Attempt{ID: "55555555555555555555555555555555", TaskID: task.ID, Number: 1, State: AttemptLeased, ConcurrencyToken: 1<<64 - 2,
		ClaimedAt: time.Unix(2e9, 0)}
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet || req.Header.Get("Content-Type") != "" || req.Header.Get(HeaderIdempotencyKey) != "" {
			t.Errorf("%s with headers %v", req.Method, req.Header)
		}
		switch req.URL.String() {
		case "/v1/tasks/" + task.ID:
			respond(w, 200, `"data":`+string(task.AppendJSON(nil)))
		case "/v1/tasks/" + task.ID + "/attempts?cursor=a%2Bb&limit=2":
			respond(w, 200, `"data":{"items":[`+string(attempt.AppendJSON(nil))+`],"next_cursor":"n"}`)
		case "/v1/capabilities":
			respond(w, 200, `"data":{"contract":"orbit.task.v1","digests":["orbit-json-v1"],"idempotency_retention_ms":7776000000,`+
				`"batch":{"max_items":100,"max_bytes":524288},"worker_protocols":["orbit.worker.v1"],`+
				`"application_id":"77777777777777777777777777777777","namespace_id":"33333333333333333333333333333333","permissions":["tasks:submit"]}`)
		default:
			respond(w, 404, `"error":{"code":"NOT_FOUND","message":"m"}`)
		}
	})
	got, err := c.GetTask(t.Context(), task.ID)
	if err != nil || !reflect.DeepEqual(got, task) {
		t.Errorf("GetTask = %+v, %v; want %+v", got, err, task)
	}
	page, err := c.ListAttempts(t.Context(), task.ID, PageRequest{Limit: 2, Cursor: "a+b"})
	if err != nil || len(page.Items) != 1 || page.NextCursor != "n" || page.Items[0].ConcurrencyToken != 1<<64-2 {
		t.Errorf("ListAttempts = %+v, %v", page, err)
	}
	caps, err := c.Capabilities(t.Context())
	if err != nil || caps.Batch.MaxItems != 100 || caps.IdempotencyRetentionMS != 7776000000 || caps.NamespaceID[0] != '3' {
		t.Errorf("Capabilities = %+v, %v", caps, err)
	}
	var api *APIError
	if _, err := c.GetTask(t.Context(), testRequestID); !errors.As(err, &api) || api.Code != CodeNotFound {
		t.Errorf("GetTask of a missing task = %v", err)
	}
}

func TestCapabilitiesOfAnotherServiceAreRefused(t *testing.T) {
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, `"data":{"contract":"other"}`) })
	if caps, err := c.Capabilities(t.Context()); err == nil {
		t.Errorf("Capabilities = %+v", caps)
	}
}

// AMB-036 for HTTP, and ERR-015: neither token nor a password in a URL is shown.
func TestServerURLs(t *testing.T) {
	for _, u := range []string{"https://orbit.example", "https://orbit.example/base/", "http://127.0.0.1:8080", "http://[::1]:1", "http://localhost:1", "http://LOCALHOST", "http://127.9.9.9"} {
		if _, err := NewClient(u, testToken, ClientConfig{}); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{"", "orbit.example", "/v1", "ftp://orbit.example", "http://orbit.example", "http://10.0.0.1", "http://127.0.0.1.example",
		"http://localhost.example", "https://user:hunter2@orbit.example", "https://orbit.example?x=hunter2", "https://orbit.example#f", "https://", "://hunter2", "https://orbit.example:hunter2"} {
		_, err := NewClient(u, testToken, ClientConfig{})
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), testToken) {
			t.Errorf("%s: error %v", u, err)
		}
	}
	if _, err := NewClient("http://10.0.0.1", testToken, ClientConfig{AllowInsecure: true}); err != nil {
		t.Errorf("AllowInsecure: %v", err)
	}
	for _, token := range []string{"", "a b", "a\r\nX: y", "é"} {
		if _, err := NewClient("https://orbit.example", token, ClientConfig{}); err == nil {
			t.Errorf("token %q was accepted", token)
		}
	}
}

func TestTheTokenIsNeverPrinted(t *testing.T) {
	c, err := NewClient("http://127.0.0.1:1", testToken, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, callErr := c.GetTask(t.Context(), testRequestID)
	creds := Credentials{Token: testToken}
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s", c, c, c, c), fmt.Sprintf("%v %+v %#v", creds, creds, &creds),
		fmt.Sprint(callErr), creds.LogValue().String()} {
		if strings.Contains(text, testToken) {
			t.Errorf("%s shows the token", text)
		}
	}
}

// REL-025.
func TestRetryAfterForms(t *testing.T) {
	now := time.Date(2026, 9, 17, 0, 0, 0, 0, time.UTC)
	tests := map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "007": 7 * time.Second, "-5": -5 * time.Second,
		"99999999999999999999": math.MaxInt64, "9223372037": math.MaxInt64, "-99999999999999999999": math.MinInt64,
		"Thu, 17 Sep 2026 00:01:00 GMT": time.Minute, "Thu, 17 Sep 2026 00:00:00 GMT": 0, "Wed, 16 Sep 2026 00:00:00 GMT": 0,
	}
	for value, want := range tests {
		if got, ok := ParseRetryAfter(value, now); !ok || got != want {
			t.Errorf("%q = %v, %t; want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{"", " ", "-", "--5", "+5", "1.5", "1e3", "soon", "5s", "2026-09-17T00:00:00Z"} {
		if got, ok := ParseRetryAfter(value, now); ok {
			t.Errorf("%q = %v", value, got)
		}
	}
}

// ERR-014.
func TestCodesBelongToTheirStatus(t *testing.T) {
	codes := map[string][]int{
		CodeInvalidArgument: {400, 405}, CodeUnauthenticated: {401}, CodePermissionDenied: {403}, CodeNotFound: {404},
		CodeIdempotencyConflict: {409}, CodeStateConflict: {409}, CodeBodyTooLarge: {413}, CodeUnsupportedMediaType: {415},
		CodeApplicationFull: {429}, CodeQueueFull: {429}, CodeUnavailable: {503}, "TEAPOT": nil, "": nil,
	}
	for code, statuses := range codes {
		var got []int
		for status := range 600 {
			if CodeBelongsTo(status, code) {
				got = append(got, status)
			}
		}
		if !reflect.DeepEqual(got, statuses) {
			t.Errorf("%s belongs to %v, want %v", code, got, statuses)
		}
	}
}

// REL-028
func TestAReadTakesNoMoreThanOneMiBOrAPage(t *testing.T) {
	read := func(bytes int, data string, call func(*Client) error) error {
		return call(serve(t, ClientConfig{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(HeaderRequestID, testRequestID)
			io.WriteString(w, padded(`{"request_id":"`+testRequestID+`","data":`+data+`}`, bytes))
		}))
	}
	caps := `{"contract":"` + ContractName + `","namespace_id":"` + testRequestID + `","application_id":"` + testRequestID + `"}`
	capabilities := func(c *Client) error { _, err := c.Capabilities(t.Context()); return err }
	attempts := func(c *Client) error {
		_, err := c.ListAttempts(t.Context(), testRequestID, PageRequest{})
		return err
	}
	if err := read(1<<20, caps, capabilities); err != nil {
		t.Errorf("capabilities of 1 MiB: %v", err)
	}
	if err := read(1<<20+1, caps, capabilities); err == nil {
		t.Error("capabilities beyond 1 MiB were read")
	}
	if err := read(1<<20+1<<18, `{"items":[]}`, attempts); err != nil { // what a server may send
		t.Errorf("a page of 1.25 MiB: %v", err)
	}
	if err := read(2<<20+1, `{"items":[]}`, attempts); err == nil {
		t.Error("a page beyond 2 MiB was read")
	}
}

// A read has no outcome that could be unknown; its error is typed like the others.
func TestErrorsOfReadsSayWhatIsWrong(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	dead, err := NewClient(gone.URL, testToken, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	answering := func(f http.HandlerFunc) *Client { return serve(t, ClientConfig{}, f) }
	tests := []struct {
		name   string
		client *Client
		status int
		want   string
	}{
		{"unreachable", dead, 0, "no answer from the server: "},
		{"redirect", answering(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }), http.StatusFound, "server redirects (HTTP status 302), which is not followed: check the address"},
		{"foreign", answering(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }), 200, "not an Orbit envelope: check the address"},
		{"gateway", answering(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }), 502, "answer is of no use (HTTP status 502)"},
		{"unavailable", answering(func(w http.ResponseWriter, _ *http.Request) {
			respond(w, 503, `"error":{"code":"UNAVAILABLE","message":"busy"}`)
		}), 503, "read capabilities: server answered 503 UNAVAILABLE: busy"},
	}
	for _, test := range tests {
		_, err := test.client.Capabilities(t.Context())
		var unknown *UnknownOutcomeError
		if !errors.As(err, &unknown) || unknown.Status != test.status {
			t.Errorf("%s: %v, want an UnknownOutcomeError with status %d", test.name, err, test.status)
			continue
		}
		if text := err.Error(); !strings.Contains(text, test.want) || strings.Contains(text, "outcome unknown") {
			t.Errorf("%s: %q, want %q", test.name, text, test.want)
		}
	}
}

// Calls one after the other go over one connection: a relay makes thousands.
func TestConnectionsAreReused(t *testing.T) {
	connections := map[string]bool{}
	c := serve(t, ClientConfig{}, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		respond(w, 429, `"error":{"code":"QUEUE_FULL","message":"m"}`)
	})
	for i := range 20 {
		c.SubmitTask(t.Context(), fmt.Sprint("k", i), smallRequest())
		c.GetTask(t.Context(), testTaskID)
		c.CancelTask(t.Context(), testTaskID, "k", CancelTaskRequest{1, "r"})
	}
	if len(connections) != 1 {
		t.Errorf("60 calls used %d connections, want 1", len(connections))
	}
}

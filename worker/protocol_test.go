package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// nothing is a handler that must not be called.
func nothing(t *testing.T) worker.HandlerFunc {
	return func(context.Context, worker.Execution) (json.RawMessage, error) {
		t.Error("the handler was called")
		return nil, nil
	}
}

func succeed(context.Context, worker.Execution) (json.RawMessage, error) { return nil, nil }

// WRK-001, WRK-022, REF-WRK-002, REF-WRK-004.
func TestHelloDeclaresTheWholeRegistration(t *testing.T) {
	s := newTLSServer(t)
	h := run(t, s, worker.Config{Capacity: 3, Handlers: map[worker.Handler]worker.HandlerFunc{
		update: succeed, {Name: "a", Version: "2"}: succeed, {Name: "a", Version: "1"}: succeed,
	}}, nil)
	v, hello := s.welcome()
	if v.Path != wire.Path || v.Header.Get("Authorization") != "Bearer secret-token" {
		t.Errorf("asked for %s with %q", v.Path, v.Header.Get("Authorization"))
	}
	if v.Header.Get("Origin") != "" {
		t.Errorf("sent an Origin: %q", v.Header.Get("Origin"))
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(hello.ProcessID) {
		t.Errorf("process_id = %q", hello.ProcessID)
	}
	if !hello.ConcurrencyKeys || hello.Capacity != 3 || len(hello.Held) != 0 {
		t.Errorf("hello = %+v, want keys declared, capacity 3, nothing held", hello)
	}
	want := []wire.Handler{{Name: "a", Version: "1"}, {Name: "a", Version: "2"}, {Name: update.Name, Version: update.Version}}
	if fmt.Sprint(hello.Handlers) != fmt.Sprint(want) || fmt.Sprint(hello.Queues) != fmt.Sprint([]string{queueID}) {
		t.Errorf("hello = %+v", hello)
	}
	if credit := read[wire.Credit](t, v.expectCredit()); credit.Slots != 3 || credit.Seen == nil || *credit.Seen != 0 {
		t.Errorf("credit = %+v, want the capacity, and that nothing was seen", credit)
	}
	h.stop()
	v.drained()
	h.end()
}

func (v *visit) expectCredit() wire.Envelope {
	v.t.Helper()
	frame, open := v.next()
	if !open || frame.Type != wire.TypeCredit {
		v.t.Fatalf("got %q, want credit", frame.Type)
	}
	return frame
}

// TOK-001, TOK-002, TOK-014, SUB-046, WRK-013, WRK-019, TEST-015, TEST-016.
func TestHandlerSeesTheAssignmentExactly(t *testing.T) {
	s := newTLSServer(t)
	got := make(chan worker.Execution, 1)
	h := run(t, s, worker.Config{}, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		got <- e
		return json.RawMessage(` {"big": 9007199254740993, "html":"<&>"} `), nil
	})
	v, _ := s.welcome()
	const payload = `{ "id": 9007199254740993, "x":[1.50, null], "u":"\u00e9<" }`
	v.sendText(`{"type":"task.assign","data":{"attempt_id":"` + id("5") + `","epoch":9007199254740993,"lease_ms":15000,"task":{"id":"` + id("6") +
		`","namespace_id":"` + id("2") + `","queue_id":"` + queueID + `","handler":"object.update","handler_version":"v1","payload_version":"p2","payload":` + payload +
		`,"business_key":" b ","concurrency_key":"Objekt/\u00e9","priority":4,"recovery_safety":"IDEMPOTENT","deadline_ms":60000,"attempt_number":2,` +
		`"effect_uncertain":true,"retry_of":"` + id("7") + `"},"concurrency_token":"18446744073709551614","operation_root":"` + id("8") +
		`","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`)
	if a := v.start(15e9, 30e9); a.AttemptID != id("5") || a.Epoch != 9007199254740993 {
		t.Errorf("started %+v", a)
	}
	e := <-got
	if e.ConcurrencyToken != 18446744073709551614 || e.Task.ConcurrencyKey != "Objekt/é" {
		t.Errorf("key %q token %d", e.Task.ConcurrencyKey, e.ConcurrencyToken)
	}
	if string(e.Task.Payload) != payload {
		t.Errorf("payload = %s, want %s", e.Task.Payload, payload)
	}
	if e.AttemptID != id("5") || e.Epoch != 9007199254740993 || e.OperationRoot != id("8") || !strings.HasPrefix(e.Traceparent, "00-0af7") {
		t.Errorf("execution = %+v", e)
	}
	task := e.Task
	if task.ID != id("6") || task.NamespaceID != id("2") || task.QueueID != queueID || task.Handler != update.Name ||
		task.HandlerVersion != update.Version || task.PayloadVersion != "p2" || task.BusinessKey != " b " || task.Priority != 4 ||
		task.RecoverySafety != "IDEMPOTENT" || task.AttemptNumber != 2 || !task.EffectUncertain || task.RetryOf != id("7") || task.Deadline.IsZero() {
		t.Errorf("task = %+v", task)
	}
	f := v.finish()
	if f.Outcome != wire.OutcomeSucceeded || string(f.Result) != `{"big": 9007199254740993, "html":"<&>"}` || f.Receipt == "" {
		t.Errorf("finish = %+v with %s, want the result byte for byte", f, f.Result)
	}
	h.stop()
	v.drained()
	h.end()
}

// WRK-005, WRK-006, WRK-023, WRK-027, TEST-015, TEST-016.
func TestBrokenDispatchClosesTheConnection(t *testing.T) {
	edit := func(f func(*wire.Assign)) string {
		a := offer("5")
		f(&a)
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	replace := func(old, new string) string {
		text := edit(func(*wire.Assign) {})
		if !strings.Contains(text, old) {
			t.Fatalf("%s does not hold %s", text, old)
		}
		return strings.Replace(text, old, new, 1)
	}
	token := func(text string) string {
		return edit(func(a *wire.Assign) { a.ConcurrencyToken = text })
	}
	key := func(text string) string { return edit(func(a *wire.Assign) { a.Task.ConcurrencyKey = text }) }
	for name, c := range map[string]struct{ data, rule string }{
		"KeyWithoutToken":      {token(""), "concurrency_token is missing"},
		"TokenWithoutKey":      {key(""), "concurrency_token is given"},
		"NumericToken":         {replace(`"concurrency_token":"7"`, `"concurrency_token":7`), "must be a string"},
		"NullToken":            {replace(`"concurrency_token":"7"`, `"concurrency_token":null`), "null"},
		"ZeroToken":            {token("0"), "concurrency_token must be"},
		"LeadingZeroToken":     {token("007"), "concurrency_token must be"},
		"SignedToken":          {token("+7"), "concurrency_token must be"},
		"TokenBeyondUint64":    {token("18446744073709551616"), "concurrency_token must be"},
		"BlankInToken":         {token("7 "), "concurrency_token must be"},
		"ExponentToken":        {token("1e3"), "concurrency_token must be"},
		"KeyWithOuterBlank":    {key(" object"), "concurrency_key must not begin"}, // KEY-019: its rules are those of a submit
		"KeyWithEmSpace":       {key("object\u2003"), "concurrency_key must not begin"},
		"KeyWithControl":       {key("a\u0085b"), "concurrency_key must not contain"},
		"KeyTooLong":           {key(strings.Repeat("é", 192)), "concurrency_key must be at most 191"},
		"NullKey":              {replace(`"object/42"`, `null`), "null"},
		"UnknownHandler":       {edit(func(a *wire.Assign) { a.Task.Handler = "other" }), "handler"},
		"UnknownVersion":       {edit(func(a *wire.Assign) { a.Task.HandlerVersion = "v2" }), "handler"},
		"ForeignQueue":         {edit(func(a *wire.Assign) { a.Task.QueueID = id("a9") }), "queue_id"},
		"BadAttemptID":         {edit(func(a *wire.Assign) { a.AttemptID = "x" }), "attempt_id"},
		"BadTaskID":            {edit(func(a *wire.Assign) { a.Task.ID = strings.ToUpper(id("ab")) }), "task.id"},
		"MissingOperationRoot": {edit(func(a *wire.Assign) { a.OperationRoot = "" }), "operation_root"},
		"BadRetryOf":           {edit(func(a *wire.Assign) { a.Task.RetryOf = "7" }), "retry_of"},
		"BadTraceparent":       {edit(func(a *wire.Assign) { a.Traceparent = "00-x" }), "traceparent"},
		"ZeroEpoch":            {edit(func(a *wire.Assign) { a.Epoch = 0 }), "epoch"},
		"NullPayload":          {replace(`{"n":1}`, `null`), "null"},
		"MissingPayload":       {replace(`"payload":{"n":1},`, ``), "payload"},
		"UnknownField":         {replace(`"epoch":3`, `"epoch":3,"more":1`), "not a known field"},
		"DuplicateField":       {replace(`"epoch":3`, `"epoch":3,"epoch":4`), "duplicate"},
		"AliasOfField":         {replace(`"epoch":3`, `"Epoch":3`), "not a known field"},
		"NoData":               {`{}`, "attempt_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breaks(t, `{"type":"task.assign","data":`+c.data+`}`, c.rule)
		})
	}
	for name, c := range map[string]struct{ frame, rule string }{
		"NoJSON":         {`{"type":`, "cut off"},
		"TrailingData":   {`{"type":"drain.ok"} x`, "nothing after it"},
		"UnknownType":    {`{"type":"task.jump"}`, "type is unknown"},
		"AnIdentity":     {`{"type":"task.cancel","id":"s","data":{"attempt_id":"` + id("5") + `","epoch":1}}`, "id is not for"},
		"NoType":         {`{"ref":"1"}`, "type: is required"},
		"CancelOfNobody": {`{"type":"task.cancel","data":{"attempt_id":"5","epoch":1}}`, "attempt_id"},
		"ErrorNoCode":    {`{"type":"error","data":{"code":"","message":""}}`, "code must be"},
		"TooLarge":       {`{"type":"` + strings.Repeat("x", wire.MaxFrame) + `"}`, "at most 524288 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breaks(t, c.frame, c.rule)
		})
	}
}

// breaks sends a frame that the worker must refuse.
func breaks(t *testing.T, frame, rule string) {
	s := newTLSServer(t)
	h := run(t, s, worker.Config{}, nothing(t))
	v, _ := s.welcome()
	v.expectCredit()
	v.sendText(frame)
	told := reported[*worker.ProtocolError](h)
	if !strings.Contains(told.Rule, rule) {
		t.Errorf("the owner was told %q, want %q", told.Rule, rule)
	}
	want := wire.CloseProtocolError
	if strings.Contains(frame, strings.Repeat("x", 1000)) {
		want = websocket.CloseMessageTooBig // the library's own
	}
	if code := v.closeCode(); code != want {
		t.Errorf("close code = %d, want %d", code, want)
	}
	if kinds := v.rest(); len(kinds) > 0 {
		t.Errorf("the worker sent %q afterwards", kinds)
	}
	h.end()
}

// TOK-013, WRK-007: what a handler was given is never replaced.
func TestRepeatedDispatch(t *testing.T) {
	changes := map[string]func(*wire.Assign){
		"ChangedToken": func(a *wire.Assign) { a.ConcurrencyToken = "8" },
		"ChangedKey":   func(a *wire.Assign) { a.Task.ConcurrencyKey = "object/43" },
		"LostBoth":     func(a *wire.Assign) { a.Task.ConcurrencyKey, a.ConcurrencyToken = "", "" },
		"ChangedEpoch": func(a *wire.Assign) { a.Epoch++ },
		"ChangedTask":  func(a *wire.Assign) { a.Task.ID = id("77") },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTLSServer(t)
			finish := make(chan struct{})
			var calls atomic.Int32
			h := run(t, s, worker.Config{}, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
				calls.Add(1)
				<-finish
				if e.ConcurrencyToken != 7 || e.Task.ConcurrencyKey != "object/42" {
					t.Errorf("execution = %+v", e)
				}
				return nil, nil
			})
			v, _ := s.welcome()
			v.assign(offer("5"))
			v.start(15e9, 30e9)
			again := offer("5")
			change(&again)
			v.assign(again)
			if code := v.closeCode(); code != wire.CloseProtocolError {
				t.Errorf("close code = %d, want %d", code, wire.CloseProtocolError)
			}
			reported[*worker.ProtocolError](h)
			// The running handler is not touched and goes on elsewhere.
			v, _ = s.welcome(wire.Held{AttemptID: id("5"), Epoch: 3})
			v.resume(wire.Resumed{Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: 30_000})
			close(finish)
			v.finish()
			h.stop()
			v.drained()
			h.end()
			if calls.Load() != 1 {
				t.Errorf("the handler was called %d times", calls.Load())
			}
		})
	}
	t.Run("Unchanged", func(t *testing.T) {
		s := newTLSServer(t)
		finish := make(chan struct{})
		var calls atomic.Int32
		h := run(t, s, worker.Config{}, func(context.Context, worker.Execution) (json.RawMessage, error) {
			calls.Add(1)
			<-finish
			return nil, nil
		})
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15e9, 30e9)
		again := offer("5")
		again.LeaseMS, again.Task.DeadlineMS = 1000, 5000 // durations shrink with time
		v.assign(again)
		close(finish)
		v.finish()
		h.stop()
		v.drained()
		h.end()
		if calls.Load() != 1 {
			t.Errorf("the handler was called %d times", calls.Load())
		}
	})
}

// An answer for another attempt must not authorise this one.
func TestAnswerForAnotherAttemptBreaksTheProtocol(t *testing.T) {
	for name, wrong := range map[string]wire.Started{
		"Attempt": {AttemptID: id("6"), Epoch: 3, LeaseMS: 15_000, TimeoutMS: 30_000},
		"Epoch":   {AttemptID: id("5"), Epoch: 4, LeaseMS: 15_000, TimeoutMS: 30_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTLSServer(t)
			h := run(t, s, worker.Config{}, nothing(t))
			v, _ := s.welcome()
			v.assign(offer("5"))
			v.send(wire.TypeStarted, v.expect(wire.TypeStart).ID, wrong)
			if code := v.closeCode(); code != wire.CloseProtocolError {
				t.Errorf("close code = %d", code)
			}
			reported[*worker.ProtocolError](h)
			v, _ = s.welcome()
			v.resume(wire.Resumed{Status: wire.ResumeKeep})
			v.send(wire.TypeError, v.expect(wire.TypeStart).ID, wire.Error{Code: "STATE_CONFLICT", Message: "cancelled"})
			h.stop()
			v.drained()
			h.end()
		})
	}
}

// AMB-036, WRK-022.
func TestPlainHTTPIsForLoopbackOnly(t *testing.T) {
	cfg := worker.Config{Queues: []string{queueID}, Handlers: map[worker.Handler]worker.HandlerFunc{update: succeed}}
	for url, want := range map[string]string{
		"https://orbit.example:8443":             "",
		"wss://orbit.example/base/":              "",
		"http://127.0.0.1:8080":                  "",
		"http://[::1]:8080":                      "",
		"ws://localhost":                         "",
		"http://127.0.0.1.evil.example":          "only for loopback",
		"http://10.0.0.1":                        "only for loopback",
		"ws://orbit.example":                     "only for loopback",
		"ftp://orbit.example":                    "scheme",
		"orbit.example:8080":                     "must be like",
		"":                                       "must be like",
		"https://user:hunter2@orbit.example":     "no user",
		"https://orbit.example?token=hunter2":    "no user",
		"https://user:hunter2@orbit.example:%zz": "must be like",
	} {
		_, err := worker.NewWorker(url, "t", cfg)
		switch {
		case want == "" && err != nil:
			t.Errorf("NewWorker(%q) = %v", url, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("NewWorker(%q) = %v, want %q", url, err, want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("NewWorker(%q) tells the password: %v", url, err)
		}
	}
	cfg.Network.AllowInsecure = true
	if _, err := worker.NewWorker("http://10.0.0.1", "t", cfg); err != nil {
		t.Errorf("with AllowInsecure: %v", err)
	}
}

func TestNewWorkerNamesTheWrongField(t *testing.T) {
	good := func() worker.Config {
		return worker.Config{Queues: []string{queueID}, Handlers: map[worker.Handler]worker.HandlerFunc{update: succeed}}
	}
	for want, change := range map[string]func(*worker.Config){
		"Queues: must name":             func(c *worker.Config) { c.Queues = nil },
		"Queues: must name 1 to 200":    func(c *worker.Config) { c.Queues = make([]string, 201) },
		"must not be named twice":       func(c *worker.Config) { c.Queues = []string{queueID, queueID} },
		"times 101 queues":              manyPairs,
		"Queues: \"AB\"":                func(c *worker.Config) { c.Queues = []string{"AB"} },
		"Handlers: must name":           func(c *worker.Config) { c.Handlers = nil },
		"the function must not be nil":  func(c *worker.Config) { c.Handlers[update] = nil },
		"name must be":                  func(c *worker.Config) { c.Handlers[worker.Handler{Name: "-a", Version: "1"}] = succeed },
		"version must be":               func(c *worker.Config) { c.Handlers[worker.Handler{Name: "a", Version: "1 2"}] = succeed },
		"Capacity: -1":                  func(c *worker.Config) { c.Capacity = -1 },
		"Capacity: 1001":                func(c *worker.Config) { c.Capacity = 1001 },
		"DrainTimeout: -1s":             func(c *worker.Config) { c.DrainTimeout = -1e9 },
		"StopTimeout: -1s":              func(c *worker.Config) { c.StopTimeout = -1e9 },
		"MaxReconnect: 1s must not be":  func(c *worker.Config) { c.MinReconnect, c.MaxReconnect = 2e9, 1e9 },
		"Network.HandshakeTimeout: -1s": func(c *worker.Config) { c.Network.HandshakeTimeout = -1e9 },
		"Network.WriteTimeout: -1s":     func(c *worker.Config) { c.Network.WriteTimeout = -1e9 },
	} {
		cfg := good()
		change(&cfg)
		if _, err := worker.NewWorker("https://orbit.example", "t", cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewWorker = %v, want %q", err, want)
		}
	}
	for _, token := range []string{"", "a b", "tök", "a\n", strings.Repeat("x", 5000)} {
		_, err := worker.NewWorker("https://orbit.example", token, good())
		if err == nil || !strings.Contains(err.Error(), "token: must be") || token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("token %.10q: %v", token, err)
		}
	}
}

func manyPairs(c *worker.Config) {
	for i := range 100 {
		c.Queues = append(c.Queues, id(fmt.Sprintf("f%04x", i)))
	}
	for i := range 20 {
		c.Handlers[worker.Handler{Name: "h", Version: fmt.Sprint(i)}] = succeed
	}
}

func TestWorkerRefusesAServerOfAnotherAuthority(t *testing.T) {
	s := newTLSServer(t)
	_, err := worker.Dial(t.Context(), s.url(), "secret-token", registration(), worker.Network{})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Dial = %v, want a certificate error", err)
	}
	if s.count() != 0 {
		t.Error("the token was sent to a server that is not trusted")
	}
}

func TestServerWithoutTheSubprotocolIsRefused(t *testing.T) {
	s := newServer(t, workertest.ListenerConfig{NoSubprotocol: true})
	_, err := worker.Dial(t.Context(), s.url(), "secret-token", registration(), s.network())
	if broke := (*worker.ProtocolError)(nil); !errors.As(err, &broke) || !strings.Contains(broke.Rule, "subprotocol") {
		t.Errorf("Dial = %v, want a ProtocolError of the subprotocol", err)
	}
	if code := s.visit().closeCode(); code != wire.CloseProtocolError {
		t.Errorf("close code = %d", code)
	}
}

func TestHandshakeErrorsTellWhatTheServerSaid(t *testing.T) {
	s := newTLSServer(t)
	s.refuse(http.StatusUnauthorized, http.Header{"Retry-After": {"7"}})
	_, err := worker.Dial(t.Context(), s.url(), "secret-token", registration(), s.network())
	var refused *worker.HandshakeError
	if !errors.As(err, &refused) || refused.Status != 401 || refused.Code != "UNAUTHENTICATED" ||
		refused.RequestID != id("4e9") || refused.RetryAfter.Seconds() != 7 {
		t.Fatalf("Dial = %#v", err)
	}
	if strings.Contains(err.Error(), "secret-token") {
		t.Errorf("the error tells the token: %v", err)
	}
}

package session_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/session"
)

func TestWorkerRunsATaskOverARealConnection(t *testing.T) { // REF-WRK-005, WRK-019, TOK-014
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.w.SetKeyVersion(s.w.Namespace, "object/42", 1<<53)
		x := spec{Queue: q, Payload: `{ "amount": 1.50, "text": "<&>" }`, Key: "object/42", Priority: 2}
		id := s.submit(x)
		c := s.n.connect(s.T, s.worker())
		ok := c.hello(helloFor(4, q))
		if ok.NodeID != "node-a" || ok.LeaseMS != 15000 || ok.PingMS != 15000 || ok.MaxFrame != wire.MaxFrame || len(ok.Attempts) != 0 {
			s.Errorf("hello.ok = %+v", ok)
		}
		c.say(wire.TypeCredit, wire.Credit{Slots: 4})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		if a.Task.ID != id.String() || string(a.Task.Payload) != x.Payload || a.ConcurrencyToken != "9007199254740993" || // TOK-014
			a.Task.ConcurrencyKey != "object/42" || a.Task.Priority != 2 || a.OperationRoot != id.String() || a.Epoch != 1 ||
			a.Task.AttemptNumber != 1 || a.Task.NamespaceID != s.w.Namespace.String() || a.Task.QueueID != q.String() ||
			a.Task.RecoverySafety != "RECONCILE_ONLY" || a.LeaseMS == 0 || a.LeaseMS > 15000 || a.Task.DeadlineMS == 0 {
			s.Errorf("task.assign = %+v", a)
		}
		if got := c.start(a); got.AttemptID != a.AttemptID || got.LeaseMS == 0 || got.TimeoutMS == 0 || got.TimeoutMS > 30000 {
			s.Errorf("task.started = %+v", got)
		}
		if got := s.w.Task(id); got.State != "RUNNING" {
			s.Errorf("task = %+v, want it running", got)
		}
		renewed := want[wire.Renewed](c, wire.TypeRenewed, c.say(wire.TypeRenew, wire.Renew{AttemptID: a.AttemptID, Epoch: 1, Progress: "half"}))
		if renewed.LeaseMS == 0 || renewed.CancelRequested {
			s.Errorf("task.renewed = %+v", renewed)
		}
		for range 2 { // the second is a repeat
			if got := c.finish(a); got.Status != wire.FinishRecorded || got.TaskState != "SUCCEEDED" {
				s.Errorf("task.finished = %+v", got)
			}
		}
		if got := s.w.Task(id); got.State != "SUCCEEDED" {
			s.Errorf("task = %+v, want it succeeded", got)
		}
		var result []byte
		s.w.DB.Read().QueryRow("SELECT result FROM task WHERE id = ?", id).Scan(&result)
		if string(result) != `{"n":1.50}` {
			s.Errorf("result = %s", result)
		}
	})
}

func TestNoMoreIsAssignedThanCreditAndCapacityAllow(t *testing.T) { // WRK-017
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		for range 10 {
			s.submit(spec{Queue: q})
		}
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(5, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 2})
		first := want[wire.Assign](c, wire.TypeAssign, "")
		want[wire.Assign](c, wire.TypeAssign, "")
		s.until("credit is used up", func() bool { return s.w.Int("SELECT COUNT(*) FROM attempt") == 2 })
		c.say(wire.TypeCredit, wire.Credit{Slots: 100})
		for range 3 {
			want[wire.Assign](c, wire.TypeAssign, "")
		}
		c.start(first)
		c.finish(first)
		want[wire.Assign](c, wire.TypeAssign, "") // room for one more
		c.silence()
		if n := s.w.Int("SELECT COUNT(*) FROM attempt"); n != 6 {
			s.Errorf("%d attempts were made, want 6: capacity and the one that ended", n)
		}
	})
}

func TestRepeatedMessagesGetTheStoredAnswerOnAnyNode(t *testing.T) { // WRK-012, WRK-014, WRK-015
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.submit(spec{Queue: q, Key: "object"})
		other := s.newNode(s.db.Reopen(s.T).DB, session.Config{Node: "node-b"})
		token, h := s.worker(), helloFor(1, q)
		c := s.n.connect(s.T, token)
		c.hello(h)
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(a)
		c.ws.Close() // the answer might as well have been lost
		c = other.connect(s.T, token)
		ok := c.hello(h)
		if len(ok.Attempts) != 1 || ok.Attempts[0].AttemptID != a.AttemptID || ok.Attempts[0].Epoch != a.Epoch || ok.NodeID != "node-b" {
			s.Errorf("hello.ok = %+v, want the attempt that the process holds", ok)
		}
		if got := c.start(a); got.LeaseMS == 0 {
			s.Errorf("repeated start = %+v", got)
		}
		resumed := want[wire.Resumed](c, wire.TypeResumed, c.say(wire.TypeResume, wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch}))
		if resumed.Status != wire.ResumeKeep || !resumed.Running || resumed.TimeoutMS == 0 {
			s.Errorf("task.resumed = %+v", resumed)
		}
		first := c.finish(a)
		if again := c.finish(a); again != first {
			s.Errorf("repeated finish = %+v, want %+v", again, first)
		}
		if n := s.w.Int("SELECT started_count FROM task"); n != 1 {
			s.Errorf("the task was started %d times, want once", n)
		}
	})
}

func TestNewConnectionOfAProcessTakesOverAtOnce(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		token, h := s.worker(), helloFor(1, q)
		old := s.n.connect(s.T, token)
		old.hello(h)
		old.say(wire.TypeCredit, wire.Credit{Slots: 1})
		c := s.n.connect(s.T, token)
		c.hello(h)
		if code, _ := old.closed(); code != wire.CloseReplaced {
			s.Errorf("old connection was closed with %d, want %d", code, wire.CloseReplaced)
		}
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		s.submit(spec{Queue: q}, s.n)
		want[wire.Assign](c, wire.TypeAssign, "")
	})
}

func TestConnectionToAnotherNodeEndsTheOldOne(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		a := s.newNode(s.db.Reopen(s.T).DB, session.Config{Node: "node-x", Recheck: 50 * time.Millisecond})
		token, h := s.worker(), helloFor(1, q)
		old := a.connect(s.T, token)
		old.hello(h)
		c := s.n.connect(s.T, token)
		c.hello(h)
		if code, _ := old.closed(); code != wire.CloseReplaced {
			s.Errorf("old connection was closed with %d, want %d", code, wire.CloseReplaced)
		}
	})
}

func TestARegistrationCannotChange(t *testing.T) { // WRK-002, WRK-003, WRK-008, TEST-003
	run(t, func(s scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		token := s.worker()
		h := helloFor(2, q, r)
		h.ConcurrencyKeys = false
		h.Handlers = append(h.Handlers, wire.Handler{Name: "a", Version: "v2"})
		s.n.connect(s.T, token).hello(h)
		same := h
		same.Queues = []string{h.Queues[1], h.Queues[0]}
		same.Handlers = []wire.Handler{h.Handlers[1], h.Handlers[0]}
		s.n.connect(s.T, token).hello(same) // the order is no property
		for _, change := range []func(*wire.Hello){
			func(h *wire.Hello) { h.ConcurrencyKeys = true },
			func(h *wire.Hello) { h.Capacity++ },
			func(h *wire.Hello) { h.Queues = h.Queues[:1] },
			func(h *wire.Hello) { h.Handlers = h.Handlers[:1] },
		} {
			changed := h
			change(&changed)
			c := s.n.connect(s.T, token)
			id := c.say(wire.TypeHello, changed)
			if e := want[wire.Error](c, wire.TypeError, id); e.Code != "STATE_CONFLICT" {
				s.Errorf("changed hello %+v = %+v, want STATE_CONFLICT", changed, e)
			}
			c.closed()
		}
		s.n.connect(s.T, token).hello(h) // the first one is still good
	})
}

func TestWorkerWithoutSupportForKeysGetsNoKeyedTask(t *testing.T) { // TEST-001, WRK-004
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		keyed := s.submit(spec{Queue: q, Key: "object", Priority: 9})
		plain := s.submit(spec{Queue: q})
		c := s.n.connect(s.T, s.worker())
		h := helloFor(4, q)
		h.ConcurrencyKeys = false
		c.hello(h)
		c.say(wire.TypeCredit, wire.Credit{Slots: 4})
		if a := want[wire.Assign](c, wire.TypeAssign, ""); a.Task.ID != plain.String() || a.ConcurrencyToken != "" {
			s.Errorf("task.assign = %+v, want the keyless task without a token", a)
		}
		c.silence()
		if got := s.w.Task(keyed); got.Attempts != 0 {
			s.Errorf("keyed task = %+v, want no attempt", got)
		}
	})
}

func TestRequestsThatMayNotConnectAreRefused(t *testing.T) {
	run(t, func(s scene) {
		good := s.worker()
		cases := []struct {
			name, token string
			header      http.Header
			protocols   []string
			status      int
			code        string
		}{
			{"no credential", "", nil, []string{wire.Protocol}, 401, "UNAUTHENTICATED"},
			{"unknown credential", "orbit_nonsense", nil, []string{wire.Protocol}, 401, "UNAUTHENTICATED"},
			{"no permission", s.token([]string{auth.WorkersConsume}), nil, []string{wire.Protocol}, 403, "PERMISSION_DENIED"},
			{"a browser", good, http.Header{"Origin": {"https://example.com"}}, []string{wire.Protocol}, 403, "PERMISSION_DENIED"},
			{"no subprotocol", good, nil, nil, 400, "INVALID_ARGUMENT"},
			{"another subprotocol", good, nil, []string{"orbit.worker.v2"}, 400, "INVALID_ARGUMENT"},
		}
		for _, c := range cases {
			_, resp, err := s.n.dial(c.token, c.header, c.protocols...)
			if err == nil || resp == nil {
				s.Errorf("%s: connected, %v", c.name, err)
				continue
			}
			var body struct {
				RequestID string `json:"request_id"`
				Error     struct{ Code, Message string }
			}
			json.NewDecoder(resp.Body).Decode(&body)
			if resp.StatusCode != c.status || body.Error.Code != c.code || body.RequestID != resp.Header.Get("X-Request-ID") || body.RequestID == "" {
				s.Errorf("%s: %d %+v, want %d %s", c.name, resp.StatusCode, body, c.status, c.code)
			}
		}
		req, _ := http.NewRequest("GET", s.n.srv.URL+wire.Path, nil)
		req.Header.Set("Authorization", "Bearer "+good)
		resp, err := s.n.srv.Client().Do(req)
		if err != nil || resp.StatusCode != 400 {
			s.Errorf("plain GET = %v, %v; want 400", resp, err)
		}
		resp.Body.Close()
	})
}

func TestHelloIsHeldToTheCredentialAndTheRules(t *testing.T) { // WRK-027, WRK-028
	run(t, func(s scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		foreign := s.w.NewQueueIn(s.w.NewNamespace("other"), "f")
		scoped := s.token([]string{auth.WorkersConnect, auth.WorkersConsume}, q)
		cases := []struct {
			name, token string
			change      func(*wire.Hello)
			code        string
		}{
			{"no permission to consume", s.token([]string{auth.WorkersConnect}), nil, "PERMISSION_DENIED"},
			{"queue out of scope", scoped, func(h *wire.Hello) { h.Queues = []string{r.String()} }, "PERMISSION_DENIED"},
			{"no queue, restricted", scoped, func(h *wire.Hello) { h.Queues = []string{sqldb.NewID().String()} }, "PERMISSION_DENIED"},
			{"no queue", s.worker(), func(h *wire.Hello) { h.Queues = []string{sqldb.NewID().String()} }, "NOT_FOUND"},
			{"queue of another namespace", s.worker(), func(h *wire.Hello) { h.Queues = []string{foreign.String()} }, "NOT_FOUND"},
			{"process id", s.worker(), func(h *wire.Hello) { h.ProcessID = strings.ToUpper(h.ProcessID) }, "INVALID_ARGUMENT"},
			{"capacity", s.worker(), func(h *wire.Hello) { h.Capacity = 0 }, "INVALID_ARGUMENT"},
			{"capacity too large", s.worker(), func(h *wire.Hello) { h.Capacity = 1001 }, "INVALID_ARGUMENT"},
			{"no handler", s.worker(), func(h *wire.Hello) { h.Handlers = nil }, "INVALID_ARGUMENT"},
			{"handler name", s.worker(), func(h *wire.Hello) { h.Handlers[0].Name = "a b" }, "INVALID_ARGUMENT"},
			{"handler twice", s.worker(), func(h *wire.Hello) { h.Handlers = append(h.Handlers, h.Handlers[0]) }, "INVALID_ARGUMENT"},
			{"queue twice", s.worker(), func(h *wire.Hello) { h.Queues = append(h.Queues, h.Queues[0]) }, "INVALID_ARGUMENT"},
			{"queue id", s.worker(), func(h *wire.Hello) { h.Queues = []string{"q"} }, "INVALID_ARGUMENT"},
		}
		for _, c := range cases {
			h := helloFor(1, q)
			if c.change != nil {
				c.change(&h)
			}
			conn := s.n.connect(s.T, c.token)
			id := conn.say(wire.TypeHello, h)
			if e := want[wire.Error](conn, wire.TypeError, id); e.Code != c.code || e.Message == "" {
				s.Errorf("%s: %+v, want %s", c.name, e, c.code)
			}
			conn.closed()
		}
		s.n.connect(s.T, scoped).hello(helloFor(1, q))
		if n := s.w.Int("SELECT COUNT(*) FROM worker_session"); n != 1 {
			s.Errorf("%d sessions were stored, want only that of the good hello", n)
		}
	})
}

func TestBadFramesEndTheConnection(t *testing.T) { // REF-WRK-002, WRK-009
	id := sqldb.NewID().String()
	frames := map[string]string{
		"no JSON":          `hello`,
		"an array":         `[]`,
		"unknown member":   `{"type":"credit","id":"9","data":{"slots":1},"more":1}`,
		"case alias":       `{"Type":"credit","id":"9","data":{"slots":1}}`,
		"duplicate":        `{"type":"credit","id":"9","id":"9","data":{"slots":1}}`,
		"bad UTF-8":        "{\"type\":\"cre\xffdit\",\"id\":\"9\"}",
		"no id":            `{"type":"credit","data":{"slots":1}}`,
		"long id":          `{"type":"credit","id":"` + strings.Repeat("i", 65) + `","data":{"slots":1}}`,
		"a ref":            `{"type":"credit","id":"9","ref":"1","data":{"slots":1}}`,
		"unknown type":     `{"type":"task.assign","id":"9","data":{}}`,
		"second hello":     `{"type":"hello","id":"9","data":{}}`,
		"null data":        `{"type":"drain","id":"9","data":null}`,
		"unknown field":    `{"type":"credit","id":"9","data":{"slots":1,"x":2}}`,
		"fraction":         `{"type":"credit","id":"9","data":{"slots":1.5}}`,
		"negative credit":  `{"type":"credit","id":"9","data":{"slots":-1}}`,
		"too much credit":  `{"type":"credit","id":"9","data":{"slots":1001}}`,
		"attempt id":       `{"type":"task.start","id":"9","data":{"attempt_id":"x","epoch":1}}`,
		"no epoch":         `{"type":"task.start","id":"9","data":{"attempt_id":"` + id + `"}}`,
		"huge epoch":       `{"type":"task.start","id":"9","data":{"attempt_id":"` + id + `","epoch":18446744073709551615}}`,
		"deep result":      `{"type":"task.finish","id":"9","data":{"attempt_id":"` + id + `","epoch":1,"receipt":"r","outcome":"SUCCEEDED","result":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}}`,
		"too large":        `{"type":"task.renew","id":"9","data":{"progress":"` + strings.Repeat("p", wire.MaxFrame) + `"}}`,
		"trailing garbage": `{"type":"drain","id":"9","data":{}} {}`,
	}
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		token := s.worker()
		for name, text := range frames {
			c := s.n.connect(s.T, token)
			c.hello(helloFor(1, q))
			c.raw(text)
			code, said := c.closed()
			if code != wire.CloseProtocolError && !(name == "too large" && code == websocket.CloseMessageTooBig) || name != "too large" && said.Code != "INVALID_ARGUMENT" {
				s.Errorf("%s: closed with %d after %+v, want %d", name, code, said, wire.CloseProtocolError)
			}
		}
		c := s.n.connect(s.T, token)
		c.hello(helloFor(1, q))
		c.ws.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"drain","id":"1","data":{}}`))
		if code, _ := c.closed(); code != wire.CloseProtocolError {
			s.Errorf("binary frame: closed with %d", code)
		}
		c = s.n.connect(s.T, token)
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		if code, _ := c.closed(); code != wire.CloseProtocolError {
			s.Errorf("credit before hello: closed with %d", code)
		}
	})
}

func TestContentThatBreaksARuleIsRefusedAndTheConnectionGoesOn(t *testing.T) { // LIMIT-019
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.submit(spec{Queue: q})
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(1, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(a)
		for name, change := range map[string]func(*wire.Finish){
			"receipt":   func(f *wire.Finish) { f.Receipt = "a b" },
			"outcome":   func(f *wire.Finish) { f.Outcome = "DONE" },
			"retryable": func(f *wire.Finish) { f.Retryable = true },
			"result":    func(f *wire.Finish) { f.Outcome = wire.OutcomeFailed },
			"result ":   func(f *wire.Finish) { f.Result = json.RawMessage(`"` + strings.Repeat("x", wire.MaxResult) + `"`) },
			"error":     func(f *wire.Finish) { f.Error = strings.Repeat("x", wire.MaxError+1) },
		} {
			f := finishOf(a)
			change(&f)
			e := want[wire.Error](c, wire.TypeError, c.say(wire.TypeFinish, f))
			if e.Code != "INVALID_ARGUMENT" || !strings.HasPrefix(e.Message, strings.TrimSpace(name)+":") || e.AttemptID != a.AttemptID {
				s.Errorf("%s: %+v", name, e)
			}
		}
		e := want[wire.Error](c, wire.TypeError, c.say(wire.TypeRenew, wire.Renew{AttemptID: a.AttemptID, Epoch: 1, Progress: strings.Repeat("p", wire.MaxProgress+1)}))
		if e.Code != "INVALID_ARGUMENT" {
			s.Errorf("progress: %+v", e)
		}
		if got := c.finish(a); got.Status != wire.FinishRecorded {
			s.Errorf("the finish after them = %+v", got)
		}
	})
}

func TestMessagesAboutAttemptsOfOthersAreRefused(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.submit(spec{Queue: q})
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(1, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		other := s.n.connect(s.T, s.worker())
		other.hello(helloFor(1, q))
		e := want[wire.Error](other, wire.TypeError, other.say(wire.TypeStart, wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch}))
		if e.Code != "NOT_FOUND" || e.AttemptID != a.AttemptID {
			s.Errorf("start by another process = %+v, want NOT_FOUND", e)
		}
		c.start(a)
	})
}

func TestCancelIntentReachesTheWorker(t *testing.T) { // CAN-023, REF-CAN-002
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.submit(spec{Queue: q})
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(1, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(a)
		s.w.Exec("UPDATE task SET cancel_requested_at = ?", s.w.Now())
		s.n.hub.Cancel(s.attempt(a), 1, "replaced")
		if got := want[wire.Cancel](c, wire.TypeCancel, ""); got.AttemptID != a.AttemptID || got.Reason != "replaced" {
			s.Errorf("task.cancel = %+v", got)
		}
		if got := want[wire.Renewed](c, wire.TypeRenewed, c.say(wire.TypeRenew, wire.Renew{AttemptID: a.AttemptID, Epoch: 1})); !got.CancelRequested {
			s.Errorf("task.renewed = %+v, want the intent", got)
		}
		f := finishOf(a)
		f.Outcome, f.Result = wire.OutcomeCancelled, nil
		if got := want[wire.Finished](c, wire.TypeFinished, c.say(wire.TypeFinish, f)); got.TaskState != "CANCELLED" {
			s.Errorf("task.finished = %+v", got)
		}
	})
}

func TestReturnedAssignmentGoesToAnother(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		id := s.submit(spec{Queue: q, Key: "object"})
		token := s.worker()
		c := s.n.connect(s.T, token)
		c.hello(helloFor(1, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		want[wire.Returned](c, wire.TypeReturned, c.say(wire.TypeReturn, wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch}))
		other := s.n.connect(s.T, token)
		other.hello(helloFor(1, q))
		other.say(wire.TypeCredit, wire.Credit{Slots: 1})
		if b := want[wire.Assign](other, wire.TypeAssign, ""); b.Task.ID != id.String() || b.ConcurrencyToken != "3" {
			s.Errorf("task.assign = %+v, want the same task with token 3", b)
		}
	})
}

func TestDrainedWorkerGetsNothingMore(t *testing.T) { // WRK-018
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		c := s.n.connect(s.T, s.worker())
		h := helloFor(2, q)
		c.hello(h)
		c.say(wire.TypeCredit, wire.Credit{Slots: 2})
		id := s.submit(spec{Queue: q}, s.n)
		a := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(a)
		want[struct{}](c, wire.TypeDrainOK, c.say(wire.TypeDrain, struct{}{}))
		next := s.submit(spec{Queue: q}, s.n)
		c.finish(a)
		c.say(wire.TypeCredit, wire.Credit{Slots: 2})
		c.silence()
		if got := s.w.Task(id); got.State != "SUCCEEDED" {
			s.Errorf("task = %+v, want what ran to be finished", got)
		}
		if got := s.w.Task(next); got.Attempts != 0 {
			s.Errorf("task = %+v, want it not claimed for a drained worker", got)
		}
		s.until("drained_at is noted", func() bool {
			return s.w.Int("SELECT COUNT(*) FROM worker_session WHERE drained_at IS NOT NULL") == 1
		})
	})
}

func TestStoppingNodeSendsItsWorkersElsewhere(t *testing.T) { // CLI-018
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		n := s.newNode(s.db.DB, session.Config{Node: "node-s", DrainTimeout: 500 * time.Millisecond})
		s.submit(spec{Queue: q, Key: "object"}, n)
		c := n.connect(s.T, s.worker())
		c.hello(helloFor(2, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 2})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(a)
		done := make(chan error, 1)
		go func() { done <- n.stop() }()
		if got := want[wire.ServerDraining](c, wire.TypeServerDraining, ""); got.RetryAfterMS == 0 {
			s.Errorf("server.draining = %+v", got)
		}
		waiting := s.submit(spec{Queue: q}, n)
		if got := want[wire.Renewed](c, wire.TypeRenewed, c.say(wire.TypeRenew, wire.Renew{AttemptID: a.AttemptID, Epoch: 1})); got.LeaseMS == 0 {
			s.Errorf("renewal while draining = %+v, want it granted", got)
		}
		if code, _ := c.closed(); code != websocket.CloseGoingAway {
			s.Errorf("closed with %d, want %d", code, websocket.CloseGoingAway)
		}
		if err := <-done; err != nil {
			s.Errorf("Run = %v, want nil", err)
		}
		if got := s.w.Task(waiting); got.Attempts != 0 {
			s.Errorf("task = %+v, want no claim while draining", got)
		}
		if n := s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); n != 1 { // permits end by lease
			s.Errorf("%d live attempts, want the one that runs", n)
		}
	})
}

func TestRevokedCredentialEndsItsConnections(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		n := s.newNode(s.db.DB, session.Config{Node: "node-r", Recheck: 50 * time.Millisecond})
		for name, change := range map[string]string{
			"revoked":         "UPDATE credential SET revoked_at = 1",
			"lost permission": "UPDATE credential SET permissions = x'7461736b733a72656164'", // tasks:read
			"lost a queue":    "UPDATE credential SET all_queues = 0",
		} {
			c := n.connect(s.T, s.worker())
			c.hello(helloFor(1, q))
			s.w.Exec(change)
			if code, _ := c.closed(); code != wire.CloseUnauthenticated {
				s.Errorf("%s: closed with %d, want %d", name, code, wire.CloseUnauthenticated)
			}
		}
	})
}

// ERR-002: with the commit that ends a credential nothing is assigned to its workers any
// more and nothing begins, before anybody has looked at the connections.
func TestNothingBeginsWithAnEndedCredential(t *testing.T) {
	run(t, func(s scene) {
		n := s.newNode(s.db.DB, session.Config{Node: "node-e", Recheck: time.Hour, EndCheck: time.Hour})
		for name, change := range map[string]string{
			"revoked": "UPDATE credential SET revoked_at = 1",
			"expired": "UPDATE credential SET expires_at = 1",
		} {
			q := s.w.NewQueue(name)
			leased := s.submit(spec{Queue: q}, n)
			c := n.connect(s.T, s.worker())
			c.hello(helloFor(2, q))
			c.say(wire.TypeCredit, wire.Credit{Slots: 1})
			a := want[wire.Assign](c, wire.TypeAssign, "")
			s.w.Exec(change)
			id := c.say(wire.TypeStart, wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch})
			if e := want[wire.Error](c, wire.TypeError, id); e.Code != orbit.CodeUnauthenticated {
				s.Errorf("%s: start refused with %+v", name, e)
			}
			c.say(wire.TypeCredit, wire.Credit{Slots: 2})
			other := s.submit(spec{Queue: q}, n)
			if code, _ := c.closed(); code != wire.CloseUnauthenticated {
				s.Errorf("%s: closed with %d, want %d and no assignment", name, code, wire.CloseUnauthenticated)
			}
			if got := s.w.Task(leased); got.State != orbit.StateLeased {
				s.Errorf("%s: task is %v, want it LEASED until its lease ends", name, got.State)
			}
			if got := s.w.Task(other); got.Attempts != 0 {
				s.Errorf("%s: %d attempts of a task after the end, want 0", name, got.Attempts)
			}
			s.w.Exec("UPDATE credential SET revoked_at = NULL, expires_at = NULL")
		}
	})
}

// ERR-002: idle connections of an ended credential end too, soon.
func TestConnectionsOfAnEndedCredentialEndSoon(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		n := s.newNode(s.db.DB, session.Config{Node: "node-e", Recheck: time.Hour, EndCheck: 20 * time.Millisecond})
		for name, change := range map[string]string{
			"revoked":              "UPDATE credential SET revoked_at = 1",
			"expired":              "UPDATE credential SET expires_at = 1",
			"namespace disabled":   "UPDATE namespace SET state = 2",
			"application disabled": "UPDATE application SET state = 2",
		} {
			c := n.connect(s.T, s.worker())
			c.hello(helloFor(1, q))
			s.w.Exec(change)
			if code, _ := c.closed(); code != wire.CloseUnauthenticated {
				s.Errorf("%s: closed with %d, want %d", name, code, wire.CloseUnauthenticated)
			}
			s.w.Exec("UPDATE credential SET revoked_at = NULL, expires_at = NULL")
			s.w.Exec("UPDATE namespace SET state = 1")
			s.w.Exec("UPDATE application SET state = 1")
		}
	})
}

func TestTaskAcceptedOnAnotherNodeIsFound(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(1, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		s.until("the lane is known to be empty", func() bool { return s.n.hub.HotLanes() == 0 })
		s.submit(spec{Queue: q}) // nobody here is told
		want[wire.Assign](c, wire.TypeAssign, "")
	})
}

func TestPausedQueueGivesNothingUntilItGoesOn(t *testing.T) { // LIC-017
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.submit(spec{Queue: q})
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(2, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 2})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		s.w.Exec("UPDATE queue SET paused = 1")
		s.submit(spec{Queue: q}, s.n)
		c.start(a)
		c.finish(a) // what is in flight goes on
		s.w.Exec("UPDATE queue SET paused = 0")
		want[wire.Assign](c, wire.TypeAssign, "")
	})
}

func TestQueueLimitLetsTheNextGoWhenOneEnds(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		s.w.Exec("UPDATE queue SET max_concurrency = 1")
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(3, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 100})
		for range 5 {
			s.submit(spec{Queue: q}, s.n)
		}
		for range 5 {
			a := want[wire.Assign](c, wire.TypeAssign, "")
			if n := s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); n != 1 {
				s.Errorf("%d live attempts, want 1", n)
			}
			c.start(a)
			c.finish(a)
			c.say(wire.TypeCredit, wire.Credit{Slots: 100})
		}
	})
}

func TestLargePayloadsReachAWorkerOfManySlots(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		payload := `"` + strings.Repeat("x", 256<<10-2) + `"`
		for range 12 {
			s.submit(spec{Queue: q, Payload: payload})
		}
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(100, q))
		c.say(wire.TypeCredit, wire.Credit{Slots: 100})
		for i := range 12 {
			if a := want[wire.Assign](c, wire.TypeAssign, ""); len(a.Task.Payload) != len(payload) {
				s.Fatalf("assignment %d has a payload of %d bytes", i, len(a.Task.Payload))
			}
		}
		if n := s.w.Int("SELECT COUNT(*) FROM attempt"); n != 12 {
			s.Errorf("%d attempts for 12 tasks: some were handed back", n)
		}
	})
}

// Many workers on two nodes, each with a few messages under way: every task runs once.
func TestManyWorkersOnTwoNodes(t *testing.T) {
	const tasks, workers = 200, 6
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		nodes := []*node{s.n, s.newNode(s.db.Reopen(s.T).DB, session.Config{Node: "node-b"})}
		token := s.worker()
		for i := range tasks {
			s.submit(spec{Queue: q, Key: []string{"", fmt.Sprintf("key-%d", i%17)}[i%2]})
		}
		var clients []*client
		for i := range workers {
			c := nodes[i%2].connect(s.T, token)
			c.hello(helloFor(4, q))
			clients = append(clients, c)
		}
		done := make(chan error, workers)
		for _, c := range clients {
			go func() { done <- c.work() }()
		}
		s.until("all tasks succeed", func() bool { return s.w.Int("SELECT COUNT(*) FROM task WHERE state = 5") == tasks })
		for _, c := range clients {
			c.ws.Close()
		}
		for range clients {
			if err := <-done; err != nil {
				s.Error(err)
			}
		}
		if n := s.w.Int("SELECT COUNT(*) FROM attempt"); n != tasks {
			s.Errorf("%d attempts for %d tasks", n, tasks)
		}
	})
}

// work does what it is assigned until the connection ends.
func (c *client) work() error {
	send := func(kind string, data any) error {
		c.last++
		body, _ := json.Marshal(data)
		return c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":%q,"id":"%d","data":%s}`, kind, c.last, body))
	}
	assigned := map[string]wire.Assign{}
	send(wire.TypeCredit, wire.Credit{Slots: 4})
	for {
		e, err := c.hear()
		if err != nil {
			return nil
		}
		switch e.Type {
		case wire.TypeAssign:
			var a wire.Assign
			json.Unmarshal(e.Data, &a)
			assigned[a.AttemptID] = a
			send(wire.TypeStart, wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch})
		case wire.TypeStarted:
			var m wire.Started
			json.Unmarshal(e.Data, &m)
			send(wire.TypeFinish, finishOf(assigned[m.AttemptID]))
		case wire.TypeFinished:
			send(wire.TypeCredit, wire.Credit{Slots: 4})
		default:
			return fmt.Errorf("worker got %s: %s", e.Type, e.Data)
		}
	}
}

func TestTooManyFailedConnectionsAreHeldBack(t *testing.T) { // API-027
	run(t, func(s scene) {
		for i := range 21 {
			_, resp, err := s.n.dial("wrong", nil, wire.Protocol)
			if err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
				s.Fatalf("connected with a wrong token: %v", err)
			}
			if held := resp.Header.Get("Retry-After") != ""; held != (i == 20) {
				s.Errorf("failure %d: Retry-After %q", i+1, resp.Header.Get("Retry-After"))
			}
		}
		if _, _, err := s.n.dial(s.worker(), nil, wire.Protocol); err != nil {
			s.Errorf("a good credential is held back: %v", err)
		}
	})
}

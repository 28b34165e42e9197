package api_test

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A hand does what workers and the server's sweepers do, through the real dispatcher and
// without a socket.
type hand struct {
	t       *testing.T
	n       *node
	d       *dispatch.Dispatcher
	r       *recovery.Recovery
	process sqldb.ID
}

func (n *node) hand() *hand {
	n.t.Helper()
	d, err := dispatch.New(n.db.DB, "node", dispatch.Config{Wake: n.wake})
	if err != nil {
		n.t.Fatal(err)
	}
	return &hand{t: n.t, n: n, d: d, r: recovery.New(n.db.DB, recovery.Config{}), process: sqldb.NewID()}
}

// claim has the best task of a kind leased, and returns nothing if there is none.
func (h *hand) claim(keyed bool) *dispatch.Grant {
	h.t.Helper()
	lane := dispatch.Lane{Queue: parseID(h.t, h.n.creds.QueueID), Handler: "file.convert", Version: "v1", Keyed: keyed}
	got, err := h.d.Claim(h.t.Context(), []dispatch.Lane{lane}, []dispatch.Taker{{
		Process: h.process, Namespace: parseID(h.t, h.n.creds.NamespaceID), Lanes: []int64{lane.ID()}, Slots: 1, Bytes: 1 << 20,
	}})
	if err != nil {
		h.t.Fatalf("claim: %v", err)
	}
	if len(got.Grants) == 0 {
		return nil
	}
	return &got.Grants[0]
}

func (h *hand) ref(g *dispatch.Grant) dispatch.Ref {
	return dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: h.process, Namespace: parseID(h.t, h.n.creds.NamespaceID)}
}

// start returns why the start was refused, or "".
func (h *hand) start(g *dispatch.Grant) string {
	h.t.Helper()
	got, err := h.d.Start(h.t.Context(), []dispatch.Ref{h.ref(g)})
	if err != nil {
		h.t.Fatalf("start: %v", err)
	}
	if got[0].Refusal != nil {
		return got[0].Refusal.Code
	}
	return ""
}

func (h *hand) renew(g *dispatch.Grant) dispatch.Renewed {
	h.t.Helper()
	got, err := h.d.Renew(h.t.Context(), []dispatch.Renewal{{Ref: h.ref(g)}})
	if err != nil {
		h.t.Fatalf("renew: %v", err)
	}
	return got[0]
}

func (h *hand) finish(g *dispatch.Grant, o task.Outcome, retryable bool) dispatch.Finished {
	h.t.Helper()
	f := dispatch.Finish{Ref: h.ref(g), Receipt: []byte("r"), Outcome: o, Retryable: retryable}
	if o == task.OutcomeSucceeded {
		f.Result = []byte(`{"done":true}`)
	}
	got, err := h.d.Finish(h.t.Context(), []dispatch.Finish{f})
	if err != nil {
		h.t.Fatalf("finish: %v", err)
	}
	return got[0]
}

// A setting makes a task in one of the states in which it can be cancelled.
type setting struct {
	name  string
	state string
	make  func(h *hand, key string) orbit.Task
}

// uncertain are the members of a submit whose task runs again after an unknown effect.
var uncertain = []string{`"recovery_safety":"IDEMPOTENT"`, `"retry":{"max_attempts":3,"initial_delay_ms":1,"max_delay_ms":1}`}

var (
	waiting = setting{"Waiting", orbit.StateWaiting, func(h *hand, key string) orbit.Task {
		return h.n.submit(key, h.n.body()).want(h.t, 201, "").taskOf(h.t)
	}}
	leased = setting{"Leased", orbit.StateLeased, func(h *hand, key string) orbit.Task {
		made := waiting.make(h, key)
		h.mustClaim(made.ID)
		return h.get(made.ID)
	}}
	running = setting{"Running", orbit.StateRunning, func(h *hand, key string) orbit.Task {
		made := waiting.make(h, key)
		h.mustStart(h.mustClaim(made.ID))
		return h.get(made.ID)
	}}
	inReview = setting{"NeedsReview", orbit.StateNeedsReview, func(h *hand, key string) orbit.Task {
		made := waiting.make(h, key)
		g := h.mustClaim(made.ID)
		h.mustStart(g)
		h.finish(g, task.OutcomeUnknown, false)
		return h.get(made.ID)
	}}
	waitingUncertain = setting{"WaitingUncertain", orbit.StateWaiting, func(h *hand, key string) orbit.Task {
		made := h.n.submit(key, h.n.body(uncertain...)).want(h.t, 201, "").taskOf(h.t)
		g := h.mustClaim(made.ID)
		h.mustStart(g)
		h.finish(g, task.OutcomeUnknown, false)
		return h.get(made.ID)
	}}
	leasedUncertain = setting{"LeasedUncertain", orbit.StateLeased, func(h *hand, key string) orbit.Task {
		made := waitingUncertain.make(h, key)
		h.promote(made.ID)
		h.mustClaim(made.ID)
		return h.get(made.ID)
	}}
	failed = setting{"Failed", orbit.StateFailed, func(h *hand, key string) orbit.Task {
		made := waiting.make(h, key)
		g := h.mustClaim(made.ID)
		h.mustStart(g)
		h.finish(g, task.OutcomeFailed, false)
		return h.get(made.ID)
	}}
	succeeded = setting{"Succeeded", orbit.StateSucceeded, func(h *hand, key string) orbit.Task {
		made := waiting.make(h, key)
		g := h.mustClaim(made.ID)
		h.mustStart(g)
		h.finish(g, task.OutcomeSucceeded, false)
		return h.get(made.ID)
	}}
)

func (h *hand) mustClaim(id string) *dispatch.Grant {
	h.t.Helper()
	g := h.claim(false)
	if g == nil || g.Task.String() != id {
		h.t.Fatalf("claim = %v, want task %s", g, id)
	}
	return g
}

func (h *hand) mustStart(g *dispatch.Grant) {
	h.t.Helper()
	if refused := h.start(g); refused != "" {
		h.t.Fatalf("start refused: %s", refused)
	}
}

// promote ends the delay of a task, whatever time it is.
func (h *hand) promote(id string) {
	h.t.Helper()
	past := h.n.now() - time.Second.Microseconds()
	h.n.exec("UPDATE task SET available_at = ?, order_value = ? WHERE id = ? AND dispatch_state = 2", past, past, parseID(h.t, id))
	if _, err := h.r.PromoteDelayed(h.t.Context()); err != nil {
		h.t.Fatalf("promote: %v", err)
	}
}

// get reads a task over HTTP.
func (h *hand) get(id string) (got orbit.Task) {
	h.t.Helper()
	return h.n.get(id)
}

func (n *node) get(id string) (got orbit.Task) {
	n.t.Helper()
	a := n.do(ask{path: "/v1/tasks/" + id}).want(n.t, 200, "")
	if err := got.UnmarshalJSON(a.data); err != nil {
		n.t.Fatal(err)
	}
	return got
}

// verify fails the test for each invariant of the database that does not hold.
func (n *node) verify() {
	n.t.Helper()
	found, err := dispatch.Verify(n.t.Context(), n.db.DB)
	if err != nil {
		n.t.Fatalf("verify: %v", err)
	}
	for _, violation := range found {
		n.t.Errorf("verify: %s", violation)
	}
}

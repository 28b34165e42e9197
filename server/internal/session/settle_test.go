package session_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/session"
)

// attempts is how many attempts were ever made.
func (s scene) attempts() int64 { return s.w.Int("SELECT COUNT(*) FROM attempt") }

// stays fails if there are other than n attempts at any time of a short while, in which a
// free worker would have got one.
func (s scene) stays(n int64, why string) {
	s.Helper()
	for range 15 {
		if got := s.attempts(); got != n {
			s.Fatalf("%d attempts, want %d: %s", got, n, why)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Both sides agree on the old before there is anything new, whichever of them knows of it
// and whatever the answer is.
func TestNothingIsAssignedBeforeOpenAttemptsAreSettled(t *testing.T) { // WRK-014, STATE-024, REF-WRK-004
	cases := []struct {
		name   string
		start  bool // before the connection is lost
		finish bool // too, without the worker hearing of it
		held   bool // hello names the attempt
		ask    func(c *client, a wire.Assign)
	}{
		{"running, kept", true, false, true, func(c *client, a wire.Assign) {
			got := want[wire.Resumed](c, wire.TypeResumed, c.say(wire.TypeResume, name(a)))
			if got.Status != wire.ResumeKeep || !got.Running {
				c.Errorf("task.resumed = %+v", got)
			}
		}},
		{"finished", true, true, true, func(c *client, a wire.Assign) {
			if got := want[wire.Resumed](c, wire.TypeResumed, c.say(wire.TypeResume, name(a))); got.Status != wire.ResumeFinished {
				c.Errorf("task.resumed = %+v", got)
			}
		}},
		{"known to the server only", false, false, false, func(c *client, a wire.Assign) {
			want[wire.Returned](c, wire.TypeReturned, c.say(wire.TypeReturn, name(a)))
		}},
		{"running, but handed back", true, false, false, func(c *client, a wire.Assign) {
			if e := want[wire.Error](c, wire.TypeError, c.say(wire.TypeReturn, name(a))); e.Code != "STATE_CONFLICT" {
				c.Errorf("error = %+v", e)
			}
		}},
	}
	run(t, func(s scene) {
		token := s.worker()
		for _, one := range cases {
			q := s.w.NewQueue(one.name)
			s.submit(spec{Queue: q}, s.n)
			h := helloFor(2, q)
			c := s.n.connect(s.T, token)
			c.hello(h)
			c.say(wire.TypeCredit, wire.Credit{Slots: 1})
			a := want[wire.Assign](c, wire.TypeAssign, "")
			if one.start {
				c.start(a)
			}
			if one.finish {
				c.finish(a)
			}
			c.ws.NetConn().Close()
			if one.held {
				h.Held = []wire.Held{{AttemptID: a.AttemptID, Epoch: a.Epoch}}
			}
			c = s.n.connect(s.T, token)
			c.hello(h)
			made := s.attempts()
			c.say(wire.TypeCredit, wire.Credit{Slots: 2})
			s.submit(spec{Queue: q}, s.n)
			s.stays(made, one.name+": the open attempt is not settled")
			one.ask(c, a) // the answer is the next that comes
			want[wire.Assign](c, wire.TypeAssign, "")
		}
	})
}

// A worker that never asks about what is open is not held back for longer than that can
// last by itself.
func TestWorkerThatNeverResumesIsAssignedToAfterTheLease(t *testing.T) {
	s := sqliteScene(t)
	const lease = 400 * time.Millisecond
	n := s.newNode(s.db.DB, session.Config{Node: "node-l", Lease: lease, ShortLease: true})
	q := s.w.NewQueue("q")
	h := helloFor(2, q)
	h.Held = []wire.Held{{AttemptID: sqldb.NewID().String(), Epoch: 1}}
	c := n.connect(s.T, s.worker())
	before := time.Now()
	c.hello(h)
	c.say(wire.TypeCredit, wire.Credit{Slots: 2})
	s.submit(spec{Queue: q}, n)
	want[wire.Assign](c, wire.TypeAssign, "")
	if took := time.Since(before); took < lease {
		s.Errorf("assigned after %v, want no sooner than %v", took, lease)
	}
}

// hello.held is bounded by the capacity, and is read as strictly as everything else.
func TestHeldAttemptsOfHelloAreHeldToTheirRules(t *testing.T) { // REF-WRK-004
	s := sqliteScene(t)
	q := s.w.NewQueue("q")
	token := s.worker()
	held := func(n int) (list []wire.Held) {
		for range n {
			list = append(list, wire.Held{AttemptID: sqldb.NewID().String(), Epoch: 1})
		}
		return list
	}
	one := held(1)[0]
	for rule, list := range map[string][]wire.Held{
		"held: must be at most 6":      held(7),
		"held[1]: must not name one":   {one, one},
		"held[0].attempt_id: must be ": {{AttemptID: strings.ToUpper(one.AttemptID), Epoch: 1}},
		"held[0].epoch: must be 1 to":  {{AttemptID: one.AttemptID, Epoch: 0}},
		"held[1].epoch: must be 1 to ": {one, {AttemptID: sqldb.NewID().String(), Epoch: 1 << 63}},
	} {
		h := helloFor(2, q)
		h.Held = list
		c := s.n.connect(s.T, token)
		if code, said := c.after(wire.TypeHello, h); code != wire.CloseProtocolError || said.Code != "INVALID_ARGUMENT" || !strings.HasPrefix(said.Message, rule) {
			s.Errorf("closed with %d after %+v, want %d after %q", code, said, wire.CloseProtocolError, rule)
		}
	}
	h := helloFor(2, q)
	h.Held = held(6)
	s.n.connect(s.T, token).hello(h)
}

// after says a message and returns how the connection ends then.
func (c *client) after(kind string, data any) (code int, said wire.Error) {
	c.Helper()
	c.say(kind, data)
	return c.closed()
}

// A cancel that was stored while the worker was away is in the answer to its resume, on
// whatever node.
func TestResumeTellsOfACancelOnAnotherNode(t *testing.T) { // CAN-023, REF-CAN-002
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		id := s.submit(spec{Queue: q})
		other := s.newNode(s.db.Reopen(s.T).DB, session.Config{Node: "node-b"})
		token, h := s.worker(), helloFor(1, q)
		c := s.n.connect(s.T, token)
		c.hello(h)
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(a)
		c.ws.NetConn().Close()
		s.w.Exec("UPDATE task SET cancel_requested_at = ?", s.w.Now())
		c = other.connect(s.T, token)
		h.Held = []wire.Held{{AttemptID: a.AttemptID, Epoch: a.Epoch}}
		c.hello(h)
		got := want[wire.Resumed](c, wire.TypeResumed, c.say(wire.TypeResume, h.Held[0]))
		if got.Status != wire.ResumeKeep || !got.Running || !got.CancelRequested {
			s.Errorf("task.resumed = %+v, want it kept with the cancel intent", got)
		}
		f := finishOf(a)
		f.Outcome, f.Result = wire.OutcomeCancelled, json.RawMessage(nil)
		if got := want[wire.Finished](c, wire.TypeFinished, c.say(wire.TypeFinish, f)); got.TaskState != "CANCELLED" {
			s.Errorf("task.finished = %+v", got)
		}
		if got := s.w.Task(id); got.State != "CANCELLED" {
			s.Errorf("task = %+v", got)
		}
	})
}

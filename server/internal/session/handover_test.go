package session_test

import (
	"strconv"
	"testing"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/session"
)

func name(a wire.Assign) wire.Attempt {
	return wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch}
}

// token is the number that an assignment carries for its resource.
func token(t *testing.T, a wire.Assign) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(a.ConcurrencyToken, 10, 64)
	if err != nil {
		t.Fatalf("token %q: %v", a.ConcurrencyToken, err)
	}
	return n
}

// The task of another queue gets the key, with a larger token, when the one before it is
// cancelled before its start.
func TestTheOtherQueueGetsAKeyAfterACancelBeforeTheStart(t *testing.T) { // TEST-005, CAN-004, TOK-004, WRK-016
	run(t, func(s scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		first := s.submit(spec{Queue: q, Key: "object"})
		c := s.n.connect(s.T, s.worker())
		c.hello(helloFor(2, q, r))
		c.say(wire.TypeCredit, wire.Credit{Slots: 2})
		a := want[wire.Assign](c, wire.TypeAssign, "")
		second := s.submit(spec{Queue: r, Key: "object"}, s.n)
		s.stays(1, "the key is taken")
		s.cancel(first, "not needed")
		b := want[wire.Assign](c, wire.TypeAssign, "")
		if b.Task.ID != second.String() || b.Task.QueueID != r.String() || token(s.T, b) <= token(s.T, a) {
			s.Errorf("task.assign = %+v after token %s, want the other queue's task with a larger one", b, a.ConcurrencyToken)
		}
		if e := want[wire.Error](c, wire.TypeError, c.say(wire.TypeStart, name(a))); e.Code != wire.CodeEnded {
			s.Errorf("start of the cancelled attempt = %+v", e)
		}
		for range 2 { // the second is a repeat
			c.start(b)
		}
		want[wire.Renewed](c, wire.TypeRenewed, c.say(wire.TypeRenew, name(b)))
		if n := s.w.Int("SELECT COUNT(*) FROM attempt WHERE id = ? AND concurrency_token = ? AND live = 1", s.attempt(b), s.w.DB.Dialect().Uint64(token(s.T, b))); n != 1 {
			s.Error("the running attempt does not have the token that was assigned")
		}
		c.finish(b)
		if got := s.w.Task(second); got.State != "SUCCEEDED" || got.Attempts != 1 {
			s.Errorf("task = %+v", got)
		}
		if _, holder := s.w.Key(s.w.Namespace, "object"); !holder.IsZero() {
			s.Error("the key has a holder at the end")
		}
		if n := s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); n != 0 {
			s.Errorf("%d live attempts at the end", n) // the counters are held to them when the test ends
		}
	})
}

// A node goes away while an attempt runs: its worker takes it up on another node, nobody
// else gets the key meanwhile, and the old result said again harms no later attempt.
func TestARunningAttemptIsTakenUpOnAnotherNode(t *testing.T) { // WRK-014, WRK-015, WRK-021, LIC-005
	run(t, func(s scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		s.submit(spec{Queue: q, Key: "object"})
		a, b := s.newNode(s.db.DB, session.Config{Node: "node-1"}), s.newNode(s.db.Reopen(s.T).DB, session.Config{Node: "node-2"})
		secret, h := s.worker(), helloFor(1, q)
		c := a.connect(s.T, secret)
		c.hello(h)
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		first := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(first)
		c.ws.NetConn().Close()
		if err := a.stop(); err != nil {
			s.Fatal(err)
		}
		other := b.connect(s.T, secret)
		other.hello(helloFor(1, r))
		other.say(wire.TypeCredit, wire.Credit{Slots: 1})
		waiting := s.submit(spec{Queue: r, Key: "object"}, b)
		c = b.connect(s.T, secret)
		h.Held = []wire.Held{wire.Held(name(first))}
		c.hello(h)
		if got := want[wire.Resumed](c, wire.TypeResumed, c.say(wire.TypeResume, name(first))); got.Status != wire.ResumeKeep || !got.Running {
			s.Errorf("task.resumed = %+v", got)
		}
		s.stays(1, "the key is taken")
		if got := s.w.Task(waiting); got.Attempts != 0 {
			s.Errorf("the waiting task = %+v, want no attempt", got)
		}
		c.finish(first)
		second := want[wire.Assign](other, wire.TypeAssign, "")
		if token(s.T, second) <= token(s.T, first) {
			s.Errorf("token %s after %s", second.ConcurrencyToken, first.ConcurrencyToken)
		}
		other.start(second)
		if got := c.finish(first); got.Status != wire.FinishRecorded || got.TaskState != "SUCCEEDED" {
			s.Errorf("the old finish again = %+v, want the old answer", got)
		}
		want[wire.Renewed](other, wire.TypeRenewed, other.say(wire.TypeRenew, name(second)))
		if got := other.finish(second); got.Status != wire.FinishRecorded {
			s.Errorf("the later finish = %+v", got)
		}
	})
}

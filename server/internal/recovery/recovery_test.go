package recovery_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

type (
	world = *dispatchtest.World
	spec  = dispatchtest.Task
)

// A scene is a world with a node that dispatches and a recovery that was told to run.
type scene struct {
	*testing.T
	w    world
	node *dispatch.Dispatcher
	r    *recovery.Recovery
	db   *dbtest.DB
}

func run(t *testing.T, f func(s scene)) {
	t.Helper()
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		node, err := dispatch.New(db.DB, "node", dispatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		f(scene{t, w, node, recovery.New(db.DB, recovery.Config{}), db})
	}, migrations.Server)
}

// lease submits x, claims it and, if asked to, starts it.
func (s scene) lease(x spec, started bool) (dispatch.Ref, dispatch.Grant) {
	s.Helper()
	s.w.Submit(x)
	return s.claim(x, started)
}

func (s scene) claim(x spec, started bool) (dispatch.Ref, dispatch.Grant) {
	s.Helper()
	taker := s.w.Taker(1, x.Lane())
	c, err := s.node.Claim(s.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
	if err != nil || len(c.Grants) != 1 {
		s.Fatalf("Claim = %+v, %v; want one task", c, err)
	}
	g := c.Grants[0]
	ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: s.w.Namespace}
	if started {
		if got, err := s.node.Start(s.Context(), []dispatch.Ref{ref}); err != nil || got[0].Refusal != nil {
			s.Fatalf("Start = %+v, %v", got, err)
		}
	}
	return ref, g
}

// expire moves the end of an attempt's lease, and with timeout that of its timeout, into
// the past.
func (s scene) expire(attempt sqldb.ID, timeout bool) {
	s.Helper()
	at := s.w.Now() - 1
	s.w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", at, attempt)
	if timeout {
		s.w.Exec("UPDATE attempt SET timeout_at = ? WHERE id = ?", at, attempt)
	}
}

func (s scene) sweepLeases() {
	s.Helper()
	if _, err := s.r.ExpireLeases(s.Context()); err != nil {
		s.Fatalf("ExpireLeases = %v", err)
	}
}

func (s scene) free(key string) {
	s.Helper()
	if _, holder := s.w.Key(s.w.Namespace, key); !holder.IsZero() {
		s.Errorf("key %q is still held", key)
	}
	if n := s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); n != 0 {
		s.Errorf("%d live attempts are left", n)
	}
}

// What an expiry leads to (LIC-006, STATE-012, STATE-013).
func TestExpiredLeaseEndsTheAttempt(t *testing.T) {
	safe := spec{Idempotent: true, MaxAttempts: 2, InitialDelay: time.Second, MaxDelay: time.Second}
	cases := []struct {
		name      string
		spec      spec
		started   bool
		timeout   bool
		cancel    bool
		state     string
		reason    string
		uncertain bool
		dispatch  task.DispatchState
	}{
		{name: "not started", state: "WAITING", reason: "lease_expired", dispatch: task.DispatchReady},
		{name: "started", started: true, state: "NEEDS_REVIEW", reason: "lease_expired", uncertain: true},
		{name: "started, timeout", started: true, timeout: true, state: "NEEDS_REVIEW", reason: "attempt_timeout", uncertain: true},
		{name: "started, idempotent", spec: safe, started: true, state: "WAITING", reason: "lease_expired", uncertain: true, dispatch: task.DispatchDelayed},
		{name: "started, idempotent, last attempt", spec: spec{Idempotent: true}, started: true, state: "NEEDS_REVIEW", reason: "attempts_used", uncertain: true},
		{name: "started, idempotent, cancel intent", spec: safe, started: true, cancel: true, state: "NEEDS_REVIEW", reason: "cancel_requested", uncertain: true},
		{name: "not started, 100th in a row", spec: spec{Unstarted: 99}, state: "FAILED", reason: "never_started"},
		{name: "not started, 100th in a row, unknown effect", spec: spec{Unstarted: 99, Uncertain: true}, state: "NEEDS_REVIEW", reason: "never_started", uncertain: true},
	}
	run(t, func(s scene) {
		for _, c := range cases {
			c.spec.Queue, c.spec.Key = s.w.NewQueue(c.name), c.name
			ref, g := s.lease(c.spec, c.started)
			if c.cancel {
				s.w.Exec("UPDATE task SET cancel_requested_at = ? WHERE id = ?", s.w.Now(), g.Task)
			}
			s.sweepLeases()
			if n := s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); n != 1 {
				s.Fatalf("%s: a lease that lasts was ended (LIC-019)", c.name)
			}
			s.expire(ref.Attempt, c.timeout)
			s.sweepLeases()
			got := s.w.Task(g.Task)
			if got.State != c.state || got.Reason != c.reason || got.Uncertain != c.uncertain || got.Dispatch != c.dispatch {
				s.Errorf("%s: task = %+v", c.name, got)
			}
			s.free(c.name)
			s.w.Exec("UPDATE queue SET paused = 1 WHERE id = ?", c.spec.Queue)
		}
	})
}

func TestExpiredLeaseLetsTheNextTaskOfTheKeyGo(t *testing.T) { // TOK-011, LIC-006, LIC-019
	run(t, func(s scene) {
		a, b := spec{Queue: s.w.NewQueue("a"), Key: "object"}, spec{Queue: s.w.NewQueue("b"), Key: "object"}
		ref, g := s.lease(a, true)
		next := s.w.Submit(b)
		s.expire(ref.Attempt, false)
		c, err := s.node.Claim(s.Context(), []dispatch.Lane{b.Lane()}, []dispatch.Taker{s.w.Taker(1, b.Lane())})
		if err != nil || len(c.Grants) != 0 {
			s.Errorf("a key whose lease has passed was given away before recovery: %+v, %v", c, err)
		}
		s.sweepLeases()
		_, later := s.claim(b, true)
		if later.Task != next || later.Token <= g.Token {
			s.Errorf("next holder = %+v, want a token above %d", later, g.Token)
		}
		old := dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded}
		got, err := s.node.Finish(s.Context(), []dispatch.Finish{old}) // TEST-009
		if err != nil || got[0].Status != wire.FinishExpired {
			s.Errorf("late finish = %+v, %v; want lease_expired", got, err)
		}
		if _, holder := s.w.Key(s.w.Namespace, "object"); holder != next {
			s.Errorf("a late finish released the key of another task")
		}
		if n := s.w.Int("SELECT COUNT(*) FROM evidence WHERE attempt_id = ?", ref.Attempt); n != 1 {
			s.Errorf("%d rows of evidence, want 1", n)
		}
	})
}

func TestLateFinishOfASupersededAttempt(t *testing.T) {
	run(t, func(s scene) {
		x := spec{Queue: s.w.NewQueue("q")}
		ref, _ := s.lease(x, false)
		s.expire(ref.Attempt, false)
		s.sweepLeases()
		s.claim(x, true)
		got, err := s.node.Finish(s.Context(), []dispatch.Finish{{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded}})
		if err != nil || got[0].Status != wire.FinishReplaced {
			s.Errorf("late finish = %+v, %v; want superseded", got, err)
		}
	})
}

func TestWaitingTaskPastItsDeadlineEnds(t *testing.T) { // STATE-014, AMB-035
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		for _, c := range []struct {
			name   string
			spec   spec
			state  string
			reason string
		}{
			{"deadline", spec{Timeout: -time.Second}, "FAILED", "deadline"},
			{"start deadline", spec{StartWithin: -time.Second}, "FAILED", "start_deadline"},
			{"delayed", spec{Delay: time.Hour, StartWithin: -time.Second}, "FAILED", "start_deadline"},
			{"unknown effect", spec{Timeout: -time.Second, Uncertain: true}, "NEEDS_REVIEW", "effect_uncertain"},
			{"in time", spec{StartWithin: time.Hour}, "WAITING", ""},
		} {
			c.spec.Queue = q
			id := s.w.Submit(c.spec)
			if _, err := s.r.ExpireWaiting(s.Context()); err != nil {
				s.Fatalf("ExpireWaiting = %v", err)
			}
			if got := s.w.Task(id); got.State != c.state || got.Reason != c.reason {
				s.Errorf("%s: task = %+v, want %s for %q", c.name, got, c.state, c.reason)
			}
		}
	})
}

func TestExpiryOfAReadyTaskLetsTheNextOfItsLaneGo(t *testing.T) {
	run(t, func(s scene) {
		x := spec{Queue: s.w.NewQueue("q"), Key: "object", Delay: -time.Minute}
		short := x
		short.StartWithin = time.Hour
		first, second := s.w.Submit(short), s.w.Submit(x)
		if got := s.w.Task(second); got.Dispatch != task.DispatchKeyBlocked {
			s.Fatalf("second task = %+v, want it parked behind the first", got)
		}
		at := s.w.Now() - 1
		s.w.Exec("UPDATE task SET start_deadline_at = ?, expire_at = ? WHERE id = ?", at, at, first)
		if _, err := s.r.ExpireWaiting(s.Context()); err != nil {
			s.Fatalf("ExpireWaiting = %v", err)
		}
		if got := s.w.Task(second); got.Dispatch != task.DispatchReady {
			s.Errorf("second task = %+v, want it READY", got)
		}
	})
}

func TestDelayedTasksGoIntoLineByTheRulesOfASubmit(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		plain, urgent := spec{Queue: q, Delay: time.Hour}, spec{Queue: q, Delay: time.Hour, Priority: 5}
		busy, twice := spec{Queue: q, Delay: time.Hour, Key: "busy"}, spec{Queue: q, Delay: time.Hour, Key: "twice"}
		holder := busy
		holder.Delay = 0
		s.lease(holder, true)
		ids := []sqldb.ID{s.w.Submit(plain), s.w.Submit(urgent), s.w.Submit(busy), s.w.Submit(twice), s.w.Submit(twice)}
		notYet := s.w.Submit(plain)
		past := s.w.Now() - 1000
		for i, id := range ids {
			s.w.Exec("UPDATE task SET available_at = ?, order_value = ?, lane = 0 WHERE id = ?", past+int64(i), past+int64(i), id)
		}
		before := s.w.Task(ids[0])
		n, err := s.r.PromoteDelayed(s.Context())
		if err != nil || n != len(ids) {
			s.Fatalf("PromoteDelayed = %d, %v; want %d", n, err, len(ids))
		}
		want := []task.DispatchState{task.DispatchReady, task.DispatchReady, task.DispatchKeyBlocked, task.DispatchReady, task.DispatchKeyBlocked}
		for i, id := range ids {
			if got := s.w.Task(id); got.Dispatch != want[i] {
				s.Errorf("task %d = %+v, want dispatch state %d", i, got, want[i])
			}
		}
		if got := s.w.Task(notYet); got.Dispatch != task.DispatchDelayed {
			s.Errorf("a task whose time has not come = %+v", got)
		}
		if after := s.w.Task(ids[0]); after.Revision != before.Revision {
			s.Error("promotion is no visible change (STATE-027)")
		}
		if _, g := s.claim(urgent, false); g.Task != ids[1] {
			s.Error("the urgent task is not the first in line")
		}
	})
}

func TestManyNodesPromoteEachDelayedTaskOnce(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		for i := range 250 {
			s.w.Submit(spec{Queue: q, Delay: time.Hour, Key: []string{"", "a", "b"}[i%3]})
		}
		at := s.w.Now() - 1
		s.w.Exec("UPDATE task SET available_at = ?, order_value = ?", at, at)
		other := recovery.New(s.db.Reopen(s).DB, recovery.Config{})
		var (
			wg sync.WaitGroup
			n  atomic.Int64
		)
		for _, r := range []*recovery.Recovery{s.r, other} {
			wg.Go(func() {
				for range 5 {
					got, err := r.PromoteDelayed(s.Context())
					if err != nil {
						s.Errorf("PromoteDelayed = %v", err)
					}
					n.Add(int64(got))
				}
			})
		}
		wg.Wait()
		if n.Load() != 250 {
			s.Errorf("%d promotions of 250 tasks", n.Load())
		}
	})
}

func TestStrandedTasksAreFoundAndLetGo(t *testing.T) {
	run(t, func(s scene) {
		a, b := spec{Queue: s.w.NewQueue("a"), Key: "object"}, spec{Queue: s.w.NewQueue("b"), Key: "object"}
		worn := spec{Queue: a.Queue, Key: "worn"}
		s.w.SetKeyVersion(s.w.Namespace, "worn", 1<<64-1)
		ids := []sqldb.ID{s.w.Submit(a), s.w.Submit(a), s.w.Submit(b), s.w.Submit(worn)}
		s.w.Exec("UPDATE task SET dispatch_state = 3, dispatch_lane = NULL") // nobody has left them so
		found, err := dispatch.Verify(s.Context(), s.w.DB)
		if err != nil || len(found) != 1 {
			s.Errorf("Verify = %q, %v; want it to see the stranded key and not the exhausted one", found, err)
		}
		var woken []int64
		r := recovery.New(s.w.DB, recovery.Config{Wake: func(lanes []int64) { woken = append(woken, lanes...) }})
		if err := r.PromoteStranded(s.Context()); err != nil {
			s.Fatalf("PromoteStranded = %v", err)
		}
		want := []task.DispatchState{task.DispatchReady, task.DispatchKeyBlocked, task.DispatchReady, task.DispatchKeyBlocked}
		for i, id := range ids {
			if got := s.w.Task(id); got.Dispatch != want[i] {
				s.Errorf("task %d = %+v, want dispatch state %d", i, got, want[i])
			}
		}
		if len(woken) != 2 || !slices.Contains(woken, a.Lane().ID()) || !slices.Contains(woken, b.Lane().ID()) {
			s.Errorf("woken lanes = %v", woken)
		}
	})
}

func TestRecoveryOfOneTaskDoesNotStopAtAnother(t *testing.T) {
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		good, g := s.lease(spec{Queue: q}, true)
		bad, h := s.lease(spec{Queue: q}, true)
		s.w.Exec("UPDATE task SET attempt_id = NULL WHERE id = ?", h.Task) // a contradiction
		s.expire(good.Attempt, false)
		s.expire(bad.Attempt, false)
		if _, err := s.r.ExpireLeases(s.Context()); err == nil {
			s.Error("ExpireLeases says nothing about the bad attempt")
		}
		if got := s.w.Task(g.Task); got.State != "NEEDS_REVIEW" {
			s.Errorf("task = %+v, want it recovered beside a bad one", got)
		}
		s.w.Exec("UPDATE task SET attempt_id = ? WHERE id = ?", bad.Attempt, h.Task)
	})
}

// Workers, sweepers and leases that end under them: whatever wins, the invariants hold.
func TestSweepersAndWorkersRace(t *testing.T) {
	run(t, func(s scene) {
		x := spec{Queue: s.w.NewQueue("q"), Key: "object", Idempotent: true, MaxAttempts: 100}
		plain := spec{Queue: x.Queue, Idempotent: true, MaxAttempts: 100}
		for range 20 {
			s.w.Submit(x)
			s.w.Submit(plain)
		}
		other := s.db.Reopen(s)
		node, err := dispatch.New(other.DB, "other", dispatch.Config{Lease: 3 * time.Millisecond, ShortLease: true})
		if err != nil {
			s.Fatal(err)
		}
		ctx, cancel := context.WithCancel(s.Context())
		var wg sync.WaitGroup
		for _, r := range []*recovery.Recovery{s.r, recovery.New(other.DB, recovery.Config{})} {
			wg.Go(func() {
				for ctx.Err() == nil {
					for _, f := range []func(context.Context) (int, error){r.ExpireLeases, r.ExpireWaiting, r.PromoteDelayed} {
						if _, err := f(ctx); err != nil && ctx.Err() == nil {
							s.Errorf("sweep = %v", err)
						}
					}
				}
			})
		}
		for i := range 200 {
			taker := s.w.Taker(3, x.Lane(), plain.Lane())
			c, err := node.Claim(ctx, []dispatch.Lane{x.Lane(), plain.Lane()}, []dispatch.Taker{taker})
			if err != nil {
				s.Fatalf("Claim = %v", err)
			}
			for _, g := range c.Grants {
				ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: taker.Namespace}
				if _, err := node.Start(ctx, []dispatch.Ref{ref}); err != nil {
					s.Fatalf("Start = %v", err)
				}
				if i%2 == 0 {
					if _, err := node.Finish(ctx, []dispatch.Finish{{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded}}); err != nil {
						s.Fatalf("Finish = %v", err)
					}
				}
			}
		}
		cancel()
		wg.Wait()
	})
}

func TestRunRecoversByItselfAndStopsCleanly(t *testing.T) {
	run(t, func(s scene) {
		x := spec{Queue: s.w.NewQueue("q")}
		ref, g := s.lease(x, true)
		late := s.w.Submit(spec{Queue: x.Queue, StartWithin: -time.Second})
		woken := make(chan []int64, 100)
		r := recovery.New(s.w.DB, recovery.Config{Interval: 20 * time.Millisecond, StrandedInterval: 20 * time.Millisecond, Wake: func(l []int64) { woken <- l }})
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		s.expire(ref.Attempt, false)
		delayed := s.w.Submit(spec{Queue: x.Queue, Delay: 100 * time.Millisecond})
		r.Wake([]int64{task.TimerLane})
		if lanes := <-woken; !slices.Contains(lanes, x.Lane().ID()) {
			s.Errorf("woken lanes = %v, want that of the delayed task", lanes)
		}
		s.until(func() bool {
			return s.w.Task(g.Task).State == "NEEDS_REVIEW" && s.w.Task(late).State == "FAILED" && s.w.Task(delayed).Dispatch == task.DispatchReady
		})
		cancel()
		if err := <-done; err != nil {
			s.Errorf("Run = %v, want nil", err)
		}
	})
}

// until polls until ok, or fails the test.
func (s scene) until(ok func() bool) {
	s.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatal("it did not happen within a minute")
}

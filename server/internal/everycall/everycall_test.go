package everycall_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

type spec = dispatchtest.Task

// A node is what a server does to its database, without what does it by itself.
type node struct {
	db       *sqldb.DB
	dispatch *dispatch.Dispatcher
	recovery *recovery.Recovery
	accept   *accept.Committer
	command  *command.Commands
	operator *admin.Operator
}

func newNode(t *testing.T, db *sqldb.DB) *node {
	t.Helper()
	n := &node{db: db, recovery: recovery.New(db, recovery.Config{}), accept: accept.New(db, accept.Config{}),
		command: command.New(db, command.Config{}), operator: admin.NewOperator(db, "alice")}
	var err error
	if n.dispatch, err = dispatch.New(db, "node", dispatch.Config{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.accept.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return n
}

// An act is done once through a database that fails it, and again, the way its caller
// repeats it, through one that does not, if the first did not say that it is done. All
// together must have the effect of one.
type act struct {
	name   string
	before func(s *sweep) // makes what it acts on
	do     func(s *sweep, n *node) error
	check  func(s *sweep) error // after it is done
	calls  int                  // to the database, at least
}

// errNothing is the answer of an act that did nothing: it passes over what others lock, and
// what is there no more.
var errNothing = errors.New("nothing was done")

// A sweep is one run of an act.
type sweep struct {
	*testing.T
	w     *dispatchtest.World
	whole *node // whose database does not fail
	name  string
	x     spec
	taker dispatch.Taker
	ref   dispatch.Ref
	first sqldb.ID // the task acted on
	next  sqldb.ID // another task of its key, parked
	given []dispatch.Grant
}

// Each call to the database fails in turn, in every way. What an act answers is true: if
// it says that it is done its effect is there, and it is there once however often the act
// is repeated. What the engine refuses within a transaction nobody hears of, nor of the
// lost answer to a COMMIT: its outcome is read.
//
// LIC-020, TOK-004, IDEM-013, ERR-017.
func TestEveryCallMayFail(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		calls := dbfault.Open(t, db)
		whole, broken := newNode(t, db.DB), newNode(t, calls.DB)
		for _, a := range slices.Concat(sweepers, acceptance, commands, attempts) {
			for _, way := range dbfault.Ways(db.Engine) {
				a.failEach(t, w, calls, way, whole, broken)
			}
		}
	}, migrations.Server)
}

// failEach does the act once for each of its calls, which fails in a way.
func (a *act) failEach(t *testing.T, w *dispatchtest.World, calls *dbfault.Faults, way func(int) dbfault.Verdict, whole, broken *node) {
	for nth := 1; ; nth++ {
		how := way(nth)
		name := fmt.Sprintf("%s: call %d %v", a.name, nth, how)
		x := spec{Queue: w.NewQueue(name), Key: name}
		s := &sweep{T: t, w: w, whole: whole, name: name, x: x, taker: w.Taker(1, x.Lane())}
		a.before(s)
		calls.Arm(nth, how)
		err := a.do(s, broken)
		hit, fired := calls.Disarm()
		resolved := how.Refused() && hit != dbfault.Outside || how == dbfault.LoseAnswer && hit == dbfault.Commit
		switch {
		case !fired && err != nil:
			t.Errorf("%s: nothing failed, yet %v", name, err)
		case !fired && nth <= a.calls:
			t.Errorf("%s: only %d calls were made", a.name, nth-1)
		case fired && resolved && err != nil && !errors.Is(err, errNothing):
			t.Errorf("%s, and that was not resolved: %v", name, err)
		}
		if err == nil {
			if wrong := a.check(s); wrong != nil {
				t.Errorf("%s, and it said that it is done: %v", name, wrong)
			}
		}
		if wrong := s.again(a); wrong != nil {
			t.Errorf("%s (first: %v): %v", name, err, wrong)
		}
		w.Exec("UPDATE queue SET paused = 1 WHERE id = ?", x.Queue)
		if !fired {
			return
		}
	}
}

// again repeats the act. What the broken try held is let go when the server notices that
// its connection is gone, and until then passed over.
func (s *sweep) again(a *act) (err error) {
	for range 500 {
		if err = a.do(s, s.whole); err != nil && !errors.Is(err, errNothing) {
			return fmt.Errorf("the repeat: %w", err)
		}
		if err = a.check(s); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// lease submits a task of the key, claims it and, if asked to, starts it. Another one of
// its key is parked behind it.
func (s *sweep) lease(started bool) {
	s.Helper()
	s.first = s.w.Submit(s.x)
	c, err := s.whole.dispatch.Claim(s.Context(), []dispatch.Lane{s.x.Lane()}, []dispatch.Taker{s.taker})
	if err != nil || len(c.Grants) != 1 {
		s.Fatalf("Claim = %+v, %v; want one task", c, err)
	}
	s.ref = dispatch.Ref{Attempt: c.Grants[0].Attempt, Epoch: c.Grants[0].Epoch, Process: s.taker.Process, Namespace: s.w.Namespace, Hint: c.Grants[0].Hint}
	if started {
		got, err := s.whole.dispatch.Start(s.Context(), []dispatch.Ref{s.ref})
		if err != nil || got[0].Refusal != nil {
			s.Fatalf("Start = %+v, %v", got, err)
		}
		s.ref.Hint = got[0].Hint
	}
	s.next = s.w.Submit(s.x)
}

// forget has the node know nothing of the attempt.
func (s *sweep) forget() { s.ref.Hint = dispatch.Hint{} }

// expect holds a task to its state, and to one event for each revision.
func (s *sweep) expect(id sqldb.ID, state string, revision int64, dispatched task.DispatchState) error {
	got := s.w.Task(id)
	if got.State != state || got.Revision != revision || got.Dispatch != dispatched {
		return fmt.Errorf("task = %+v, want %s, revision %d, dispatch state %d", got, state, revision, dispatched)
	}
	return s.expectCount(revision, "SELECT COUNT(*) FROM task_event WHERE task_id = ?", id)
}

func (s *sweep) expectCount(want int64, query string, args ...any) error {
	if got := s.w.Int(query, args...); got != want {
		return fmt.Errorf("%s = %d, want %d", query, got, want)
	}
	return nil
}

// nextIsReady holds the key to one claim and one release, and the parked task to READY.
func (s *sweep) nextIsReady() error {
	if version, holder := s.w.Key(s.w.Namespace, s.x.Key); version != 2 || !holder.IsZero() {
		return fmt.Errorf("key has version %d and holder %v, want 2 and none", version, holder)
	}
	return s.expect(s.next, "WAITING", 1, task.DispatchReady)
}

package recovery_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

// An act is done once through a database that breaks, then again through one that does
// not. Whatever broke, both together must have the effect of one.
type act struct {
	name   string
	before func(s *sweep) // makes what it acts on
	do     func(s *sweep, n *dispatch.Dispatcher, r *recovery.Recovery) error
	check  func(s *sweep) error // after both
}

// A sweep is one run of an act.
type sweep struct {
	scene
	x     spec
	ref   dispatch.Ref
	taker dispatch.Taker
	first sqldb.ID // the task acted on
	next  sqldb.ID // another task of its key, parked
	given []dispatch.Grant
}

func (s *sweep) leaseKeyed(started bool) {
	s.ref, _ = s.lease(s.x, started)
	s.first = sqldb.ID{}
	if err := s.w.DB.Read().QueryRow("SELECT task_id FROM attempt WHERE id = ?", s.ref.Attempt).Scan(&s.first); err != nil {
		s.Fatal(err)
	}
	s.next = s.w.Submit(s.x)
}

func (s *sweep) expect(id sqldb.ID, state string, revision int64, dispatched task.DispatchState) error {
	got := s.w.Task(id)
	if got.State != state || got.Revision != revision || got.Dispatch != dispatched {
		return fmt.Errorf("task = %+v, want %s, revision %d, dispatch state %d", got, state, revision, dispatched)
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

var acts = []act{
	{
		name:   "claim",
		before: func(s *sweep) { s.first = s.w.Submit(s.x) },
		do: func(s *sweep, n *dispatch.Dispatcher, _ *recovery.Recovery) error {
			c, err := n.Claim(s.Context(), []dispatch.Lane{s.x.Lane()}, []dispatch.Taker{s.taker})
			s.given = append(s.given, c.Grants...)
			return err
		},
		check: func(s *sweep) error {
			// A lease that nobody knows of would be one whose commit was taken for a failure.
			if len(s.given) != 1 || s.given[0].Token != 1 {
				return fmt.Errorf("%d grants were given, want one with token 1", len(s.given))
			}
			return s.expect(s.first, "LEASED", 2, task.DispatchNone)
		},
	},
	{
		name:   "start",
		before: func(s *sweep) { s.leaseKeyed(false) },
		do: func(s *sweep, n *dispatch.Dispatcher, _ *recovery.Recovery) error {
			got, err := n.Start(s.Context(), []dispatch.Ref{s.ref})
			if err == nil && got[0].Refusal != nil {
				err = errors.New(got[0].Refusal.Message)
			}
			return err
		},
		check: func(s *sweep) error { return s.expect(s.first, "RUNNING", 3, task.DispatchNone) },
	},
	{
		name:   "renew",
		before: func(s *sweep) { s.leaseKeyed(true) },
		do: func(s *sweep, n *dispatch.Dispatcher, _ *recovery.Recovery) error {
			got, err := n.Renew(s.Context(), []dispatch.Renewal{{Ref: s.ref, Progress: []byte("p")}})
			if err == nil && got[0].Refusal != nil {
				err = errors.New(got[0].Refusal.Message)
			}
			return err
		},
		check: func(s *sweep) error { return s.expect(s.first, "RUNNING", 3, task.DispatchNone) },
	},
	{
		name:   "finish",
		before: func(s *sweep) { s.leaseKeyed(true) },
		do: func(s *sweep, n *dispatch.Dispatcher, _ *recovery.Recovery) error {
			got, err := n.Finish(s.Context(), []dispatch.Finish{{Ref: s.ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded, Result: []byte("1")}})
			if err == nil && (got[0].Status != wire.FinishRecorded || got[0].TaskState != "SUCCEEDED") {
				err = fmt.Errorf("finish = %+v", got[0])
			}
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "SUCCEEDED", 4, task.DispatchNone), s.nextIsReady())
		},
	},
	{
		name:   "return",
		before: func(s *sweep) { s.leaseKeyed(false) },
		do: func(s *sweep, n *dispatch.Dispatcher, _ *recovery.Recovery) error {
			got, err := n.Return(s.Context(), []dispatch.Ref{s.ref})
			if err == nil && got[0].Refusal != nil {
				err = errors.New(got[0].Refusal.Message)
			}
			return err
		},
		check: func(s *sweep) error { // it is older than the next one, and so the first in line
			return errors.Join(s.expect(s.first, "WAITING", 3, task.DispatchReady), s.expect(s.next, "WAITING", 1, task.DispatchKeyBlocked))
		},
	},
	{
		name:   "expire a lease",
		before: func(s *sweep) { s.leaseKeyed(true); s.expire(s.ref.Attempt, false) },
		do: func(s *sweep, _ *dispatch.Dispatcher, r *recovery.Recovery) error {
			_, err := r.ExpireLeases(s.Context())
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "NEEDS_REVIEW", 4, task.DispatchNone), s.nextIsReady())
		},
	},
	{
		name: "expire a waiting task",
		before: func(s *sweep) {
			x := s.x
			x.StartWithin, x.Delay = -time.Second, -time.Minute
			s.first, s.next = s.w.Submit(x), s.w.Submit(s.x)
		},
		do: func(s *sweep, _ *dispatch.Dispatcher, r *recovery.Recovery) error {
			_, err := r.ExpireWaiting(s.Context())
			return err
		},
		check: func(s *sweep) error {
			return errors.Join(s.expect(s.first, "FAILED", 2, task.DispatchNone), s.expect(s.next, "WAITING", 1, task.DispatchReady))
		},
	},
	{
		name: "promote a delayed task",
		before: func(s *sweep) {
			x := s.x
			x.Delay = time.Hour
			s.first = s.w.Submit(x)
			s.w.Exec("UPDATE task SET available_at = 1, order_value = 1 WHERE id = ?", s.first)
		},
		do: func(s *sweep, _ *dispatch.Dispatcher, r *recovery.Recovery) error {
			_, err := r.PromoteDelayed(s.Context())
			return err
		},
		check: func(s *sweep) error { return s.expect(s.first, "WAITING", 1, task.DispatchReady) },
	},
}

// again does the act anew. What the broken try held is let go when the server notices
// that its connection is gone, and until then passed over.
func (s *sweep) again(a act) (err error) {
	for range 500 {
		if err = a.do(s, s.node, s.r); err != nil {
			return fmt.Errorf("the second try: %w", err)
		}
		if err = a.check(s); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Each call to the database fails in turn, before and after its effect.
func TestEveryCallMayFail(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		calls := dbfault.Open(t, db)
		node, err := dispatch.New(db.DB, "node", dispatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		broken, err := dispatch.New(calls.DB, "broken", dispatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range acts {
			for _, when := range dbfault.Failures {
				for nth := 1; ; nth++ {
					name := fmt.Sprintf("%s, call %d %v", a.name, nth, when)
					x := spec{Queue: w.NewQueue(name), Key: name}
					s := &sweep{scene: scene{t, w, node, recovery.New(db.DB, recovery.Config{}), db}, x: x, taker: w.Taker(1, x.Lane())}
					a.before(s)
					calls.Arm(nth, when)
					first := a.do(s, broken, recovery.New(calls.DB, recovery.Config{}))
					_, fired := calls.Disarm()
					if err := s.again(a); err != nil {
						t.Errorf("%s (first: %v): %v", name, first, err)
					}
					w.Exec("UPDATE queue SET paused = 1 WHERE id = ?", x.Queue)
					if !fired {
						if first != nil {
							t.Errorf("%s: nothing failed, yet %v", name, first)
						}
						if nth < 4 {
							t.Errorf("%s: only %d calls were made", a.name, nth-1)
						}
						break
					}
				}
			}
		}
	}, migrations.Server)
}

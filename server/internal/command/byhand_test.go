package command_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/task"
)

var reason = orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "why"}

// A command given by hand has no key: it leaves no record, names its actor in the audit,
// and is not repeated but refused.
func TestCommandsByHand(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		c := command.New(db.DB, command.Config{})
		caller := command.Caller{Namespace: w.Namespace, Application: w.Application, Actor: "alice"}
		id := w.Submit(dispatchtest.Task{Queue: w.NewQueue("q")})
		if got, err := c.Cancel(t.Context(), caller, id, reason, orbit.Digest{}); err != nil || got.Status != 200 || got.Replayed {
			t.Fatalf("Cancel = %+v, %v", got, err)
		}
		var conflict *command.StateConflictError
		if _, err := c.Cancel(t.Context(), caller, id, reason, orbit.Digest{}); !errors.As(err, &conflict) {
			t.Errorf("the same again = %v, want a state conflict", err)
		}
		if n := w.Int("SELECT COUNT(*) FROM idempotency"); n != 0 {
			t.Errorf("%d records", n)
		}
		if n := w.Int("SELECT COUNT(*) FROM audit WHERE actor = ? AND credential_id IS NULL AND target_id = ?", []byte("alice"), id); n != 1 {
			t.Errorf("%d audit rows of alice, want 1", n)
		}
	}, migrations.Server)
}

// A commit without an answer is looked up by its audit row, since there is no key: the
// command acts once, whatever became of the commit.
func TestUnknownCommitsByHand(t *testing.T) {
	for name, verdict := range map[string]dbfault.Verdict{"LostAnswer": dbfault.LoseAnswer, "CutBefore": dbfault.CutBefore} {
		t.Run(name, func(t *testing.T) {
			dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
				w := dispatchtest.New(t, db.DB)
				faults := dbfault.Open(t, db)
				var woken []int64
				c := command.New(faults.DB, command.Config{Wake: func(lanes []int64) { woken = append(woken, lanes...) }})
				caller := command.Caller{Namespace: w.Namespace, Application: w.Application, Actor: "alice"}
				queue := w.NewQueue("q")
				first := dispatchtest.Task{Queue: queue, Key: "k"}
				ready, parked := w.Submit(first), w.Submit(first)
				faults.OnCommit(func(n int) dbfault.Verdict {
					if n == 1 {
						return verdict
					}
					return dbfault.Pass
				})
				got, err := c.Cancel(t.Context(), caller, ready, reason, orbit.Digest{})
				if err != nil || got.Replayed || !strings.Contains(string(got.Data), `"state":"CANCELLED","revision":"2"`) {
					t.Fatalf("Cancel = %+v, %v", got, err)
				}
				if n := w.Int("SELECT COUNT(*) FROM audit WHERE target_id = ?", ready); n != 1 {
					t.Errorf("%d audit rows, want 1", n)
				}
				if s := w.Task(parked); s.Dispatch != task.DispatchReady || !slices.Contains(woken, first.Lane().ID()) {
					t.Errorf("the next task of the key has dispatch state %v, woken %v", s.Dispatch, woken)
				}
				q, err := c.CreateQueue(t.Context(), caller, orbit.CreateQueueRequest{Name: "other"}, orbit.Digest{})
				if err != nil || q.Status != 201 {
					t.Errorf("CreateQueue = %+v, %v", q, err)
				}
			}, migrations.Server)
		})
	}
}

// What lies in another namespace or queue is not told from what does not exist.
func TestCommandsOnWhatDoesNotExist(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		c := command.New(db.DB, command.Config{})
		queue := w.NewQueue("q")
		id := w.Submit(dispatchtest.Task{Queue: queue})
		here := command.Caller{Namespace: w.Namespace, Application: w.Application, Key: "k"}
		elsewhere, restricted := here, here
		elsewhere.Namespace = w.NewNamespace("other")
		restricted.MayUse = func(sqldb.ID) bool { return false }
		for _, caller := range []command.Caller{elsewhere, restricted} {
			_, cancel := c.Cancel(t.Context(), caller, id, reason, orbit.Digest{})
			_, review := c.Review(t.Context(), caller, id, orbit.ReviewTaskRequest{ExpectedRevision: 1}, orbit.Digest{})
			_, retry := c.Retry(t.Context(), caller, id, orbit.RetryTaskRequest(reason), orbit.Digest{})
			_, update := c.UpdateQueue(t.Context(), caller, queue, orbit.UpdateQueueRequest{ExpectedRevision: 1}, orbit.Digest{})
			for i, err := range []error{cancel, review, retry, update} {
				if !errors.Is(err, command.ErrNotFound) {
					t.Errorf("command %d = %v, want ErrNotFound", i, err)
				}
			}
		}
	}, migrations.Server)
}

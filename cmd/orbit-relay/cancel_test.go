package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/outbox"
)

// enqueueCancel freezes a cancel in a transaction that ends in commit or rollback.
func (s *site) enqueueCancel(c outbox.Cancel, commit bool) (r outbox.Receipt, err error) {
	s.t.Helper()
	box, boxErr := outbox.New(s.db.Dialect(), outbox.Config{})
	if boxErr != nil {
		s.t.Fatal(boxErr)
	}
	errRollback := errors.New("rolled back")
	txErr := s.db.Tx(s.t.Context(), func(tx *sqldb.Tx) error {
		r, err = box.EnqueueCancel(s.t.Context(), tx.Tx, c)
		if err != nil || commit {
			return nil
		}
		return errRollback
	})
	if txErr != nil && !errors.Is(txErr, errRollback) {
		s.t.Fatal(txErr)
	}
	return r, err
}

// OUT-022, AMB-062: a cancel is frozen with the business change, sent under its own key until
// it is answered, and settled by the exact answer; beside submits, which go in batches.
func TestACancelIsFrozenAndSentLikeASubmit(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			submits := s.enqueue("a", "b")
			once := func(want int) {
				t.Helper()
				if code, out, text := call(t.Context(), s.env(), "once", "--target", "shop"); code != want {
					t.Fatalf("once = %d %q %q, want %d", code, out, text, want)
				}
			}
			once(0)
			cancel := func(key, task string, revision uint64) outbox.Cancel {
				return outbox.Cancel{Key: key, Target: "shop", TaskID: task, Request: orbit.CancelTaskRequest{ExpectedRevision: revision, Reason: "order was withdrawn"}}
			}
			first, second := s.row(submits[0]).TaskID, s.row(submits[1]).TaskID
			if _, err := s.enqueueCancel(cancel("undo", first, 1), false); err != nil {
				t.Fatal(err)
			}
			once(0)
			if got := s.stateOf(first); got != orbit.StateWaiting {
				t.Fatalf("after a rollback the task is %s", got)
			}
			good, err := s.enqueueCancel(cancel("undo", first, 1), true)
			if err != nil {
				t.Fatal(err)
			}
			again, err := s.enqueueCancel(cancel("undo", first, 1), true)
			if err != nil || !again.Existing || again.Seq != good.Seq {
				t.Errorf("the same cancel again = %+v, %v", again, err)
			}
			var conflict *outbox.ConflictError
			if _, err := s.enqueueCancel(cancel("undo", first, 2), true); !errors.As(err, &conflict) || conflict.Seq != good.Seq {
				t.Errorf("the same key with other content = %v, want a conflict", err)
			}
			stale, err := s.enqueueCancel(cancel("undo", second, 7), true) // the same key for another task
			if err != nil {
				t.Fatal(err)
			}
			more := s.enqueue("c", "d", "e")
			once(0)
			if !s.delivered(more) {
				t.Error("submits beside cancels are not delivered")
			}
			if r := s.row(good.Seq); r.State != outbox.Delivered || r.TaskID != first || r.CancelTaskID != first || r.Operation != outbox.OperationCancel || r.AcceptedAt.IsZero() {
				t.Errorf("the cancel is %+v", r)
			}
			if got := s.stateOf(first); got != orbit.StateCancelled {
				t.Errorf("the task is %s", got)
			}
			if r := s.row(stale.Seq); r.State != outbox.Blocked || r.Last.Status != 409 || r.Last.Code != orbit.CodeStateConflict || r.Last.Unknown || s.stateOf(second) != orbit.StateWaiting {
				t.Errorf("the cancel of a revision that is not there is %+v", r)
			}
			var list listed
			s.operateJSON(&list, "list", "--target", "shop", "--key", "undo", "--task", first)
			if len(list.Rows) != 1 || list.Rows[0].Row != good.Seq || list.Rows[0].Operation != "cancel" || list.Rows[0].CancelTaskID != first {
				t.Errorf("list of the cancel = %+v", list)
			}
			s.operate(2, "list", "--target", "shop", "--task", first)
			s.operate(0, "discard", fmt.Sprint(stale.Seq), "--reason", "looked at")
			s.operate(0, "verify")
			if _, err := s.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET handler = ? WHERE seq = ?", []byte("x"), good.Seq); err != nil {
				t.Fatal(err)
			}
			s.operate(1, "verify")
		})
	}
}

func (s *site) stateOf(task string) string {
	s.t.Helper()
	c, err := orbit.NewClient(s.url, s.credentials.Token, orbit.ClientConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	found, err := c.GetTask(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return found.State
}

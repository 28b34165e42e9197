package command_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// CAN-007, CAN-019, LIC-006, LIC-014, REF-QUOTA-001: cancels race claims, starts and results
// over few keys and under limits. Every task ends, each by one of them; no key and no place
// under a limit is lost.
func TestCancelsRaceWorkers(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		queue := w.NewQueue("q")
		limit(t, w, queue)
		const tasks, workers, cancellers = 48, 3, 3
		var ids []sqldb.ID
		for i := range tasks {
			ids = append(ids, w.Submit(dispatchtest.Task{Queue: queue, Key: []string{"", "a", "b"}[i%3]}))
		}
		limit(t, w, queue) // counts what has been put there by hand
		var racing sync.WaitGroup
		for i := range cancellers {
			racing.Go(func() { cancelAll(t, w, i, ids) })
		}
		for range workers {
			racing.Go(func() { work(t, w, queue) })
		}
		racing.Wait()
		if n := w.Int("SELECT COUNT(*) FROM task WHERE state NOT IN (5, 7)"); n != 0 {
			t.Errorf("%d tasks have neither succeeded nor been cancelled", n)
		}
		queueLeft := w.Int("SELECT unfinished FROM queue WHERE id = ?", queue)
		applicationLeft := w.Int("SELECT unfinished FROM application_quota WHERE application_id = ?", w.Application)
		if queueLeft != 0 || applicationLeft != 0 {
			t.Errorf("%d and %d unfinished tasks are counted, none is left", queueLeft, applicationLeft)
		}
	}, migrations.Server)
}

func limit(t *testing.T, w *dispatchtest.World, queue sqldb.ID) {
	t.Helper()
	err := w.DB.Tx(t.Context(), func(tx *sqldb.Tx) error {
		if err := quota.LimitApplication(t.Context(), tx, w.Application, 1000); err != nil {
			return err
		}
		return quota.LimitQueue(t.Context(), tx, queue, 1000)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// cancelAll cancels each task at whatever revision it finds it.
func cancelAll(t *testing.T, w *dispatchtest.World, canceller int, ids []sqldb.ID) {
	c := command.New(w.DB, command.Config{})
	caller := command.Caller{Namespace: w.Namespace, Application: w.Application, Key: fmt.Sprint("canceller-", canceller)}
	for i := range ids {
		id := ids[(i*7+canceller*16)%len(ids)]
		var revision uint64
		if err := w.DB.Read().QueryRowContext(t.Context(), "SELECT revision FROM task WHERE id = ?", id).Scan(&revision); err != nil {
			t.Errorf("read revision: %v", err)
		}
		_, err := c.Cancel(t.Context(), caller, id, orbit.CancelTaskRequest{ExpectedRevision: revision, Reason: "why"}, orbit.Digest{})
		var conflict *command.StateConflictError
		if err != nil && !errors.As(err, &conflict) {
			t.Errorf("cancel: %v", err)
		}
	}
}

// work claims, starts and finishes until nothing is left.
func work(t *testing.T, w *dispatchtest.World, queue sqldb.ID) {
	d, err := dispatch.New(w.DB, "node", dispatch.Config{})
	if err != nil {
		t.Error(err)
		return
	}
	lanes := []dispatch.Lane{dispatchtest.Task{Queue: queue}.Lane(), dispatchtest.Task{Queue: queue, Key: "a"}.Lane()}
	taker := w.Taker(2, lanes...)
	for left(t, w) > 0 && !t.Failed() {
		got, err := d.Claim(t.Context(), lanes, []dispatch.Taker{taker})
		if err != nil {
			t.Errorf("claim: %v", err)
			return
		}
		for _, g := range got.Grants {
			ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: w.Namespace}
			started, err := d.Start(t.Context(), []dispatch.Ref{ref})
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			if started[0].Refusal != nil {
				continue // it was cancelled before (CAN-021)
			}
			done := dispatch.Finish{Ref: ref, Receipt: g.Attempt[:], Outcome: task.OutcomeSucceeded}
			if got, err := d.Finish(t.Context(), []dispatch.Finish{done}); err != nil || got[0].Refusal != nil {
				t.Errorf("finish: %+v, %v", got, err)
				return
			}
		}
	}
}

func left(t *testing.T, w *dispatchtest.World) (n int) {
	err := w.DB.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM task WHERE state IN (1, 2, 3)").Scan(&n)
	if err != nil {
		t.Errorf("count tasks: %v", err)
	}
	return n
}

// REF-QUOTA-001, REF-QRES-002: limits that are set, changed and lifted while tasks come and
// are cancelled. The counts stay true, and nobody is refused for another reason than a
// limit or a revision.
func TestLimitsChangeUnderLoad(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		e := newEngine(t, db)
		queue := e.w.NewQueue("q")
		const rounds = 12
		var racing sync.WaitGroup
		for range 3 {
			racing.Go(func() { e.submitAndCancel(t, queue, rounds) })
		}
		racing.Go(func() { e.changeQueue(t, queue, rounds) })
		racing.Go(func() { e.changeApplication(t, rounds) })
		racing.Wait()
		left := e.w.Int("SELECT COUNT(*) FROM task WHERE state IN (1, 2, 3, 4)")
		queueLeft := e.w.Int("SELECT unfinished FROM queue WHERE id = ? AND max_backlog > 0", queue)
		applicationLeft := e.w.Int("SELECT unfinished FROM application_quota WHERE application_id = ? AND max_unfinished > 0", e.w.Application)
		if queueLeft != left || applicationLeft != left || left == 0 {
			t.Errorf("%d and %d unfinished tasks are counted, %d are left", queueLeft, applicationLeft, left)
		}
	}, migrations.Server)
}

func (e *engine) caller() command.Caller {
	return command.Caller{Namespace: e.w.Namespace, Application: e.w.Application, Credential: e.w.Credential, Key: sqldb.NewID().String()}
}

// submitAndCancel leaves every other task.
func (e *engine) submitAndCancel(t *testing.T, queue sqldb.ID, rounds int) {
	for i := range rounds {
		s, err := orbit.ParseSubmission(fmt.Appendf(nil, `{"queue_id":%q,"handler":"h","handler_version":"v1","payload_version":"p1","payload":{}}`, queue))
		if err != nil {
			t.Error(err)
			return
		}
		o := e.committer.Submit(t.Context(), []accept.Item{{Namespace: e.w.Namespace, Queue: queue, Credential: e.w.Credential, Key: sqldb.NewID().String(), Submission: s}})[0]
		switch {
		case errors.Is(o.Err, quota.ErrQueueFull), errors.Is(o.Err, quota.ErrApplicationFull):
			continue
		case o.Err != nil:
			t.Errorf("submit: %v", o.Err)
			return
		case i%2 == 0:
			continue
		}
		var made orbit.Task
		if err := made.UnmarshalJSON(o.Receipt.AppendTask(nil)); err != nil {
			t.Error(err)
			return
		}
		id, err := sqldb.ParseID(made.ID)
		if err == nil {
			_, err = e.commands.Cancel(t.Context(), e.caller(), id, reason, orbit.Digest{})
		}
		if err != nil {
			t.Errorf("cancel: %v", err)
		}
	}
}

// limits are what the changes set in turn; the last of a run is a limit.
var limits = []uint64{0, 5, 1000}

func (e *engine) changeQueue(t *testing.T, queue sqldb.ID, rounds int) {
	for i := range rounds {
		r := orbit.UpdateQueueRequest{ExpectedRevision: uint64(i + 1), MaxBacklog: &limits[i%3], MaxConcurrency: &limits[i%3]}
		if _, err := e.commands.UpdateQueue(t.Context(), e.caller(), queue, r, orbit.Digest{}); err != nil {
			t.Errorf("update queue: %v", err)
			return
		}
	}
}

func (e *engine) changeApplication(t *testing.T, rounds int) {
	for i := range rounds {
		r := orbit.UpdateApplicationRequest{ExpectedRevision: uint64(i + 1), MaxUnfinished: &limits[i%3], MaxActiveAttempts: &limits[i%3]}
		if _, err := e.commands.UpdateApplication(t.Context(), e.caller(), r, orbit.Digest{}); err != nil {
			t.Errorf("update application: %v", err)
			return
		}
	}
}

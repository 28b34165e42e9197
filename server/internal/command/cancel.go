package command

import (
	"context"
	"errors"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Cancel cancels a task. Of a running one only the intent is recorded: the receipt shows
// it RUNNING, with status 202, and its worker is told (CAN-004). What has happened
// outside is not undone (CAN-017). Its errors are ErrNotFound, a [*StateConflictError],
// idempotency.ErrConflict, or one that means that the outcome is unknown.
func (c *Commands) Cancel(ctx context.Context, caller Caller, id sqldb.ID, r orbit.CancelTaskRequest, content orbit.Digest) (Receipt, error) {
	return c.editTask(ctx, caller, id, edit{
		op: idempotency.Cancel, expected: r.ExpectedRevision, content: content,
		apply: func(ctx context.Context, _ *sqldb.Tx, s *settle.Settlement, t *settle.Task) (audit, error) {
			_, err := s.Cancel(ctx, t, r.Reason, caller.Credential)
			return audit{action: actionCancel, note: r.Reason}, refuseCancel(t, err)
		},
		after: func(t *settle.Task) {
			if t.State == task.Running {
				c.cfg.Cancelled(t.AttemptID, t.Epoch, r.Reason)
			}
		},
	})
}

// refuseCancel tells the sender why the machine forbids its cancel (CAN-013).
func refuseCancel(t *settle.Task, err error) error {
	var forbidden *task.ForbiddenError
	switch {
	case !errors.As(err, &forbidden):
		return err
	case t.CancelAt.Valid && !t.State.Terminal():
		return conflictf("a cancel of the task has been requested already")
	}
	return conflictf("the task is %v: it cannot be cancelled", t.State)
}

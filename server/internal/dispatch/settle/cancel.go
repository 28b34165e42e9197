package settle

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// ReasonCancelled is the reason of an attempt that a cancel ended before its start.
const ReasonCancelled = "cancelled"

// Cancel records on a locked task that somebody wants it cancelled, and why. A task that
// waits, or whose attempt has not started, ends with it and gives back what it held; of a
// running task only the intent is recorded, and its permits stay (CAN-004, CAN-022). What
// has an unknown effect is left to a review (CAN-014, CAN-015). It changes nothing if the
// machine forbids the act ([*task.ForbiddenError]).
func (s *Settlement) Cancel(ctx context.Context, t *Task, reason string, credential sqldb.ID) (task.Change, error) {
	var (
		c   task.Change
		err error
	)
	switch t.State {
	case task.Waiting:
		c, err = s.LeaveLine(t, task.ActCancel, "", credential)
	case task.Leased:
		c, err = s.cancelLeased(t, credential)
	default:
		c, err = s.keepIntent(t, credential)
	}
	if err != nil {
		return c, err
	}
	t.CancelAt = micros(s.Now)
	return c, s.saveIntent(ctx, t, reason, c.Event == task.EventCancelAsked)
}

func (s *Settlement) cancelLeased(t *Task, credential sqldb.ID) (task.Change, error) {
	a := s.attempts[t.AttemptID]
	if a == nil {
		return task.Change{}, fmt.Errorf("%w: task %v has no attempt", ErrInconsistent, t.ID)
	}
	return s.EndAttempt(a, Ending{
		Act: task.ActCancel, Outcome: task.OutcomeCancelled, Reason: ReasonCancelled, Credential: credential,
	})
}

// keepIntent notes the intent on a task that stays as it is.
func (s *Settlement) keepIntent(t *Task, credential sqldb.ID) (task.Change, error) {
	c, err := task.Apply(t.State, task.ActCancel, t.facts(s.Now))
	if err != nil {
		return c, err
	}
	t.Revision++
	s.note(t, c.Event, t.AttemptID, credential, "")
	return c, nil
}

const saveIntent = `
UPDATE task
SET cancel_requested_at = ?, cancel_reason = ?
WHERE id = ?`

const saveIntentAlone = `
UPDATE task
SET cancel_requested_at = ?, cancel_reason = ?, revision = revision + 1, updated_at = ?
WHERE id = ?`

// saveIntent writes the intent. Alone tells that nothing else of the row changes: a task
// that moves gets its revision with its move.
func (s *Settlement) saveIntent(ctx context.Context, t *Task, reason string, alone bool) error {
	query, args := saveIntent, []any{s.Now, []byte(reason), t.ID}
	if alone {
		query, args = saveIntentAlone, []any{s.Now, []byte(reason), s.Now, t.ID}
	}
	if _, err := s.tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("save cancel intent: %w", err)
	}
	return nil
}

package settle

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// decisions are the acts of a review by the state that it decides on.
var decisions = map[task.State]task.Act{
	task.Succeeded: task.ActDecideSucceeded,
	task.Failed:    task.ActDecideFailed,
	task.Cancelled: task.ActDecideCancelled,
}

// Decide ends the review of a locked task (STATE-015): the task goes to the state to, and
// its effect is no longer unknown. A result, JSON of the reviewer, becomes the task's. It
// changes nothing if the task is not in review ([*task.ForbiddenError]).
func (s *Settlement) Decide(ctx context.Context, t *Task, to task.State, result []byte, credential sqldb.ID) (task.Change, error) {
	act, known := decisions[to]
	if !known {
		return task.Change{}, fmt.Errorf("a review cannot decide that a task is %v", to)
	}
	c, err := task.Apply(t.State, act, t.facts(s.Now))
	if err != nil {
		return c, err
	}
	s.change(t, c, Ending{Act: act, Credential: credential}, sqldb.ID{})
	if len(result) == 0 {
		return c, nil
	}
	if _, err := s.tx.ExecContext(ctx, "UPDATE task SET result = ? WHERE id = ?", result, t.ID); err != nil {
		return c, fmt.Errorf("save result of a review: %w", err)
	}
	return c, nil
}

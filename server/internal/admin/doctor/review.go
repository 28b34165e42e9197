package doctor

import (
	"context"
	"database/sql"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

const (
	// countReviews reads one range of task_state for each queue, and no more tasks than are
	// counted.
	countReviews = `
SELECT COUNT(*)
FROM (
  SELECT 1
  FROM queue q
  {join} task t{by} ON t.queue_id = q.id AND t.state = ?
  LIMIT ?
) waiting`

	// selectOldestReview reads the first task of each of these ranges. Without all columns of
	// the index in its order MySQL sorts the whole range.
	selectOldestReview = `
SELECT MIN(first)
FROM (
  SELECT (
    SELECT t.created_at
    FROM task t{by}
    WHERE t.queue_id = q.id
      AND t.state = ?
    ORDER BY t.queue_id, t.state, t.created_at
    LIMIT 1
  ) AS first
  FROM queue q
) oldest`
)

// byState completes a statement that reads tasks by the index of queues and states, for one
// queue after the other: with few queues the optimizers would read all tasks first.
func (e *examiner) byState(statement string) string {
	d, join := e.db.Dialect(), "STRAIGHT_JOIN"
	if d == sqldb.SQLite {
		join = "CROSS JOIN"
	}
	return strings.NewReplacer("{by}", d.ByIndex("task_state"), "{join}", join).Replace(statement)
}

// reviews tells whether tasks wait for a person.
func (e *examiner) reviews(ctx context.Context) ([]Finding, error) {
	now, err := e.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	var n int
	err = e.db.Read().QueryRowContext(ctx, e.byState(countReviews), task.NeedsReview, maxCounted).Scan(&n)
	if err != nil {
		return nil, err
	}
	var oldest sql.NullInt64
	err = e.db.Read().QueryRowContext(ctx, e.byState(selectOldestReview), task.NeedsReview).Scan(&oldest)
	switch {
	case err != nil:
		return nil, err
	case n == 0 || !oldest.Valid:
		return ok("no task waits for a review"), nil
	}
	waits := "wait"
	if n == 1 {
		waits = "waits"
	}
	return warn("find them by orbit-admin tasks list --state NEEDS_REVIEW, look at what they did, and decide by orbit-admin tasks review",
		"%s %s for a review, the oldest made %v ago", counted(n, "task"), waits, ago(now, oldest.Int64)), nil
}

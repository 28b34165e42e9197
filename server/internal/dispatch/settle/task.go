package settle

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// maxUnstarted is how many un-started claims in a row end a task (AMB-034).
const maxUnstarted = 100

// A Task is what a transaction knows of a task that it has locked.
type Task struct {
	ID              sqldb.ID
	Namespace       sqldb.ID
	Queue           sqldb.ID
	Handler         string
	HandlerVersion  string
	State           task.State
	Revision        int64
	Epoch           int64    // of the newest attempt
	AttemptID       sqldb.ID // the live attempt, or zero
	StartDeadlineAt sql.NullInt64
	DeadlineAt      int64
	ExpireAt        sql.NullInt64
	Idempotent      bool
	Retry           orbit.RetryPolicy
	Started         int // attempts whose start was confirmed
	Unstarted       int // un-started claims in a row
	Uncertain       bool
	CancelAt        sql.NullInt64
	Key             Digest
	Keyed           bool
	Lane            int64
	Dispatch        task.DispatchState
}

const selectTasks = `
SELECT id, namespace_id, queue_id, handler, handler_version, state, revision, epoch, attempt_id,
       start_deadline_at, deadline_at, expire_at, recovery_safety,
       max_attempts, attempt_timeout_ms, initial_delay_ms, max_delay_ms, started_count, unstarted_count,
       effect_uncertain, cancel_requested_at, concurrency_key_digest, lane, dispatch_state
FROM task{by}
WHERE id IN `

// lockTasks reads and locks tasks in the order of their ids. Missing ones are left out.
func lockTasks(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID) (map[sqldb.ID]*Task, error) {
	ids = SortedIDs(ids)
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.QueryContext(ctx, ByID(tx.Dialect(), selectTasks, len(ids))+" ORDER BY id"+tx.Dialect().ForUpdate, IDArgs(ids)...)
	if err != nil {
		return nil, fmt.Errorf("lock tasks: %w", err)
	}
	defer rows.Close()
	tasks := make(map[sqldb.ID]*Task, len(ids))
	for rows.Next() {
		t, err := scanTask(rows)
		if err != nil {
			return nil, fmt.Errorf("lock tasks: %w", err)
		}
		tasks[t.ID] = t
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock tasks: %w", err)
	}
	return tasks, nil
}

func scanTask(rows *sql.Rows) (*Task, error) {
	var (
		t      Task
		safety int
		digest []byte
	)
	err := rows.Scan(&t.ID, &t.Namespace, &t.Queue, &t.Handler, &t.HandlerVersion, &t.State, &t.Revision, &t.Epoch, &t.AttemptID,
		&t.StartDeadlineAt, &t.DeadlineAt, &t.ExpireAt, &safety,
		&t.Retry.MaxAttempts, &t.Retry.AttemptTimeoutMS, &t.Retry.InitialDelayMS, &t.Retry.MaxDelayMS, &t.Started, &t.Unstarted,
		&t.Uncertain, &t.CancelAt, &digest, &t.Lane, &t.Dispatch)
	if err != nil {
		return nil, err
	}
	t.Idempotent = safety == task.SafetyIdempotent
	t.Key, t.Keyed, err = ParseDigest(digest)
	return &t, err
}

// Claim gives a task that waits to a new attempt, in memory.
func (t *Task) Claim(a *Attempt) {
	t.State, t.Dispatch, t.AttemptID, t.Epoch = task.Leased, task.DispatchNone, a.ID, a.Epoch
	t.ExpireAt = sql.NullInt64{}
	t.Revision++
}

// facts returns what the state machine wants to know, at the time now.
func (t *Task) facts(now int64) task.Facts {
	return task.Facts{
		Uncertain:    t.Uncertain,
		CancelWanted: t.CancelAt.Valid,
		Idempotent:   t.Idempotent,
		AttemptsLeft: uint64(t.Started) < t.Retry.MaxAttempts,
		TimeLeft:     t.retryAt(now) < t.DeadlineAt,
		NeverStarts:  t.Unstarted+1 >= maxUnstarted,
	}
}

// retryAt is when the next attempt may begin after one that ended now (REF-RETRY-002).
func (t *Task) retryAt(now int64) int64 {
	delay := orbit.RetryDelay(t.Retry, t.Started)
	return now + int64(delay/time.Microsecond)
}

// TooLate tells which deadline has passed, so that the task may not begin, or "".
func (t *Task) TooLate(now int64) string {
	switch {
	case t.DeadlineAt <= now:
		return ReasonDeadline
	case t.StartDeadlineAt.Valid && t.StartDeadlineAt.Int64 <= now:
		return ReasonStartDeadline
	}
	return ""
}

// knownLane reports whether the stored lane is the task's. A task from before lanes
// existed has none until the timer gives it one.
func (t *Task) knownLane() bool {
	return t.Lane == task.Lane(t.Queue, t.Handler, t.HandlerVersion, t.Keyed)
}

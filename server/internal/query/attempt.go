package query

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

const (
	// pageBytes ends a page early: clients read at most 2 MiB of an answer.
	pageBytes = 1 << 20
	// escaped is how much longer a byte of text can become in JSON.
	escaped = 6
)

// An AttemptPage is a page of the attempts of a task, the newest first.
type AttemptPage struct {
	Attempts []*orbit.Attempt
	// NextEpoch is the epoch below which the next page lies; 0 on the last page.
	NextEpoch int64
}

const attemptColumns = `
SELECT id, number, epoch, queue_id, process_id, state, outcome, retryable, concurrency_token,
       lease_until, claimed_at, started_at, ended_at, error_text, progress, progress_at, result
FROM attempt`

const selectAttempts = attemptColumns + `
WHERE task_id = ?
  AND epoch < ?
ORDER BY epoch DESC
LIMIT ?`

// Attempts reads a page of at most limit attempts of a task below an epoch; 0 means from
// the newest on. The page ends early when it has become long. The error is [ErrNotFound] if
// the task is not in scope.
func (r *Reader) Attempts(ctx context.Context, s Scope, id sqldb.ID, below int64, limit int) (AttemptPage, error) {
	if _, err := r.find(ctx, s, id); err != nil {
		return AttemptPage{}, err
	}
	page, err := r.attempts(ctx, id, below, limit)
	if err != nil {
		return AttemptPage{}, fmt.Errorf("read attempts: %w", err)
	}
	return page, r.addReasons(ctx, id, page.Attempts)
}

func (r *Reader) attempts(ctx context.Context, id sqldb.ID, below int64, limit int) (page AttemptPage, err error) {
	if below == 0 {
		below = math.MaxInt64
	}
	size := 0
	rows, err := r.db.Read().QueryContext(ctx, selectAttempts, id, below, limit+1)
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		if n := len(page.Attempts); n == limit || size > pageBytes {
			page.NextEpoch = int64(page.Attempts[n-1].Epoch)
			return false, nil
		}
		a, err := scanAttempt(rows, r.db.Dialect())
		if err != nil {
			return false, err
		}
		a.TaskID = id.String()
		page.Attempts = append(page.Attempts, a)
		size += len(a.Result) + escaped*(len(a.ErrorText)+len(a.Progress))
		return true, nil
	})
	return page, err
}

const selectAttempt = attemptColumns + `
WHERE id = ?
  AND task_id = ?`

// Attempt reads one attempt of a task. The error is [ErrNotFound] if the task is not in
// scope or has no such attempt.
func (r *Reader) Attempt(ctx context.Context, s Scope, taskID, id sqldb.ID) (*orbit.Attempt, error) {
	if _, err := r.find(ctx, s, taskID); err != nil {
		return nil, err
	}
	a, err := scanAttempt(r.db.Read().QueryRowContext(ctx, selectAttempt, id, taskID), r.db.Dialect())
	if err := found(err, "read attempt"); err != nil {
		return nil, err
	}
	a.TaskID = taskID.String()
	return a, r.addReasons(ctx, taskID, []*orbit.Attempt{a})
}

func scanAttempt(row interface{ Scan(...any) error }, d *sqldb.Dialect) (*orbit.Attempt, error) {
	var (
		id, queue, process sqldb.ID
		state              task.AttemptState
		outcome            sql.NullInt64
		lease, claimed     int64
		started, ended     sql.NullInt64
		progressed         sql.NullInt64
		a                  orbit.Attempt
		result             []byte
	)
	err := row.Scan(&id, &a.Number, &a.Epoch, &queue, &process, &state, &outcome, &a.Retryable,
		d.ScanUint64(&a.ConcurrencyToken), &lease, &claimed, &started, &ended, &a.ErrorText, &a.Progress, &progressed, &result)
	if err != nil {
		return nil, err
	}
	a.ID, a.QueueID, a.WorkerID = id.String(), queue.String(), process.String()
	a.State, a.Outcome = attemptState(state), outcomeName(task.Outcome(outcome.Int64))
	a.ClaimedAt, a.StartedAt, a.EndedAt = sqldb.Time(claimed), timeOf(started), timeOf(ended)
	a.ProgressAt, a.Result = timeOf(progressed), result
	if a.State != orbit.AttemptEnded {
		until := sqldb.Time(lease)
		a.LeaseUntil = &until
	}
	// The version that the release reached belongs to no attempt (TOK-017). An exhausted
	// key has no such version.
	if a.Outcome == orbit.OutcomeUnknown && a.ConcurrencyToken != 0 && a.ConcurrencyToken < math.MaxUint64 {
		a.FenceToken = a.ConcurrencyToken + 1
	}
	return &a, nil
}

func attemptState(s task.AttemptState) string {
	switch s {
	case task.AttemptLeased:
		return orbit.AttemptLeased
	case task.AttemptRunning:
		return orbit.AttemptRunning
	}
	return orbit.AttemptEnded
}

// outcomeName is the contract's name of a stored outcome. Whether an attempt that was
// never started expired or was handed back, its event tells.
func outcomeName(o task.Outcome) string {
	if o == task.OutcomeNotStarted {
		return orbit.OutcomeExpired
	}
	return o.String()
}

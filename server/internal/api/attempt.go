package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// pageBytes ends a page of attempts early: clients read at most 2 MiB of an answer.
const pageBytes = 1 << 20

// listAttempts serves GET /v1/tasks/{id}/attempts: the history of a task, newest first.
func (c *call) listAttempts() error {
	if err := c.require(auth.TasksRead); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	parameters, err := c.query("limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := limitOf(parameters)
	if err != nil {
		return err
	}
	id, err := sqldb.ParseID(c.subject)
	if err != nil {
		return errNoTask
	}
	below, err := attemptCursor(parameters, id)
	if err != nil {
		return err
	}
	if err := c.findTask(ctx, id); err != nil {
		return err
	}
	return c.respondAttempts(ctx, id, below, limit)
}

func (c *call) respondAttempts(ctx context.Context, id sqldb.ID, below int64, limit int) error {
	attempts, more, err := c.readAttempts(ctx, id, below, limit)
	if err != nil {
		return err
	}
	if err := c.readReasons(ctx, id, attempts); err != nil {
		return err
	}
	data := []byte(`{"items":[`)
	for i, a := range attempts {
		if i > 0 {
			data = append(data, ',')
		}
		data = a.AppendJSON(data)
	}
	data = append(data, ']')
	if more {
		last := attempts[len(attempts)-1]
		data = append(append(data, `,"next_cursor":"`...), newAttemptCursor(id, int64(last.Epoch))...)
		data = append(data, '"')
	}
	return c.respond(http.StatusOK, append(data, '}'))
}

const selectQueue = `
SELECT queue_id
FROM task
WHERE id = ?
  AND namespace_id = ?`

// findTask fails unless the caller may see the task.
func (c *call) findTask(ctx context.Context, id sqldb.ID) error {
	var queue sqldb.ID
	err := c.cfg.DB.Read().QueryRowContext(ctx, selectQueue, id, c.principal.Namespace).Scan(&queue)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errNoTask
	case err != nil:
		return fmt.Errorf("read task: %w", err)
	case !c.principal.MayUse(queue):
		return errNoTask
	}
	return nil
}

const selectAttempts = `
SELECT id, number, epoch, queue_id, process_id, state, outcome, retryable, concurrency_token,
       lease_until, claimed_at, started_at, ended_at, error_text, result
FROM attempt
WHERE task_id = ?
  AND epoch < ?
ORDER BY epoch DESC
LIMIT ?`

// readAttempts reads a page of attempts below an epoch and reports whether there are more.
func (c *call) readAttempts(ctx context.Context, id sqldb.ID, below int64, limit int) (page []*orbit.Attempt, more bool, err error) {
	rows, err := c.cfg.DB.Read().QueryContext(ctx, selectAttempts, id, below, limit+1)
	if err != nil {
		return nil, false, fmt.Errorf("read attempts: %w", err)
	}
	defer rows.Close()
	size := 0
	for rows.Next() {
		if len(page) == limit || size > pageBytes {
			return page, true, nil
		}
		a, err := scanAttempt(rows, c.cfg.DB.Dialect())
		if err != nil {
			return nil, false, fmt.Errorf("read attempts: %w", err)
		}
		a.TaskID = id.String()
		page = append(page, a)
		size += len(a.Result) + len(a.ErrorText)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read attempts: %w", err)
	}
	return page, false, nil
}

func scanAttempt(rows *sql.Rows, d *sqldb.Dialect) (*orbit.Attempt, error) {
	var (
		id, queue, process sqldb.ID
		state              int
		outcome            sql.NullInt64
		lease, claimed     int64
		started, ended     sql.NullInt64
		a                  orbit.Attempt
		result             []byte
	)
	err := rows.Scan(&id, &a.Number, &a.Epoch, &queue, &process, &state, &outcome, &a.Retryable,
		d.ScanUint64(&a.ConcurrencyToken), &lease, &claimed, &started, &ended, &a.ErrorText, &result)
	if err != nil {
		return nil, err
	}
	a.ID, a.QueueID, a.WorkerID = id.String(), queue.String(), process.String()
	a.State, a.Outcome = attemptState(task.AttemptState(state)), outcomeName(task.Outcome(outcome.Int64))
	a.ClaimedAt, a.StartedAt, a.EndedAt = sqldb.Time(claimed), timeOf(started), timeOf(ended)
	a.Result = result
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

const selectReasons = `
SELECT attempt_id, reason
FROM task_event
WHERE task_id = ?
  AND reason <> ?
  AND attempt_id IN %s
ORDER BY seq`

// readReasons adds why the attempts ended, where their last event tells it.
func (c *call) readReasons(ctx context.Context, id sqldb.ID, attempts []*orbit.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	byID := map[string]*orbit.Attempt{}
	args := []any{id, []byte{}}
	for _, a := range attempts {
		byID[a.ID] = a
		attempt, err := sqldb.ParseID(a.ID)
		if err != nil {
			return err
		}
		args = append(args, attempt)
	}
	query := fmt.Sprintf(selectReasons, sqldb.Placeholders(len(attempts)))
	rows, err := c.cfg.DB.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read events of attempts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var attempt sqldb.ID
		var reason string
		if err := rows.Scan(&attempt, &reason); err != nil {
			return fmt.Errorf("read events of attempts: %w", err)
		}
		explain(byID[attempt.String()], reason)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read events of attempts: %w", err)
	}
	return nil
}

// explain adds the reason of an end that no worker reported.
func explain(a *orbit.Attempt, reason string) {
	switch a.Outcome {
	case orbit.OutcomeUnknown, orbit.OutcomeExpired:
		a.Reason = reason
	}
	if a.Outcome == orbit.OutcomeExpired && reason == settle.ReasonReturned {
		a.Outcome = orbit.OutcomeReturned
	}
}

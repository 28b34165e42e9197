package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/task"
)

// getTask serves GET /v1/tasks/{id}.
func (c *call) getTask() error {
	if err := c.require(auth.TasksRead); err != nil {
		return err
	}
	if err := c.noQuery(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	id, err := sqldb.ParseID(c.subject)
	if err != nil {
		return errNoTask // AMB-071
	}
	t, queue, err := c.readTask(ctx, id)
	if err != nil {
		return err
	}
	if !c.principal.MayUse(queue) {
		return errNoTask
	}
	return c.respond(http.StatusOK, t.AppendJSON(nil))
}

const selectTask = `
SELECT queue_id, state, revision, handler, handler_version, payload_version, payload,
       business_key, concurrency_key, priority, available_at, start_deadline_at, deadline_at,
       recovery_safety, max_attempts, initial_delay_ms, max_delay_ms, attempt_timeout_ms,
       attempt_count, result, cancel_requested_at, completed_at, effect_uncertain, retry_of,
       created_at, updated_at
FROM task
WHERE id = ?
  AND namespace_id = ?`

// readTask reads a task of the caller's namespace. Another one is no task at all
// (GET-003).
func (c *call) readTask(ctx context.Context, id sqldb.ID) (t orbit.Task, queue sqldb.ID, err error) {
	var (
		state, safety                 int
		available, deadline           int64
		created, updated              int64
		startBy, cancelled, completed sql.NullInt64
		retryOf                       sqldb.ID
		payload, result               []byte
	)
	row := c.cfg.DB.Read().QueryRowContext(ctx, selectTask, id, c.principal.Namespace)
	err = row.Scan(
		&queue, &state, &t.Revision, &t.Handler, &t.HandlerVersion, &t.PayloadVersion, &payload,
		&t.BusinessKey, &t.ConcurrencyKey, &t.Priority, &available, &startBy, &deadline,
		&safety, &t.Retry.MaxAttempts, &t.Retry.InitialDelayMS, &t.Retry.MaxDelayMS, &t.Retry.AttemptTimeoutMS,
		&t.AttemptCount, &result, &cancelled, &completed, &t.EffectUncertain, &retryOf,
		&created, &updated)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return t, queue, errNoTask
	case err != nil:
		return t, queue, fmt.Errorf("read task: %w", err)
	}
	t.ID, t.NamespaceID, t.QueueID = id.String(), c.principal.Namespace.String(), queue.String()
	t.State, t.RecoverySafety = task.State(state).String(), safetyName(safety)
	t.Payload, t.Result = payload, result
	t.AvailableAt, t.DeadlineAt = sqldb.Time(available), sqldb.Time(deadline)
	t.StartDeadlineAt, t.CancelRequestedAt, t.CompletedAt = timeOf(startBy), timeOf(cancelled), timeOf(completed)
	t.CreatedAt, t.UpdatedAt = sqldb.Time(created), sqldb.Time(updated)
	if !retryOf.IsZero() {
		t.RetryOf = retryOf.String()
	}
	return t, queue, nil
}

// safetyName is the contract's name of a stored recovery_safety.
func safetyName(code int) string {
	if code == task.SafetyIdempotent {
		return orbit.RecoveryIdempotent
	}
	return orbit.RecoveryReconcileOnly
}

// timeOf is a column that may be empty.
func timeOf(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := sqldb.Time(micros.Int64)
	return &t
}

package query

import (
	"context"
	"database/sql"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

const selectTask = `
SELECT namespace_id, queue_id, state, revision, handler, handler_version, payload_version, payload,
       business_key, concurrency_key, priority, available_at, start_deadline_at, deadline_at,
       recovery_safety, max_attempts, initial_delay_ms, max_delay_ms, attempt_timeout_ms,
       attempt_count, result, cancel_requested_at, completed_at, effect_uncertain, retry_of,
       created_at, updated_at
FROM task
WHERE id = ?`

// Task reads a whole task. Its error is [ErrNotFound] if there is none in scope.
func (r *Reader) Task(ctx context.Context, s Scope, id sqldb.ID) (orbit.Task, error) {
	var (
		t                         orbit.Task
		f                         taskFields
		namespace, queue, retryOf sqldb.ID
		safety                    int
		payload, result           []byte
	)
	err := r.db.Read().QueryRowContext(ctx, selectTask, id).Scan(
		&namespace, &queue, &f.state, &t.Revision, &t.Handler, &t.HandlerVersion, &t.PayloadVersion, &payload,
		&t.BusinessKey, &t.ConcurrencyKey, &t.Priority, &f.available, &f.startBy, &f.deadline,
		&safety, &t.Retry.MaxAttempts, &t.Retry.InitialDelayMS, &t.Retry.MaxDelayMS, &t.Retry.AttemptTimeoutMS,
		&t.AttemptCount, &result, &f.cancelled, &f.completed, &t.EffectUncertain, &retryOf,
		&f.created, &f.updated)
	if err := found(err, "read task"); err != nil {
		return orbit.Task{}, err
	}
	if !s.sees(namespace, queue) {
		return orbit.Task{}, ErrNotFound
	}
	t.ID, t.NamespaceID, t.QueueID = id.String(), namespace.String(), queue.String()
	t.RecoverySafety, t.Payload, t.Result = safetyName(safety), payload, result
	if !retryOf.IsZero() {
		t.RetryOf = retryOf.String()
	}
	f.fill(&t)
	return t, nil
}

// taskFields are columns that a task shows in another form.
type taskFields struct {
	state                         task.State
	available, deadline           int64
	created, updated              int64
	startBy, cancelled, completed sql.NullInt64
}

func (f *taskFields) fill(t *orbit.Task) {
	t.State = f.state.String()
	t.AvailableAt, t.DeadlineAt = sqldb.Time(f.available), sqldb.Time(f.deadline)
	t.StartDeadlineAt, t.CancelRequestedAt, t.CompletedAt = timeOf(f.startBy), timeOf(f.cancelled), timeOf(f.completed)
	t.CreatedAt, t.UpdatedAt = sqldb.Time(f.created), sqldb.Time(f.updated)
}

// safetyName is the contract's name of a stored recovery_safety.
func safetyName(code int) string {
	if code == task.SafetyIdempotent {
		return orbit.RecoveryIdempotent
	}
	return orbit.RecoveryReconcileOnly
}

const selectOwner = `
SELECT namespace_id, queue_id, retry_of
FROM task
WHERE id = ?`

// find returns [ErrNotFound] unless the task is in scope, else the task that it retries,
// if any.
func (r *Reader) find(ctx context.Context, s Scope, id sqldb.ID) (retryOf sqldb.ID, err error) {
	var namespace, queue sqldb.ID
	err = r.db.Read().QueryRowContext(ctx, selectOwner, id).Scan(&namespace, &queue, &retryOf)
	if err := found(err, "read task"); err != nil {
		return sqldb.ID{}, err
	}
	if !s.sees(namespace, queue) {
		return sqldb.ID{}, ErrNotFound
	}
	return retryOf, nil
}

// Source reads the direct origin of a task (GET-007). Its error is [ErrNotFound] if the
// task is not in scope.
func (r *Reader) Source(ctx context.Context, s Scope, id sqldb.ID) (orbit.Source, error) {
	retryOf, err := r.find(ctx, s, id)
	switch {
	case err != nil:
		return orbit.Source{}, err
	case !retryOf.IsZero():
		return orbit.Source{Kind: orbit.SourceManualRetry, TaskID: retryOf.String()}, nil
	}
	return orbit.Source{Kind: orbit.SourceSubmit}, nil
}

package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

const selectPayload = `
SELECT queue_id, payload
FROM task
WHERE id = ?
  AND namespace_id = ?`

// findTask returns the payload of a task in the caller's scope, which never changes: every
// answer shows it.
func (c *Commands) findTask(ctx context.Context, caller *Caller, id sqldb.ID) (payload []byte, err error) {
	var queue sqldb.ID
	err = c.db.Read().QueryRowContext(ctx, selectPayload, id, caller.Namespace).Scan(&queue, &payload)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("read task: %w", err)
	case !caller.mayUse(queue):
		return nil, ErrNotFound
	}
	return payload, nil
}

// An edit is what a command does to one task under its lock.
type edit struct {
	op       idempotency.Operation
	expected uint64 // revision
	content  orbit.Digest
	// apply changes the task, or returns why it may not. What it returns of the audit lacks
	// what the task tells.
	apply func(ctx context.Context, tx *sqldb.Tx, s *settle.Settlement, t *settle.Task) (audit, error)
	// after is called once after the commit, with the task as it is then. Nil means nothing.
	after func(t *settle.Task)
}

// editTask carries out a command on a task.
func (c *Commands) editTask(ctx context.Context, caller Caller, id sqldb.ID, e edit) (Receipt, error) {
	payload, err := c.findTask(ctx, &caller, id)
	if err != nil {
		return Receipt{}, err
	}
	var (
		w     = newWork(&caller, e.op, id, e.content)
		t     *settle.Task
		lanes []int64
		tally settle.Tally
	)
	w.record.Task = id
	w.write = func(ctx context.Context, tx *sqldb.Tx) (_ idempotency.Receipt, err error) {
		if t, lanes, tally, err = e.run(ctx, tx, c.cfg.Modes, &caller, id); err != nil {
			return idempotency.Receipt{}, err
		}
		return taskReceipt(ctx, tx, id)
	}
	w.told = func() {
		c.cfg.Settled(tally)
		if len(lanes) > 0 {
			c.cfg.Wake(lanes)
		}
		if e.after != nil {
			e.after(t)
		}
	}
	w.show = func(r *idempotency.Receipt, replayed bool) []byte { return appendTask(r, payload, replayed) }
	return c.run(ctx, w)
}

// run locks the task, changes it, and writes all that follows from the change.
func (e *edit) run(ctx context.Context, tx *sqldb.Tx, modes *quota.Modes, caller *Caller, id sqldb.ID) (*settle.Task, []int64, settle.Tally, error) {
	s, err := settle.OpenTasks(ctx, tx, modes, []sqldb.ID{id})
	if err != nil {
		return nil, nil, settle.Tally{}, err
	}
	t := s.Task(id)
	if t == nil {
		return nil, nil, settle.Tally{}, ErrNotFound // it was deleted after it was found
	}
	if err := checkRevision(t.Revision, e.expected); err != nil {
		return nil, nil, settle.Tally{}, err
	}
	a, err := e.apply(ctx, tx, s, t)
	if err != nil {
		return nil, nil, settle.Tally{}, err
	}
	lanes, err := s.Flush(ctx)
	if err != nil {
		return nil, nil, settle.Tally{}, err
	}
	a.target, a.queue, a.handler, a.handlerVersion, a.at = t.ID, t.Queue, t.Handler, t.HandlerVersion, s.Now
	return t, lanes, s.Tally(), a.insert(ctx, tx, caller)
}

// appendTask is the data of an answer to a command on a task.
func appendTask(r *idempotency.Receipt, payload []byte, replayed bool) []byte {
	data := make([]byte, 0, len(r.Body)+len(payload)+40)
	data = append(data, `{"deduplicated":`...)
	data = strconv.AppendBool(data, replayed)
	data = append(data, `,"task":`...)
	return append(r.Append(data, payload), '}')
}

const selectTask = `
SELECT namespace_id, queue_id, state, revision, handler, handler_version, payload_version,
       business_key, concurrency_key, priority, available_at, start_deadline_at, deadline_at,
       recovery_safety, max_attempts, initial_delay_ms, max_delay_ms, attempt_timeout_ms,
       attempt_count, result, cancel_requested_at, completed_at, effect_uncertain, retry_of,
       created_at, updated_at
FROM task
WHERE id = ?`

// taskReceipt renders the task as the transaction leaves it. The answer is 202 exactly if
// that is RUNNING (AMB-031).
func taskReceipt(ctx context.Context, tx *sqldb.Tx, id sqldb.ID) (idempotency.Receipt, error) {
	t, err := readTask(ctx, tx, id)
	if err != nil {
		return idempotency.Receipt{}, err
	}
	r := idempotency.Receipt{Status: http.StatusOK}
	if t.State == orbit.StateRunning {
		r.Status = http.StatusAccepted
	}
	r.Body, r.PayloadAt = t.AppendJSONWithoutPayload(nil)
	return r, nil
}

// readTask reads all of a task but its payload.
func readTask(ctx context.Context, q sqldb.Querier, id sqldb.ID) (t orbit.Task, err error) {
	var (
		namespace, queue, retryOf     sqldb.ID
		state                         task.State
		safety                        int
		available, deadline           int64
		created, updated              int64
		startBy, cancelled, completed sql.NullInt64
		result                        []byte
	)
	err = q.QueryRowContext(ctx, selectTask, id).Scan(
		&namespace, &queue, &state, &t.Revision, &t.Handler, &t.HandlerVersion, &t.PayloadVersion,
		&t.BusinessKey, &t.ConcurrencyKey, &t.Priority, &available, &startBy, &deadline,
		&safety, &t.Retry.MaxAttempts, &t.Retry.InitialDelayMS, &t.Retry.MaxDelayMS, &t.Retry.AttemptTimeoutMS,
		&t.AttemptCount, &result, &cancelled, &completed, &t.EffectUncertain, &retryOf,
		&created, &updated)
	if err != nil {
		return t, fmt.Errorf("read task: %w", err)
	}
	t.ID, t.NamespaceID, t.QueueID, t.State, t.Result = id.String(), namespace.String(), queue.String(), state.String(), result
	t.RecoverySafety = orbit.RecoveryReconcileOnly
	if safety == task.SafetyIdempotent {
		t.RecoverySafety = orbit.RecoveryIdempotent
	}
	t.AvailableAt, t.DeadlineAt = sqldb.Time(available), sqldb.Time(deadline)
	t.StartDeadlineAt, t.CancelRequestedAt, t.CompletedAt = timeOf(startBy), timeOf(cancelled), timeOf(completed)
	t.CreatedAt, t.UpdatedAt = sqldb.Time(created), sqldb.Time(updated)
	if !retryOf.IsZero() {
		t.RetryOf = retryOf.String()
	}
	return t, nil
}

// timeOf is a column that may be empty.
func timeOf(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := sqldb.Time(micros.Int64)
	return &t
}

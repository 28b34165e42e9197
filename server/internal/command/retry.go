package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

const selectFrozen = `
SELECT payload, task_timeout_ms, operation_root
FROM task
WHERE id = ?
  AND namespace_id = ?`

// Retry returns the item by which package accept makes a new task out of one that is
// FAILED or CANCELLED (AMB-072). The new one has what was frozen with the old one:
// handler, versions, payload, keys, priority, time-out, recovery safety and retry policy.
// Its absolute times are its own: it may begin at once and has no start deadline.
//
// A task in another state and a stale revision are the item's conflict: whether they
// count, acceptance decides, for a repeat gets its receipt first. The error is ErrNotFound,
// or one of the database's: nothing has been done then.
func (c *Commands) Retry(ctx context.Context, caller Caller, id sqldb.ID, r orbit.RetryTaskRequest, content orbit.Digest) (accept.Item, error) {
	item, err := c.repeat(ctx, &caller, id, r, content)
	if !errors.Is(err, ErrNotFound) {
		return item, err
	}
	// The old task may have been deleted because of its age. Its retries are known for as
	// long as the new ones are there: a repeat gets its receipt (IDEM-017).
	made, err := c.madeBy(ctx, &caller, id)
	if err != nil {
		return accept.Item{}, err
	}
	if item, err = c.repeat(ctx, &caller, made, r, content); err != nil {
		return accept.Item{}, err
	}
	item.Retry.Of, item.Retry.Refused = id, ErrNotFound // but for the record, there is no such task
	return item, nil
}

const selectMade = `
SELECT task_id
FROM idempotency
WHERE digest = ?`

// madeBy returns the task that the retry of a task with the caller's key has made.
func (c *Commands) madeBy(ctx context.Context, caller *Caller, of sqldb.ID) (made sqldb.ID, err error) {
	identity := idempotency.NewIdentity(caller.Namespace, idempotency.Retry, of, caller.Key)
	err = c.db.Read().QueryRowContext(ctx, selectMade, identity[:]).Scan(&made)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return made, ErrNotFound
	case err != nil:
		return made, fmt.Errorf("look up retry: %w", err)
	}
	return made, nil
}

// repeat returns the item that repeats a task.
func (c *Commands) repeat(ctx context.Context, caller *Caller, id sqldb.ID, r orbit.RetryTaskRequest, content orbit.Digest) (accept.Item, error) {
	var (
		payload []byte
		timeout uint64
		root    sqldb.ID
	)
	q := c.db.Read()
	err := q.QueryRowContext(ctx, selectFrozen, id, caller.Namespace).Scan(&payload, &timeout, &root)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return accept.Item{}, ErrNotFound
	case err != nil:
		return accept.Item{}, fmt.Errorf("read task: %w", err)
	}
	t, err := readTask(ctx, q, id)
	if err != nil {
		return accept.Item{}, err
	}
	queue, err := sqldb.ParseID(t.QueueID)
	switch {
	case err != nil:
		return accept.Item{}, err
	case !caller.mayUse(queue):
		return accept.Item{}, ErrNotFound
	case root.IsZero():
		root = id
	}
	return accept.Item{
		Namespace: caller.Namespace, Queue: queue, Credential: caller.Credential, Actor: caller.Actor,
		Request: caller.Request, Key: caller.Key,
		Submission: orbit.Submission{Request: repeated(t, payload, timeout), Digest: content},
		Retry:      &accept.Retry{Of: id, Root: root, Digest: content, Reason: r.Reason, Refused: mayRetry(t, r.ExpectedRevision)},
	}, nil
}

// repeated is the request that asks for t once more.
func repeated(t orbit.Task, payload []byte, timeoutMS uint64) orbit.SubmitTaskRequest {
	return orbit.SubmitTaskRequest{
		QueueID: t.QueueID, Handler: t.Handler, HandlerVersion: t.HandlerVersion, PayloadVersion: t.PayloadVersion, Payload: payload,
		BusinessKey: t.BusinessKey, ConcurrencyKey: t.ConcurrencyKey, Priority: t.Priority, TaskTimeoutMS: timeoutMS,
		RecoverySafety: t.RecoverySafety, Retry: t.Retry,
	}
}

// mayRetry tells why t may not be repeated, or nil. What it looks at never changes once it
// allows the retry: the task is final.
func mayRetry(t orbit.Task, expected uint64) error {
	if t.State != orbit.StateFailed && t.State != orbit.StateCancelled {
		return conflictf("the task is %s: only one that is FAILED or CANCELLED can be retried", t.State)
	}
	return checkRevision(int64(t.Revision), expected)
}

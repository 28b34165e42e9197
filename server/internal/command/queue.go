package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// CreateQueue makes a queue in the caller's namespace (REF-QRES-002). The receipt shows it,
// with status 201. A name that exists is a [*StateConflictError]; the other errors are those
// of [Commands.Cancel].
func (c *Commands) CreateQueue(ctx context.Context, caller Caller, r orbit.CreateQueueRequest, content orbit.Digest) (Receipt, error) {
	w := newWork(&caller, idempotency.CreateQueue, sqldb.ID{}, content)
	w.target = sqldb.NewID()
	w.write = func(ctx context.Context, tx *sqldb.Tx) (idempotency.Receipt, error) {
		now, err := insertQueue(ctx, tx, caller.Namespace, w.target, r)
		if err != nil {
			return idempotency.Receipt{}, err
		}
		note := changes{}
		note.set("name", r.Name)
		note.set("max_backlog", r.MaxBacklog)
		note.set("max_concurrency", r.MaxConcurrency)
		a := audit{action: actionCreateQueue, target: w.target, queue: w.target, note: note.String(), at: now}
		if err := a.insert(ctx, tx, &caller); err != nil {
			return idempotency.Receipt{}, err
		}
		return queueReceipt(ctx, tx, w.target, http.StatusCreated)
	}
	return c.run(ctx, w)
}

const insertQueueRow = `
INSERT INTO queue (id, namespace_id, name, max_backlog, max_concurrency, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)`

func insertQueue(ctx context.Context, tx *sqldb.Tx, namespace, id sqldb.ID, r orbit.CreateQueueRequest) (now int64, err error) {
	if now, err = tx.Now(ctx); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, insertQueueRow, id, namespace, []byte(r.Name), int64(r.MaxBacklog), int64(r.MaxConcurrency), now, now)
	return now, queueError(tx, "insert queue", err)
}

// queueError tells a name that exists from other errors of a write.
func queueError(tx *sqldb.Tx, act string, err error) error {
	switch {
	case err == nil:
		return nil
	case tx.Dialect().Duplicate(err):
		return conflictf("name: the namespace has a queue of this name")
	}
	return fmt.Errorf("%s: %w", act, err)
}

// UpdateQueue changes a queue in the caller's scope. A stale revision and a name that
// another queue has are a [*StateConflictError]; the other errors are those of
// [Commands.Cancel].
func (c *Commands) UpdateQueue(ctx context.Context, caller Caller, id sqldb.ID, r orbit.UpdateQueueRequest, content orbit.Digest) (Receipt, error) {
	if err := c.findQueue(ctx, &caller, id); err != nil {
		return Receipt{}, err
	}
	w := newWork(&caller, idempotency.UpdateQueue, id, content)
	w.told = func() { c.cfg.Reopened(caller.Application, id) }
	w.write = func(ctx context.Context, tx *sqldb.Tx) (idempotency.Receipt, error) {
		if err := updateQueue(ctx, tx, &caller, id, r); err != nil {
			return idempotency.Receipt{}, err
		}
		return queueReceipt(ctx, tx, id, http.StatusOK)
	}
	return c.run(ctx, w)
}

// findQueue fails unless the queue lies in the caller's scope.
func (c *Commands) findQueue(ctx context.Context, caller *Caller, id sqldb.ID) error {
	if !caller.mayUse(id) {
		return ErrNotFound
	}
	var n int
	err := c.db.Read().QueryRowContext(ctx, "SELECT 1 FROM queue WHERE id = ? AND namespace_id = ?", id, caller.Namespace).Scan(&n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("read queue: %w", err)
	}
	return nil
}

const (
	lockQueue = `
SELECT name, max_backlog, max_concurrency, paused, revision
FROM queue
WHERE id = ?`

	saveQueue = `
UPDATE queue
SET name = ?, max_concurrency = ?, paused = ?, revision = revision + 1, updated_at = ?
WHERE id = ?`
)

func updateQueue(ctx context.Context, tx *sqldb.Tx, caller *Caller, id sqldb.ID, r orbit.UpdateQueueRequest) error {
	var (
		name                 string
		backlog, concurrency uint64
		paused               bool
		revision             int64
		note                 changes
	)
	err := tx.QueryRowContext(ctx, lockQueue+tx.Dialect().ForUpdate, id).Scan(&name, &backlog, &concurrency, &paused, &revision)
	if err != nil {
		return fmt.Errorf("lock queue: %w", err)
	}
	if err := checkRevision(revision, r.ExpectedRevision); err != nil {
		return err
	}
	setTo(&note, "name", &name, r.Name)
	setTo(&note, "max_concurrency", &concurrency, r.MaxConcurrency)
	setTo(&note, "paused", &paused, r.Paused)
	if setTo(&note, "max_backlog", &backlog, r.MaxBacklog) {
		if err := quota.LimitQueue(ctx, tx, id, int64(backlog)); err != nil {
			return err
		}
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, saveQueue, []byte(name), int64(concurrency), paused, now, id)
	if err := queueError(tx, "update queue", err); err != nil {
		return err
	}
	a := audit{action: actionUpdateQueue, target: id, queue: id, note: note.String(), at: now}
	return a.insert(ctx, tx, caller)
}

const selectQueue = `
SELECT q.namespace_id, q.name, q.max_backlog, q.max_concurrency, q.paused, q.unfinished, q.revision, q.created_at, q.updated_at,
       (SELECT COUNT(*) FROM attempt a WHERE a.queue_id = q.id AND a.live = 1)
FROM queue q
WHERE q.id = ?`

// queueReceipt renders the queue as the transaction leaves it.
func queueReceipt(ctx context.Context, tx *sqldb.Tx, id sqldb.ID, status int) (idempotency.Receipt, error) {
	var (
		q                orbit.Queue
		namespace        sqldb.ID
		unfinished       uint64
		created, updated int64
	)
	err := tx.QueryRowContext(ctx, selectQueue, id).Scan(&namespace, &q.Name, &q.MaxBacklog, &q.MaxConcurrency, &q.Paused,
		&unfinished, &q.Revision, &created, &updated, &q.ActiveAttempts)
	if err != nil {
		return idempotency.Receipt{}, fmt.Errorf("read queue: %w", err)
	}
	q.ID, q.NamespaceID = id.String(), namespace.String()
	q.CreatedAt, q.UpdatedAt = sqldb.Time(created), sqldb.Time(updated)
	if q.MaxBacklog > 0 {
		q.Unfinished = &unfinished
	}
	return idempotency.Receipt{Status: status, Body: q.AppendJSON(nil)}, nil
}

package admin

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/query"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// Queues lists at most limit queues of a namespace whose names come after a name, and
// reports whether there are more.
func (o *Operator) Queues(ctx context.Context, p Place, after string, limit int) (queues []orbit.Queue, more bool, err error) {
	found, err := o.namespace(ctx, p)
	if err != nil {
		return nil, false, err
	}
	page, err := o.reader.Queues(ctx, query.Scope{Namespace: found.namespace}, after, limit)
	return page.Queues, page.More, err
}

// Queue reads a queue.
func (o *Operator) Queue(ctx context.Context, p Place) (orbit.Queue, error) {
	found, err := o.queue(ctx, p)
	if err != nil {
		return orbit.Queue{}, err
	}
	return o.reader.Queue(ctx, query.Scope{}, found.queue)
}

// CreateQueue makes a queue without limits. One of this name that exists is a
// [*ConflictError].
func (o *Operator) CreateQueue(ctx context.Context, p Place, reason string) (orbit.Queue, error) {
	if err := p.validate(true); err != nil {
		return orbit.Queue{}, err
	}
	if err := checkReason(reason); err != nil {
		return orbit.Queue{}, err
	}
	found, err := o.namespace(ctx, p)
	if err != nil {
		return orbit.Queue{}, err
	}
	var id sqldb.ID
	err = o.db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		w, err := newWriter(ctx, tx, o.actor)
		if err != nil {
			return err
		}
		if id, err = w.insertQueue(found.namespace, p.Queue); err != nil {
			return err
		}
		w.audits[0].note = reason
		return w.insertAudits()
	}, func(ctx context.Context, q sqldb.Querier) (bool, error) {
		var n int
		err := q.QueryRowContext(ctx, "SELECT COUNT(*) FROM queue WHERE id = ?", id).Scan(&n)
		return n == 1, err
	})
	switch {
	case o.db.Dialect().Duplicate(err):
		return orbit.Queue{}, &ConflictError{fmt.Sprintf("queue %q exists already in this namespace", p.Queue)}
	case err != nil:
		return orbit.Queue{}, err
	}
	return o.reader.Queue(ctx, query.Scope{}, id)
}

// A QueueChange says what of a queue is to be another. What is nil stays.
type QueueChange struct {
	Paused         *bool  // nothing is dispatched; what runs goes on (AMB-061)
	MaxBacklog     *int64 // most unfinished tasks, 0 for any number
	MaxConcurrency *int64 // most attempts at one time, 0 for any number
}

const lockQueue = `
SELECT paused, max_backlog, max_concurrency
FROM queue
WHERE id = ?`

const saveQueue = `
UPDATE queue
SET paused = ?, max_concurrency = ?, revision = revision + 1, updated_at = ?
WHERE id = ?`

// ChangeQueue changes a queue and returns it as it is then. A change to what the queue is
// already writes nothing.
func (o *Operator) ChangeQueue(ctx context.Context, p Place, c QueueChange, reason string) (orbit.Queue, error) {
	if err := checkLimits(reason, limit{"max-backlog", c.MaxBacklog}, limit{"max-concurrency", c.MaxConcurrency}); err != nil {
		return orbit.Queue{}, err
	}
	found, err := o.queue(ctx, p)
	if err != nil {
		return orbit.Queue{}, err
	}
	err = o.change(ctx, func(w *writer) error {
		n, err := w.changeQueue(found.queue, c)
		if err != nil || len(n) == 0 {
			return err
		}
		w.audits = append(w.audits, audit{action: "queue.update", namespace: found.namespace, target: found.queue, queue: found.queue, note: n.because(reason)})
		return nil
	})
	if err != nil {
		return orbit.Queue{}, err
	}
	return o.reader.Queue(ctx, query.Scope{}, found.queue)
}

func (w *writer) changeQueue(id sqldb.ID, c QueueChange) (n note, err error) {
	var paused bool
	var backlog, concurrency int64
	row := w.tx.QueryRowContext(w.ctx, lockQueue+w.tx.Dialect().ForUpdate, id)
	if err := row.Scan(&paused, &backlog, &concurrency); err != nil {
		return nil, fmt.Errorf("lock queue: %w", err)
	}
	setTo(&n, "paused", &paused, c.Paused)
	setTo(&n, "max_concurrency", &concurrency, c.MaxConcurrency)
	if setTo(&n, "max_backlog", &backlog, c.MaxBacklog) {
		if err := quota.LimitQueue(w.ctx, w.tx, id, backlog); err != nil {
			return nil, err
		}
	}
	if len(n) == 0 {
		return nil, nil
	}
	if _, err := w.tx.ExecContext(w.ctx, saveQueue, paused, concurrency, w.now, id); err != nil {
		return nil, fmt.Errorf("update queue: %w", err)
	}
	return n, nil
}

// A limit is one that an operator sets, by the name of its flag.
type limit struct {
	flag  string
	value *int64
}

func checkLimits(reason string, limits ...limit) error {
	for _, l := range limits {
		if l.value != nil && (*l.value < 0 || *l.value > orbit.MaxLimit) {
			return &InvalidError{l.flag, fmt.Sprintf("must be between 0 and %d (0 means no limit)", orbit.MaxLimit)}
		}
	}
	return checkReason(reason)
}

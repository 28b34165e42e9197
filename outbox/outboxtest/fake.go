package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// A Fake is an outbox in memory, for tests of a service that have no database. It takes and
// refuses what [*outbox.Outbox] does, with the same errors and receipts, and sends nothing.
// The zero value is ready to use; a Fake is safe for concurrent use and must not be copied.
//
// A service that is to be tested with it declares what it needs of an outbox:
//
//	type enqueuer interface {
//		Enqueue(context.Context, outbox.Tx, outbox.Message) (outbox.Receipt, error)
//	}
//
// It takes cancels as well.
//
// Only of its own transactions, from [Fake.Begin], does a Fake know how they end. What is
// enqueued through another one, such as the *sql.Tx of a mocked driver, counts at once. To see
// that a real rollback leaves nothing, use a real outbox on SQLite, and [In].
type Fake struct {
	mu   sync.Mutex
	seq  int64
	rows map[fakeIdentity]fakeRow
}

type fakeIdentity struct{ target, task, key string } // of a submit the task is empty

type fakeRow struct {
	Enqueued
	cancel *outbox.Cancel // instead of a message
	tx     *FakeTx        // that is not committed yet
}

func (r *fakeRow) identity() fakeIdentity {
	if r.cancel != nil {
		return fakeIdentity{r.cancel.Target, r.cancel.TaskID, r.cancel.Key}
	}
	return fakeIdentity{target: r.Target, key: r.Key}
}

// Enqueue is [outbox.Outbox.Enqueue]. A key that another open transaction of the Fake has
// enqueued gives [outbox.ErrRetry], where a database would wait.
func (f *Fake) Enqueue(ctx context.Context, tx outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	receipts, err := f.EnqueueBatch(ctx, tx, []outbox.Message{m})
	if err != nil {
		return outbox.Receipt{}, err
	}
	return receipts[0], nil
}

// EnqueueBatch is [outbox.Outbox.EnqueueBatch].
func (f *Fake) EnqueueBatch(ctx context.Context, tx outbox.Tx, messages []outbox.Message) ([]outbox.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own, err := f.open(ctx, tx)
	if err != nil {
		return nil, err
	}
	frozen, err := freezeAll(messages)
	if err != nil {
		return nil, err
	}
	before := maps.Clone(f.rows)
	receipts := make([]outbox.Receipt, len(messages))
	for i, e := range frozen {
		if receipts[i], err = f.enqueue(fakeRow{Enqueued: e, tx: own}); err != nil {
			f.rows = before // all or none
			return nil, err
		}
	}
	return receipts, nil
}

// open returns tx if it is one of the Fake's, nil if it is somebody else's.
func (f *Fake) open(ctx context.Context, tx outbox.Tx) (*FakeTx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := outbox.CheckTx(tx); err != nil {
		return nil, err
	}
	own, _ := tx.(*FakeTx)
	switch {
	case own != nil && own.fake != f:
		return nil, fmt.Errorf("%w: it is one of another Fake", outbox.ErrNoTransaction)
	case own != nil && own.ended:
		return nil, sql.ErrTxDone
	}
	return own, nil
}

// freezeAll holds messages to the rules for each of them and for all together.
func freezeAll(messages []outbox.Message) ([]Enqueued, error) {
	if len(messages) > outbox.MaxBatch {
		return nil, &orbit.InvalidArgumentError{Field: "messages", Rule: fmt.Sprintf("must be at most %d", outbox.MaxBatch)}
	}
	frozen := make([]Enqueued, len(messages))
	size := 0
	for i, m := range messages {
		if _, err := m.Validate(); err != nil {
			return nil, fmt.Errorf("outbox: enqueue: %w", err)
		}
		body, s, err := m.Request.Freeze()
		if err != nil {
			return nil, err
		}
		m.Request = s.Request
		frozen[i] = Enqueued{Message: m, Digest: s.Digest}
		if size += len(body); size > outbox.MaxBatchBytes {
			return nil, &orbit.InvalidArgumentError{Field: "messages", Rule: fmt.Sprintf("must have at most %d bytes of requests together", outbox.MaxBatchBytes)}
		}
	}
	return frozen, nil
}

func (f *Fake) enqueue(row fakeRow) (outbox.Receipt, error) {
	first, exists := f.rows[row.identity()]
	switch {
	case exists && first.tx != nil && first.tx != row.tx:
		return outbox.Receipt{}, fmt.Errorf("outbox: enqueue: %w: another open transaction holds the key", outbox.ErrRetry)
	case exists && first.Digest != row.Digest:
		return outbox.Receipt{}, &outbox.ConflictError{Seq: first.Seq, Stored: first.Digest, Presented: row.Digest}
	case exists:
		return outbox.Receipt{Seq: first.Seq, Digest: row.Digest, Existing: true}, nil
	}
	f.seq++
	row.Seq = f.seq
	if f.rows == nil {
		f.rows = map[fakeIdentity]fakeRow{}
	}
	f.rows[row.identity()] = row
	return outbox.Receipt{Seq: row.Seq, Digest: row.Digest}, nil
}

// Messages returns what is committed, in the order of Enqueue. It implements [Reader].
func (f *Fake) Messages(context.Context) ([]Enqueued, error) { return messagesOf(f.seen(nil)), nil }

// Cancels returns what is committed, in the order of EnqueueCancel. It implements [Reader].
func (f *Fake) Cancels(context.Context) ([]EnqueuedCancel, error) { return cancelsOf(f.seen(nil)), nil }

// seen returns what is committed, and what tx has enqueued, in order.
func (f *Fake) seen(tx *FakeTx) (rows []fakeRow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, row := range f.rows {
		if row.tx == nil || row.tx == tx {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b fakeRow) int { return int(a.Seq - b.Seq) })
	return rows
}

func messagesOf(rows []fakeRow) (all []Enqueued) {
	for _, row := range rows {
		if row.cancel == nil {
			all = append(all, row.Enqueued)
		}
	}
	return all
}

func cancelsOf(rows []fakeRow) (all []EnqueuedCancel) {
	for _, row := range rows {
		if row.cancel != nil {
			all = append(all, EnqueuedCancel{Cancel: *row.cancel, Seq: row.Seq, Digest: row.Digest})
		}
	}
	return all
}

// Begin opens a transaction.
func (f *Fake) Begin() *FakeTx { return &FakeTx{fake: f} }

// A FakeTx is a transaction of a [Fake]. It runs no SQL.
type FakeTx struct {
	fake  *Fake
	ended bool
}

var errNoSQL = errors.New("outboxtest: a FakeTx runs no SQL")

// ExecContext makes a FakeTx an [outbox.Tx]. It returns an error.
func (*FakeTx) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, errNoSQL }

// QueryContext makes a FakeTx an [outbox.Tx]. It returns an error.
func (*FakeTx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, errNoSQL }

// Messages returns what this transaction sees: what is committed, and its own. It implements
// [Reader].
func (t *FakeTx) Messages(context.Context) ([]Enqueued, error) {
	return messagesOf(t.fake.seen(t)), nil
}

// Cancels returns what this transaction sees, as Messages does.
func (t *FakeTx) Cancels(context.Context) ([]EnqueuedCancel, error) {
	return cancelsOf(t.fake.seen(t)), nil
}

// Commit makes what was enqueued through t count. Like Rollback it returns sql.ErrTxDone if t
// has ended already.
func (t *FakeTx) Commit() error {
	return t.end(func(identity fakeIdentity, row fakeRow) {
		row.tx = nil
		t.fake.rows[identity] = row
	})
}

// Rollback forgets what was enqueued through t.
func (t *FakeTx) Rollback() error {
	return t.end(func(identity fakeIdentity, _ fakeRow) { delete(t.fake.rows, identity) })
}

func (t *FakeTx) end(each func(fakeIdentity, fakeRow)) error {
	t.fake.mu.Lock()
	defer t.fake.mu.Unlock()
	if t.ended {
		return sql.ErrTxDone
	}
	t.ended = true
	for identity, row := range t.fake.rows {
		if row.tx == t {
			each(identity, row)
		}
	}
	return nil
}

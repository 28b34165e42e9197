package outbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxShards is the highest number of shards.
const MaxShards = 1024

// Config tunes an Outbox. The zero value is ready to use.
type Config struct {
	// Shards is how many shards new rows are spread over. Each shard is led by one
	// relay at a time, so more of them let more relays work at once. It may grow or
	// shrink at any time: relays lead every shard that occurs. At most 1024. Default 1.
	Shards int
	// Traceparent returns the W3C trace context of ctx, which a message without one of its
	// own is given, so that one trace leads from the business transaction into the handler.
	// What it returns is left out if it is none: a tracer never fails a business
	// transaction. Default: none.
	Traceparent func(context.Context) string
}

// An Outbox freezes messages in a business database. It holds no connection and is
// safe for concurrent use.
type Outbox struct {
	dialect *sqldb.Dialect
	shards  int
	trace   func(context.Context) string
	insert  string
	values  string // of one row
	find    string
	content string
	latest  string
}

// New returns an outbox for databases of this dialect.
func New(d *Dialect, cfg Config) (*Outbox, error) {
	if d == nil {
		return nil, errors.New("outbox: dialect is nil: use outbox.MySQL or outbox.SQLite")
	}
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	if cfg.Shards < 1 || cfg.Shards > MaxShards {
		return nil, fmt.Errorf("outbox: Shards is %d, must be 1 to %d", cfg.Shards, MaxShards)
	}
	values := fmt.Sprintf(rowValues, d.Clock)
	return &Outbox{
		dialect: d,
		shards:  cfg.Shards,
		trace:   cfg.Traceparent,
		insert:  insertRows + values,
		values:  values,
		find:    findIdentity + d.Share,
		content: readContent,
		latest:  readContent + d.Share,
	}, nil
}

// A Receipt tells what is in the outbox.
type Receipt struct {
	Seq      int64        // the row's number; it gives no order
	Digest   orbit.Digest // content digest, the same that the server will answer
	Existing bool         // the row was there already, with the same content
}

// Enqueue freezes m through tx, so that it exists if and only if the caller's own
// changes commit. It opens and commits nothing, and runs one INSERT. The same key with
// the same content is not inserted twice: the receipt is that of the first row. With
// other content it returns ErrConflict and changes nothing.
//
// Before any I/O it returns ErrNoTransaction for a tx that is none, and an
// [*orbit.InvalidArgumentError] for a message that could never be accepted. After
// ErrRetry the whole transaction has to be rolled back and run again; after every
// other of these errors it can go on. An error without a name comes from the engine
// or the driver, and the transaction is best rolled back.
//
// Rows are sent in no promised order. Exclusion is the job of Request.ConcurrencyKey.
func (o *Outbox) Enqueue(ctx context.Context, tx Tx, m Message) (Receipt, error) {
	if err := o.check(tx); err != nil {
		return Receipt{}, err
	}
	f, err := o.freeze(ctx, &m)
	if err != nil {
		return Receipt{}, fmt.Errorf("outbox: enqueue: %w", err)
	}
	return o.enqueue(ctx, tx, &f)
}

// check refuses an Outbox that New did not make, and what is no transaction.
func (o *Outbox) check(tx Tx) error {
	if o == nil || o.dialect == nil {
		return errors.New("outbox: the Outbox is nil or zero: make it with New")
	}
	return CheckTx(tx)
}

// freeze is Message.freeze for a message that belongs to the trace of ctx.
func (o *Outbox) freeze(ctx context.Context, m *Message) (frozen, error) {
	traced := *m
	o.join(ctx, &traced)
	return traced.freeze()
}

// join makes a message that names no trace part of that of ctx, if there is one.
func (o *Outbox) join(ctx context.Context, m *Message) {
	if m.Traceparent == "" && o.trace != nil {
		if trace := o.trace(ctx); orbit.ValidateTraceparent(trace) == nil {
			m.Traceparent = trace
		}
	}
}

// enqueue inserts a frozen command.
func (o *Outbox) enqueue(ctx context.Context, tx Tx, f *frozen) (Receipt, error) {
	result, err := tx.ExecContext(ctx, o.insert, o.args(f)...)
	switch {
	case err == nil:
		seq, err := result.LastInsertId()
		return Receipt{Seq: seq, Digest: f.digest}, err
	case o.dialect.Duplicate(err):
		return o.readBack(ctx, tx, f.identity, f.digest)
	}
	return Receipt{}, failed(o.dialect, "enqueue", err)
}

const (
	insertRows = `
INSERT INTO orbit_outbox
  (identity, operation, operation_task_id, shard, lane, size, target, idempotency_key,
   queue_id, handler, request, request_sha256, content_algorithm, content_digest, traceparent,
   created_at, not_before, not_after, state, due_at, window_from)
VALUES `

	// rowValues has the clock of the database inside, which is one moment for all of the
	// statement on every engine.
	rowValues = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
   %[1]s, ?, ?, 1, CASE WHEN ? > %[1]s THEN ? ELSE %[1]s END, %[1]s)`
)

var (
	empty     = []byte{}
	algorithm = []byte(orbit.DigestAlgorithm)
)

// args are the values of one row, for rowValues.
func (o *Outbox) args(f *frozen) []any {
	m, sum, earliest := f.message, sha256.Sum256(f.body), ceilMicros(f.message.NotBefore)
	return []any{
		f.identity[:], int64(f.operation), f.taskID, int64(shardOf(f.identity, o.shards)), LaneOf(m.Target, f.queueID), int64(len(f.body)),
		[]byte(m.Target), []byte(m.Key), f.queue, []byte(f.handler), f.body, sum[:], algorithm, f.digest[:], []byte(m.Traceparent),
		nullTime(earliest), nullTime(zeroMicros(m.NotAfter)), earliest, earliest,
	}
}

// ceilMicros rounds up: what is not before t is not before the microsecond after it.
func ceilMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return sqldb.Micros(t.Add(time.Microsecond - 1))
}

// zeroMicros returns the value of a time column that is 0 for none. Columns that a
// settle writes are such, so that it never changes the length of a row: in place it is
// a quarter to a half cheaper.
func zeroMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return sqldb.Micros(t)
}

// nullTime returns the value of a time column that is NULL for none.
func nullTime(micros int64) any {
	if micros == 0 {
		return nil
	}
	return micros
}

const (
	// findIdentity reads nothing but the unique index, whose entry the failed INSERT
	// has locked already. A lock on the row itself would make a relay that settles it
	// wait for the end of the business transaction.
	findIdentity = `
SELECT seq
FROM orbit_outbox
WHERE identity = ?`

	readContent = `
SELECT content_digest
FROM orbit_outbox
WHERE seq = ?`
)

// readBack answers for a message whose identity is taken.
func (o *Outbox) readBack(ctx context.Context, tx Tx, identity [sha256.Size]byte, presented orbit.Digest) (Receipt, error) {
	const act = "read the row that holds the key"
	var seq int64
	err := scanRow(ctx, tx, o.find, []any{identity[:]}, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return Receipt{}, fmt.Errorf("outbox: %s: %w: it is gone again", act, ErrRetry)
	}
	if err != nil {
		return Receipt{}, failed(o.dialect, act, err)
	}
	digest, err := o.readDigest(ctx, tx, seq)
	if err != nil {
		return Receipt{}, failed(o.dialect, act, err)
	}
	if digest != presented {
		return Receipt{}, &ConflictError{Seq: seq, Stored: digest, Presented: presented}
	}
	return Receipt{Seq: seq, Digest: digest, Existing: true}, nil
}

// readDigest reads a frozen column, so any version of the row will do; a snapshot that
// is older than the row has none, and only a locking read sees past it.
func (o *Outbox) readDigest(ctx context.Context, tx Tx, seq int64) (orbit.Digest, error) {
	var digest []byte
	err := scanRow(ctx, tx, o.content, []any{seq}, &digest)
	if errors.Is(err, sql.ErrNoRows) {
		err = scanRow(ctx, tx, o.latest, []any{seq}, &digest)
	}
	if err != nil {
		return orbit.Digest{}, err
	}
	if len(digest) != sha256.Size {
		return orbit.Digest{}, fmt.Errorf("content digest has %d bytes", len(digest))
	}
	return orbit.Digest(digest), nil
}

package outbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	// MaxBatch is the highest number of messages of one EnqueueBatch.
	MaxBatch = 500
	// MaxBatchBytes is the highest sum of their requests, encoded. Twice as much, for a driver
	// that writes values into the statement, fits the smallest default of max_allowed_packet
	// (16 MiB, MariaDB).
	MaxBatchBytes = 4 << 20
)

// EnqueueBatch is Enqueue for many messages: one INSERT for all of them, and one read of the
// unique index for the numbers of the rows. All are enqueued or none: if any of them is
// refused, nothing is changed, and the transaction can go on as after Enqueue. Receipts are in
// the order of messages. A message that stands twice in the batch is one row, and the receipt
// of the second says that it was there.
//
// If a key is in the outbox already, the batch is gone through one by one, inside a savepoint
// of its own.
//
// It returns the errors of Enqueue. A refused message is named by its place, from 0. More than
// [MaxBatch] messages, or [MaxBatchBytes] of requests, are refused with an
// [*orbit.InvalidArgumentError]; none are no error.
func (o *Outbox) EnqueueBatch(ctx context.Context, tx Tx, messages []Message) ([]Receipt, error) {
	if err := o.check(tx); err != nil {
		return nil, err
	}
	b, err := o.newBatch(ctx, messages)
	if err != nil {
		return nil, fmt.Errorf("outbox: enqueue batch: %w", err)
	}
	if len(b.rows) == 0 {
		return nil, nil
	}
	if err := o.enqueueAll(ctx, tx, b); err != nil {
		return nil, err
	}
	return b.receipts(), nil
}

func (o *Outbox) enqueueAll(ctx context.Context, tx Tx, b *batch) error {
	reader, can := tx.(rowsQuerier)
	if !can {
		return o.enqueueEach(ctx, tx, b)
	}
	query := insertRows + strings.Repeat(o.values+", ", len(b.rows)-1) + o.values
	_, err := tx.ExecContext(ctx, query, b.args(o)...)
	if err == nil {
		err = b.readSeqs(ctx, reader)
	}
	switch {
	case err == nil:
		return nil
	case o.dialect.Duplicate(err):
		return o.enqueueEach(ctx, tx, b)
	}
	return failed(o.dialect, "enqueue batch", err)
}

// A batch is the rows of an EnqueueBatch, each identity once.
type batch struct {
	rows     []frozen            // in the order of identities: two batches lock what they share in one order
	found    []Receipt           // of rows
	messages [][sha256.Size]byte // identities, in the caller's order
}

func (o *Outbox) newBatch(ctx context.Context, messages []Message) (*batch, error) {
	if len(messages) > MaxBatch {
		return nil, &orbit.InvalidArgumentError{Field: "messages", Rule: fmt.Sprintf("must be at most %d", MaxBatch)}
	}
	b := &batch{}
	size := 0
	first := make(map[[sha256.Size]byte]orbit.Digest, len(messages))
	for i := range messages {
		f, err := o.freeze(ctx, &messages[i])
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		b.messages = append(b.messages, f.identity)
		if digest, twice := first[f.identity]; !twice {
			first[f.identity] = f.digest
			b.rows = append(b.rows, f)
		} else if digest != f.digest {
			return nil, fmt.Errorf("message %d: %w", i, &ConflictError{Stored: digest, Presented: f.digest})
		}
		if size += len(f.body); size > MaxBatchBytes {
			return nil, &orbit.InvalidArgumentError{Field: "messages", Rule: fmt.Sprintf("must have at most %d bytes of requests together", MaxBatchBytes)}
		}
	}
	slices.SortFunc(b.rows, func(x, y frozen) int { return bytes.Compare(x.identity[:], y.identity[:]) })
	b.found = make([]Receipt, len(b.rows))
	return b, nil
}

func (b *batch) args(o *Outbox) []any {
	args := make([]any, 0, 19*len(b.rows))
	for i := range b.rows {
		args = append(args, o.args(&b.rows[i])...)
	}
	return args
}

// place returns where the row with this identity is.
func (b *batch) place(identity []byte) (int, bool) {
	return slices.BinarySearchFunc(b.rows, identity, func(f frozen, id []byte) int { return bytes.Compare(f.identity[:], id) })
}

// readSeqs reads the numbers of rows that this transaction has just inserted. The first or
// the last of them, which drivers tell, does not give the others: a server may count in steps.
func (b *batch) readSeqs(ctx context.Context, tx rowsQuerier) error {
	identities := make([]any, len(b.rows))
	for i := range b.rows {
		identities[i] = b.rows[i].identity[:]
	}
	query := "SELECT identity, seq FROM orbit_outbox WHERE identity IN " + sqldb.Placeholders(len(identities))
	found, err := readAll(ctx, tx, func(rows *sql.Rows) (n int, err error) {
		var identity []byte
		var seq int64
		if err := rows.Scan(&identity, &seq); err != nil {
			return 0, err
		}
		if at, ok := b.place(identity); ok {
			b.found[at] = Receipt{Seq: seq, Digest: b.rows[at].digest}
		}
		return 1, nil
	}, query, identities...)
	if err == nil && len(found) != len(b.rows) {
		err = fmt.Errorf("%d of %d inserted rows are there", len(found), len(b.rows))
	}
	return err
}

const savepoint = "orbit_enqueue_batch"

// enqueueEach enqueues the rows one by one, or none of them.
func (o *Outbox) enqueueEach(ctx context.Context, tx Tx, b *batch) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
		return failed(o.dialect, "enqueue batch", err)
	}
	for i := range b.rows {
		var err error
		if b.found[i], err = o.enqueue(ctx, tx, &b.rows[i]); err == nil {
			continue
		}
		if errors.Is(err, ErrRetry) {
			return err // the engine may have rolled back, and with it the savepoint
		}
		if _, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint); undo != nil {
			return fmt.Errorf("outbox: undo a refused batch: %w (after %w)", undo, err)
		}
		return err
	}
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint)
	if err != nil {
		return failed(o.dialect, "enqueue batch", err)
	}
	return nil
}

// receipts are those of the messages, in their order.
func (b *batch) receipts() []Receipt {
	receipts := make([]Receipt, len(b.messages))
	seen := make([]bool, len(b.rows))
	for i, identity := range b.messages {
		at, _ := b.place(identity[:])
		receipts[i] = b.found[at]
		receipts[i].Existing = receipts[i].Existing || seen[at]
		seen[at] = true
	}
	return receipts
}

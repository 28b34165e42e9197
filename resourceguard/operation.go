package resourceguard

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Record is what a guard keeps of an applied operation.
type Record struct {
	Digest    [32]byte // SHA-256 of the content
	Token     uint64   // token under which it was applied
	Attempt   string   // attempt that applied it
	Receipt   []byte   // what fn returned; nil if nothing
	AppliedAt time.Time
}

// Lookup returns the record of an operation, and false if there is none. Read outside
// a transaction, or in one that began afterwards, it sees everything committed; in a
// transaction with an older snapshot it may not, and at READ UNCOMMITTED it may see what
// will be rolled back.
//
// No record proves nothing while an old attempt may still write. To know for certain,
// commit a [Guard.Raise] above that attempt's token first, and then look up on the
// primary: whatever the attempt has not applied by then, it never will.
func (g *Guard) Lookup(ctx context.Context, q Querier, namespace, key, operation string) (Record, bool, error) {
	if err := g.made(); err != nil {
		return Record{}, false, err
	}
	if err := validOperation(namespace, key, operation); err != nil {
		return Record{}, false, err
	}
	if isNil(q) {
		return Record{}, false, invalid("q", "must be given")
	}
	if err := allowed(ctx, g.authorise, namespace, key); err != nil {
		return Record{}, false, err
	}
	r, err := g.read(ctx, q, g.sql.readOperation, namespace, key, operation)
	if errors.Is(err, sql.ErrNoRows) {
		return Record{}, false, nil
	}
	return r, err == nil, g.retryable(err)
}

func validOperation(namespace, key, operation string) error {
	if err := validName("namespace", namespace); err != nil {
		return err
	}
	if err := validName("key", key); err != nil {
		return err
	}
	return validName("operation", operation)
}

// read returns the record of an operation, or an error that wraps sql.ErrNoRows.
func (g *Guard) read(ctx context.Context, q Querier, query, namespace, key, operation string) (Record, error) {
	var r Record
	var digest []byte
	var at int64
	err := q.QueryRowContext(ctx, query, []byte(namespace), []byte(key), []byte(operation)).
		Scan(&digest, g.dialect.ScanUint64(&r.Token), &r.Attempt, &r.Receipt, &at)
	if err != nil {
		return Record{}, fmt.Errorf("read operation: %w", err)
	}
	copy(r.Digest[:], digest)
	r.AppliedAt = sqldb.Time(at)
	return r, nil
}

// record inserts w as an applied operation, and reports false if it is there already.
func (g *Guard) record(ctx context.Context, tx Tx, w Write) (fresh bool, err error) {
	digest := w.digest()
	args := []any{
		[]byte(w.Namespace), []byte(w.Key), []byte(w.Operation),
		digest[:], g.dialect.Uint64(w.Token), []byte(w.Attempt),
	}
	if g.dialect.Returning {
		var one int
		err = tx.QueryRowContext(ctx, g.sql.insertOperation, args...).Scan(&one)
	} else {
		_, err = tx.ExecContext(ctx, g.sql.insertOperation, args...)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, sql.ErrNoRows), g.dialect.Duplicate(err):
		return false, nil
	}
	return false, fmt.Errorf("record operation: %w", err)
}

// replay answers a repeat of an operation that is on record.
func (g *Guard) replay(ctx context.Context, tx Tx, w Write, s seen) (Result, error) {
	r, err := g.read(ctx, tx, g.sql.repeated, w.Namespace, w.Key, w.Operation)
	if errors.Is(err, sql.ErrNoRows) { // pruned since the insert met it
		return Result{}, fmt.Errorf("%w: %w", ErrRetryable, err)
	}
	if err != nil {
		return Result{}, err
	}
	if err := r.conflict(w); err != nil {
		return Result{}, err
	}
	if err := g.raise(ctx, tx, s, w.fence()); err != nil {
		return Result{}, err
	}
	return Result{Verdict: Replayed, Receipt: r.Receipt}, nil
}

func (r Record) conflict(w Write) error {
	if presented := w.digest(); presented != r.Digest {
		return &ConflictError{Operation: w.Operation, Presented: presented, Applied: r.Digest}
	}
	return nil
}

// tellApplied completes the refusal of a token by a plain read: a late writer may learn
// that its work is done, and locks nothing for it. It returns the refusal unless the read
// fails.
func (g *Guard) tellApplied(ctx context.Context, tx Tx, w Write, refusal error) error {
	r, err := g.read(ctx, tx, g.sql.readOperation, w.Namespace, w.Key, w.Operation)
	switch {
	case err == nil:
		setApplied(refusal, r.conflict(w) == nil)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	return refusal
}

// setApplied completes what admit has refused.
func setApplied(refusal error, applied bool) {
	switch e := refusal.(type) {
	case *StaleError:
		e.AlreadyApplied = applied
	case *CollisionError:
		e.AlreadyApplied = applied
	}
}

// keepReceipt stores what fn returned with the operation of w, which is gone if the
// transaction is: MySQL goes on without one after a deadlock that fn kept to itself.
func (g *Guard) keepReceipt(ctx context.Context, tx Tx, w Write, receipt []byte) error {
	if len(receipt) == 0 {
		return g.proveAlive(ctx, tx)
	}
	res, err := tx.ExecContext(ctx, g.sql.storeReceipt, receipt, []byte(w.Namespace), []byte(w.Key), []byte(w.Operation))
	if err != nil {
		return fmt.Errorf("store receipt: %w", err)
	}
	switch n, err := res.RowsAffected(); {
	case err != nil:
		return fmt.Errorf("store receipt: %w", err)
	case n != 1:
		return fmt.Errorf("store receipt: the record is gone: %w", errEnded)
	}
	return nil
}

// proveAlive fails if fn has kept an error to itself that ended the transaction. Only
// PostgreSQL ends one so, and takes its COMMIT for a ROLLBACK without an error: drivers
// report that from Commit, but to a COMMIT by hand nobody does.
func (g *Guard) proveAlive(ctx context.Context, tx Tx) error {
	if _, by := tx.(byHand); !by || g.dialect != PostgreSQL {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
		return fmt.Errorf("after the business write, which returned no error: %w", err)
	}
	return nil
}

// forget removes the operation of w, which this transaction recorded.
func (g *Guard) forget(ctx context.Context, tx Tx, w Write) error {
	_, err := tx.ExecContext(ctx, g.sql.deleteOperation, []byte(w.Namespace), []byte(w.Key), []byte(w.Operation))
	if err != nil {
		return fmt.Errorf("remove operation: %w", err)
	}
	return nil
}

func validReceipt(receipt []byte) ([]byte, error) {
	if len(receipt) > MaxReceipt {
		return nil, invalid("receipt", "must be at most 256 KiB")
	}
	if len(receipt) == 0 {
		return nil, nil
	}
	return bytes.Clone(receipt), nil
}

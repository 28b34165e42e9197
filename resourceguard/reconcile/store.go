package reconcile

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/orbitkit/orbit/resourceguard"
)

// A Store is a guarded store as a reconciler uses it. *[resourceguard.Memory] is one, and
// [NewStore] makes one of a database. A call that goes on after its context has ended, or
// that panics, leaves the task undecided and holds up no other; at most 8 such calls of one
// store are waited for, and until one comes back the store is asked no more.
type Store interface {
	// Raise returns nil only once every writer below the fence is refused, also one that
	// was under way: its write is visible to a later Lookup, or will never be. A higher
	// maximum is a [resourceguard.ErrStale] and proves the same of those below it.
	Raise(ctx context.Context, f resourceguard.Fence) error

	// Lookup returns the record of an operation, and false if there is none. It sees
	// everything that was committed before the Raise, and nothing that is not: no replica,
	// no cache, no older snapshot, no READ UNCOMMITTED.
	Lookup(ctx context.Context, namespace, key, operation string) (resourceguard.Record, bool, error)
}

// NewStore returns the store that guard guards in db, which must be the primary. Its
// sessions may be set up in any way: look-ups run in transactions of their own, read only, at
// READ COMMITTED or higher. Without guard or db every call is a [resourceguard.ErrInvalid].
func NewStore(guard *resourceguard.Guard, db *sql.DB) Store { return database{guard, db} }

type database struct {
	guard *resourceguard.Guard
	db    *sql.DB
}

func (d database) validate() error {
	switch {
	case d.guard == nil:
		return &resourceguard.InvalidError{Field: "guard", Rule: "must be given to NewStore"}
	case d.db == nil:
		return &resourceguard.InvalidError{Field: "db", Rule: "must be given to NewStore"}
	}
	return nil
}

func (d database) Raise(ctx context.Context, f resourceguard.Fence) error {
	if err := d.validate(); err != nil {
		return err
	}
	return d.guard.Transact(ctx, d.db, func(ctx context.Context, tx *sql.Tx) error { return d.guard.Raise(ctx, tx, f) })
}

func (d database) Lookup(ctx context.Context, namespace, key, operation string) (r resourceguard.Record, found bool, err error) {
	if err := d.validate(); err != nil {
		return r, false, err
	}
	err = readCommitted(ctx, d.db, func(tx *sql.Tx) error {
		r, found, err = d.guard.Lookup(ctx, tx, namespace, key, operation)
		return err
	})
	return r, found, err
}

// readCommitted runs f in a transaction that begins now and sees what is committed,
// whatever the session is set to: one without autocommit may hold a snapshot from long ago.
func readCommitted(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	// What such a session has open would refuse a level of its own: BEGIN ends it.
	if err := inTx(ctx, conn, sql.LevelDefault, func(*sql.Tx) error { return nil }); err != nil {
		return err
	}
	return inTx(ctx, conn, sql.LevelReadCommitted, f)
}

func inTx(ctx context.Context, conn *sql.Conn, level sql.IsolationLevel, f func(*sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: level, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() // there is nothing to commit
	return f(tx)
}

package reconcile

import (
	"context"
	"database/sql"

	"github.com/orbitkit/orbit/resourceguard"
)

// A Store is a guarded store as a reconciler uses it. *[resourceguard.Memory] is one, and
// [NewStore] makes one of a database.
type Store interface {
	// Raise returns nil only once every writer below the fence is refused, also one that
	// was under way: its write is visible to a later Lookup, or will never be. A higher
	// maximum is a [resourceguard.ErrStale] and proves the same.
	Raise(ctx context.Context, f resourceguard.Fence) error

	// Lookup returns the record of an operation, and false if there is none. It sees
	// everything that was committed before the Raise: no replica, no cache.
	Lookup(ctx context.Context, namespace, key, operation string) (resourceguard.Record, bool, error)
}

// NewStore returns the store that guard guards in db, which must be the primary. Guard and
// db must be given.
func NewStore(guard *resourceguard.Guard, db *sql.DB) Store { return database{guard, db} }

type database struct {
	guard *resourceguard.Guard
	db    *sql.DB
}

func (d database) Raise(ctx context.Context, f resourceguard.Fence) error {
	return d.guard.Transact(ctx, d.db, func(ctx context.Context, tx *sql.Tx) error { return d.guard.Raise(ctx, tx, f) })
}

func (d database) Lookup(ctx context.Context, namespace, key, operation string) (resourceguard.Record, bool, error) {
	return d.guard.Lookup(ctx, d.db, namespace, key, operation)
}

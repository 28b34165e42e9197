package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Store reads and settles the outbox of one business database, for a relay and for
// operators. It is safe for concurrent use.
type Store struct {
	db      *sqldb.DB
	dialect *sqldb.Dialect
	epochIs string // condition of every settle
}

// Open returns the store of an open business database. Statements that write run on
// db, plain reads on read, which may be the same; on SQLite a pool of its own for
// reads keeps them from waiting for the one writer. It does no I/O and Close is the
// caller's.
func Open(d *Dialect, db, read *sql.DB) (*Store, error) {
	if d == nil {
		return nil, errors.New("outbox: dialect is nil: use outbox.MySQL or outbox.SQLite")
	}
	if db == nil || read == nil {
		return nil, errors.New("outbox: database is nil")
	}
	return &Store{
		db:      sqldb.New(d, db, read),
		dialect: d,
		epochIs: fmt.Sprintf(epochIs, d.Share),
	}, nil
}

// check reads nothing, but fails if the outbox tables are not there.
func (s *Store) check(ctx context.Context) error {
	var n int
	err := s.db.Read().QueryRowContext(ctx, `SELECT 1 FROM orbit_outbox_lease WHERE shard = -1`).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// Ping reports whether the database answers and holds the tables of the outbox.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return failed(s.dialect, "read the outbox tables", err)
	}
	return nil
}

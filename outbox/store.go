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
	db        *sqldb.DB
	dialect   *sqldb.Dialect
	byPrimary string // index hint after the table's name
	update    string // beginning of every settle
	epochIs   string // condition of every settle
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
	s := &Store{db: sqldb.New(d, db, read), dialect: d, epochIs: fmt.Sprintf(epochIs, d.Share)}
	if d == MySQL {
		s.byPrimary = " FORCE INDEX (PRIMARY)"
	}
	s.update = fmt.Sprintf(updateByPrimary, s.byPrimary)
	return s, nil
}

// Ping fails if the database does not answer or has no outbox tables.
func (s *Store) Ping(ctx context.Context) error {
	var n int
	err := s.db.Read().QueryRowContext(ctx, `SELECT 1 FROM orbit_outbox_lease WHERE shard = -1`).Scan(&n)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return failed(s.dialect, "read the outbox tables", err)
	}
	return nil
}

package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Store reads and settles the outbox of one business database, for a relay and for
// operators. It is safe for concurrent use.
type Store struct {
	db        *sqldb.DB
	dialect   *sqldb.Dialect
	byPrimary string // after the table's name: look rows up by seq, and in no other way
	update    string // beginning of every settle
	remove    string // beginning of a purge
	epochIs   string // condition of every settle
	options   *sql.TxOptions
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
	// A settle names its rows. MySQL would rather read all of a young table, and wait
	// for the business transactions that are adding rows to it; SQLite would rather
	// read all that is pending.
	s.byPrimary = " NOT INDEXED"
	s.remove = "\nDELETE FROM orbit_outbox NOT INDEXED"
	if d == MySQL {
		s.byPrimary = " FORCE INDEX (PRIMARY)"
		s.remove = "\nDELETE orbit_outbox FROM orbit_outbox FORCE INDEX (PRIMARY)"
		s.options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	s.update = "\nUPDATE orbit_outbox" + s.byPrimary
	return s, nil
}

// tx runs f in a transaction. After a deadlock and the like all of f runs again. It sets
// the isolation level itself, since the pool is the business's: a SERIALIZABLE read
// would wait for the business transactions that are adding rows.
func (s *Store) tx(ctx context.Context, f func(*sql.Tx) error) error {
	const tries = 5
	var err error
	for try := range tries {
		if err = s.tryTx(ctx, f); !s.dialect.Transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(10 * time.Millisecond << try)):
		}
	}
	return err
}

func (s *Store) tryTx(ctx context.Context, f func(*sql.Tx) error) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.dialect == MySQL {
		defer allowSilence(conn)
	}
	tx, err := conn.BeginTx(ctx, s.options)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no-op after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A process that is stopped inside a transaction, or whose machine is gone, would keep its
// locks, that of the lease among them, until the server misses it: eight hours by default.
// So the server ends a transaction of ours that says nothing for half a lease (REL-015).
const (
	boundSilence = "SET @orbit_wait_timeout = @@SESSION.wait_timeout, SESSION wait_timeout = 5"
	freeSilence  = "SET SESSION wait_timeout = @orbit_wait_timeout"
)

// connect takes a connection for a transaction. Those that have ended while they were idle
// are passed over, as the pool does for statements of its own.
func (s *Store) connect(ctx context.Context) (*sql.Conn, error) {
	const most = 100
	for try := 1; ; try++ {
		conn, err := s.db.Write().Conn(ctx)
		if err != nil || s.dialect != MySQL {
			return conn, err
		}
		if _, err = conn.ExecContext(ctx, boundSilence); err == nil {
			return conn, nil
		}
		conn.Close()
		if !errors.Is(err, driver.ErrBadConn) || try == most {
			return nil, err
		}
	}
}

// allowSilence makes a connection what it was, or lets the pool drop it.
func allowSilence(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := conn.ExecContext(ctx, freeSilence); err != nil {
		conn.Raw(func(any) error { return driver.ErrBadConn })
	}
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

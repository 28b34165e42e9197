package sqldb

import (
	"context"
	"database/sql"
	"errors"
)

// A Querier runs statements: a *sql.DB, *sql.Conn, *sql.Tx, or anything alike.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A DB is a database of Orbit's own: the pools and the dialect that its SQL needs.
// It is safe for concurrent use.
type DB struct {
	dialect *Dialect
	begin   *sql.DB
	write   *sql.DB
	read    *sql.DB
}

// New wraps open pools. write runs transactions at READ COMMITTED; read runs plain
// reads and may be the same pool. On SQLite write has one connection whose
// transactions begin IMMEDIATE.
func New(d *Dialect, write, read *sql.DB) *DB {
	return &DB{dialect: d, begin: write, write: write, read: read}
}

// WithTransactionsOn returns db with a pool that runs its transactions and nothing else. It
// takes several statements at once, which are separated by semicolons, and [Affected].
func (db *DB) WithTransactionsOn(pool *sql.DB) *DB {
	with := *db
	with.begin = pool
	return &with
}

// MaxConnections returns how many connections the pools open at most, 0 for no limit.
func (db *DB) MaxConnections() int {
	most := 0
	for _, pool := range db.Pools() {
		n := pool.Stats().MaxOpenConnections
		if n == 0 {
			return 0
		}
		most += n
	}
	return most
}

// Pools returns each pool once, by the name of what it is for: "write", and "read" and
// "transactions" if these have one of their own.
func (db *DB) Pools() map[string]*sql.DB {
	pools := map[string]*sql.DB{"write": db.write}
	for name, other := range map[string]*sql.DB{"read": db.read, "transactions": db.begin} {
		if other != db.write {
			pools[name] = other
		}
	}
	return pools
}

// Dialect returns the dialect of db.
func (db *DB) Dialect() *Dialect { return db.dialect }

// Read returns the pool for plain reads outside a transaction.
func (db *DB) Read() *sql.DB { return db.read }

// Write returns the pool for single statements that write and are whole by themselves.
func (db *DB) Write() *sql.DB { return db.write }

// Now reads the database's clock, in microseconds UTC.
func (db *DB) Now(ctx context.Context) (int64, error) {
	return db.dialect.ClockNow(ctx, db.read)
}

// Close closes the pools.
func (db *DB) Close() error {
	var errs []error
	for _, pool := range db.Pools() {
		errs = append(errs, pool.Close())
	}
	return errors.Join(errs...)
}

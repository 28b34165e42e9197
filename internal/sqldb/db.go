package sqldb

import (
	"context"
	"database/sql"
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
	write   *sql.DB
	read    *sql.DB
}

// New wraps open pools. write runs transactions at READ COMMITTED; read runs plain
// reads and may be the same pool. On SQLite write has one connection whose
// transactions begin IMMEDIATE.
func New(d *Dialect, write, read *sql.DB) *DB {
	return &DB{dialect: d, write: write, read: read}
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

// Close closes both pools.
func (db *DB) Close() error {
	err := db.write.Close()
	if db.read != db.write {
		if rerr := db.read.Close(); err == nil {
			err = rerr
		}
	}
	return err
}

package faultdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// errLost is what a broken connection gives: no word from the engine.
var errLost = errors.New("connection lost by the test")

func (f *Faults) openSQLite(t testing.TB, db *dbtest.DB) {
	path := strings.TrimPrefix(db.Address, "sqlite:")
	open := func(txlock string, pragmas ...string) *sql.DB {
		query := url.Values{"_txlock": {txlock}, "_busy_timeout": {"5000"}, "_pragma": pragmas}
		u := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
		return sql.OpenDB(&connector{f: f, driver: db.Write().Driver(), dsn: u.String()})
	}
	write := open("immediate", "journal_mode(WAL)", "synchronous(FULL)")
	write.SetMaxOpenConns(1)
	f.DB = sqldb.New(sqldb.SQLite, write, open("deferred", "query_only(1)"))
}

type connector struct {
	f      *Faults
	driver driver.Driver
	dsn    string
}

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	if c.f.Broken() {
		return nil, errLost
	}
	inner, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, f: c.f}, nil
}

func (c *connector) Driver() driver.Driver { return c.driver }

// A conn fails like one whose other end is gone.
type conn struct {
	driver.Conn
	f    *Faults
	lost bool
}

func (c *conn) gone() bool { return c.lost || c.f.Broken() }

func (c *conn) IsValid() bool { return !c.gone() }

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.gone() {
		return nil, errLost
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return &transaction{tx, c}, err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.gone() {
		return nil, errLost
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.gone() {
		return nil, errLost
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.gone() {
		return nil, errLost
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

type transaction struct {
	driver.Tx
	c *conn
}

func (tx *transaction) Commit() error {
	if tx.c.gone() {
		return errors.Join(errLost, tx.Tx.Rollback())
	}
	switch tx.c.f.commit() {
	case CutBefore:
		tx.c.lost = true
		return errors.Join(errLost, tx.Tx.Rollback())
	case LoseAnswer:
		tx.c.lost = true
		if err := tx.Tx.Commit(); err != nil {
			return err
		}
		return errLost
	}
	return tx.Tx.Commit()
}

package dbfault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// errLost is what a broken connection gives: no word from the engine.
var errLost = errors.New("connection lost by the test")

// A busy is the engine's word that the transaction is to be run again, in the form of
// mattn/go-sqlite3.
type busy struct{ ExtendedCode int }

func (b busy) Error() string {
	return fmt.Sprintf("database is locked by the test (%d)", b.ExtendedCode)
}

var (
	sqliteBusy         = busy{5}
	sqliteBusySnapshot = busy{517}
)

func (f *Faults) openSQLite(db *dbtest.DB) {
	path := strings.TrimPrefix(db.Address, "sqlite:")
	open := func(txlock string, pragmas ...string) *sql.DB {
		query := url.Values{"_txlock": {txlock}, "_pragma": append(pragmas, "busy_timeout(5000)")}
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
	f      *Faults
	lost   bool
	inside bool // a transaction is open
}

func (c *conn) gone() bool { return c.lost || c.f.Broken() }

func (c *conn) IsValid() bool { return !c.gone() }

func (c *conn) place() Call {
	if c.inside {
		return Inside
	}
	return Outside
}

// do runs a call, if its verdict lets it.
func do[A any](c *conn, where Call, call func() (A, error)) (A, error) {
	var none A
	if c.gone() {
		return none, errLost
	}
	switch c.f.call(where) {
	case CutBefore:
		c.lost = true
		return none, errLost
	case Deadlock:
		return none, sqliteBusySnapshot
	case LockWait:
		return none, sqliteBusy
	case LoseAnswer:
		c.lost = true
		got, err := call()
		if rows, open := any(got).(io.Closer); open && err == nil {
			rows.Close()
		}
		if err != nil {
			return none, err
		}
		return none, errLost
	}
	return call()
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := do(c, Inside, func() (driver.Tx, error) { return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	c.inside = true
	return &transaction{tx, c}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return do(c, c.place(), func() (driver.Result, error) { return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) })
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return do(c, c.place(), func() (driver.Rows, error) { return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args) })
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.gone() {
		return nil, errLost
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

type transaction struct {
	driver.Tx
	conn *conn
}

// Commit rolls back if it fails: that is what a connection that is gone leaves. After a
// commit there is nothing to roll back.
func (tx *transaction) Commit() error {
	tx.conn.inside = false
	_, err := do(tx.conn, Commit, func() (struct{}, error) { return struct{}{}, tx.Tx.Commit() })
	if err != nil {
		tx.Tx.Rollback()
	}
	return err
}

func (tx *transaction) Rollback() error {
	tx.conn.inside = false
	return tx.Tx.Rollback()
}

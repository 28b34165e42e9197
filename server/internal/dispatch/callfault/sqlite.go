package callfault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// errLost is no word from the engine.
var errLost = errors.New("connection lost by the test")

func (c *Calls) openSQLite(db *dbtest.DB) {
	path := strings.TrimPrefix(db.Address, "sqlite:")
	open := func(txlock string, pragmas ...string) *sql.DB {
		query := url.Values{"_txlock": {txlock}, "_pragma": append(pragmas, "busy_timeout(5000)")}
		u := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
		return sql.OpenDB(&connector{calls: c, driver: db.Write().Driver(), dsn: u.String()})
	}
	write := open("immediate", "journal_mode(WAL)", "synchronous(FULL)")
	write.SetMaxOpenConns(1)
	c.DB = sqldb.New(sqldb.SQLite, write, open("deferred", "query_only(1)"))
}

type connector struct {
	calls  *Calls
	driver driver.Driver
	dsn    string
}

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	inner, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, calls: c.calls}, nil
}

func (c *connector) Driver() driver.Driver { return c.driver }

// A conn is dead once a call on it has failed.
type conn struct {
	driver.Conn
	calls *Calls
	dead  bool
}

func (c *conn) IsValid() bool { return !c.dead }

// do runs a call, unless it is the one that fails.
func do[A any](c *conn, call func() (A, error)) (A, error) {
	var none A
	if c.dead {
		return none, errLost
	}
	fail, when := c.calls.call()
	if fail && when == Before {
		c.dead = true
		return none, errLost
	}
	got, err := call()
	if fail {
		c.dead = true
		return none, errLost
	}
	return got, err
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := do(c, func() (driver.Tx, error) { return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return &transaction{tx, c}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return do(c, func() (driver.Result, error) { return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args) })
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.dead {
		return nil, errLost
	}
	fail, _ := c.calls.call() // a read has no effect
	if fail {
		c.dead = true
		return nil, errLost
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

type transaction struct {
	driver.Tx
	conn *conn
}

func (tx *transaction) Commit() error {
	_, err := do(tx.conn, func() (struct{}, error) { return struct{}{}, tx.Tx.Commit() })
	if errors.Is(err, errLost) {
		tx.Tx.Rollback() // what a connection that is gone leaves; nothing after a commit
	}
	return err
}

func (tx *transaction) Rollback() error { return tx.Tx.Rollback() }

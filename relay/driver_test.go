package relay_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/outbox"
)

// A tap stands between a relay and its database: it counts statements and can make one
// fail, before or after its effect.
type tap struct {
	statements atomic.Int64
	failAt     int64 // number of the statement that fails; 0 fails none
	after      bool
	fails      func(query string) bool // fails every statement for which it is true
	fired      atomic.Bool
}

var errTap = errors.New("connection lost by the test") // no word of the engine: outcome unknown

// open opens the database of db through the tap, as a store.
func (p *tap) open(t *testing.T, db *dbtest.DB) *outbox.Store {
	t.Helper()
	return p.openAs(t, db, db.Dialect())
}

func (p *tap) openAs(t *testing.T, db *dbtest.DB, d *outbox.Dialect) *outbox.Store {
	t.Helper()
	pool := sql.OpenDB(&tapConnector{tap: p, driver: db.Write().Driver(), dsn: dsnOf(db)})
	t.Cleanup(func() { pool.Close() })
	if db.Engine == dbtest.SQLite {
		pool.SetMaxOpenConns(1)
	}
	store, err := outbox.Open(d, pool, pool)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func dsnOf(db *dbtest.DB) string {
	_, rest, _ := strings.Cut(db.Address, ":")
	if db.Engine == dbtest.SQLite {
		return outbox.SQLiteDSN((&url.URL{Path: rest}).Path)
	}
	sep := "?"
	if strings.Contains(rest, "?") {
		sep = "&"
	}
	return rest + sep + "interpolateParams=true"
}

// run runs one statement of the driver, or fails.
func (p *tap) run(query string, f func() error) error {
	n := p.statements.Add(1)
	if n != p.failAt && (p.fails == nil || !p.fails(query)) {
		return f()
	}
	p.fired.Store(true)
	if p.after {
		f()
	}
	return errTap
}

type tapConnector struct {
	tap    *tap
	driver driver.Driver
	dsn    string
}

func (c *tapConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &tapConn{Conn: conn, tap: c.tap}, nil
}

func (c *tapConnector) Driver() driver.Driver { return c.driver }

type tapConn struct {
	driver.Conn
	tap *tap
}

func (c *tapConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.tap.run(query, func() error {
		res, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return res, err
}

func (c *tapConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.tap.run(query, func() error {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		return err
	})
	if errors.Is(err, errTap) && rows != nil {
		rows.Close()
		rows = nil
	}
	return rows, err
}

func (c *tapConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &tapTx{Tx: tx, tap: c.tap}, nil
}

func (c *tapConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *tapConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *tapConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

type tapTx struct {
	driver.Tx
	tap *tap
}

func (x *tapTx) Commit() error { return x.tap.run("COMMIT", x.Tx.Commit) }

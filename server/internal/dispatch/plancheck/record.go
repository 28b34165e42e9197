package plancheck

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// Record opens db once more and has see called with each statement and its values, before
// it is carried out. Statements go one by one: none travel together.
func Record(t *testing.T, db *dbtest.DB, see func(query string, args []any)) *sqldb.DB {
	t.Helper()
	_, rest, _ := strings.Cut(db.Address, ":")
	dsn := rest + "?interpolateParams=true"
	if db.Engine == dbtest.SQLite {
		options := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)"}}
		dsn = (&url.URL{Scheme: "file", Path: rest, RawQuery: options.Encode()}).String()
	} else if strings.Contains(rest, "?") {
		dsn = rest + "&interpolateParams=true"
	}
	carryOut := func(_ string, call func() error) error { return call() }
	pool := sql.OpenDB(dbfault.Through(recorder{db.Write().Driver(), see}, dsn, carryOut))
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() { pool.Close() })
	return sqldb.New(db.Dialect(), pool, db.Read())
}

type recorder struct {
	driver.Driver
	see func(query string, args []any)
}

func (r recorder) Open(dsn string) (driver.Conn, error) {
	conn, err := r.Driver.Open(dsn)
	if err != nil {
		return nil, err
	}
	return recordedConn{conn, conn.(driver.ConnBeginTx), r.see}, nil
}

type recordedConn struct {
	driver.Conn
	driver.ConnBeginTx
	see func(query string, args []any)
}

func (c recordedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.see(query, values(args))
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c recordedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.see(query, values(args))
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func values(args []driver.NamedValue) []any {
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = a.Value
	}
	return list
}

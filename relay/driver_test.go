package relay_test

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/outbox"
)

// A tap stands between a relay and its database: it counts statements and can make some
// fail.
type tap struct {
	statements atomic.Int64
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
	pool := sql.OpenDB(dbfault.Through(db.Write().Driver(), dsnOf(db), p.run))
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
	p.statements.Add(1)
	if p.fails == nil || !p.fails(query) {
		return f()
	}
	p.fired.Store(true)
	return errTap
}

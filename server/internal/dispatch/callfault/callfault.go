// Package callfault opens a test database through something that breaks the connection at
// the Nth call, before or after the call has had its effect: a proxy in front of MySQL and
// MariaDB, a wrapped driver for SQLite.
package callfault

import (
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Moment says when, around its effect, a call fails.
type Moment int

// When a call fails.
const (
	Before Moment = iota // it never arrives
	After                // it is carried out, its answer is lost
)

// String names the moment.
func (m Moment) String() string { return [...]string{"before", "after"}[m] }

// Calls is a database whose calls are counted.
type Calls struct {
	DB *sqldb.DB

	mu    sync.Mutex
	armed bool
	nth   int
	when  Moment
	count int
	fired bool
}

// Open opens db once more. Nothing fails until Arm.
func Open(t testing.TB, db *dbtest.DB) *Calls {
	t.Helper()
	c := &Calls{}
	if db.Engine == dbtest.SQLite {
		c.openSQLite(db)
	} else {
		c.openMySQL(t, db)
	}
	t.Cleanup(func() { c.DB.Close() })
	return c
}

// Arm makes the nth call from now fail, counted from 1. It fails once.
func (c *Calls) Arm(nth int, when Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.nth, c.when, c.count, c.fired = true, nth, when, 0, false
}

// Disarm ends the counting and reports whether a call failed.
func (c *Calls) Disarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	return c.fired
}

// call counts a call and reports whether it is the one that fails, and when.
func (c *Calls) call() (fail bool, when Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed || c.fired {
		return false, 0
	}
	if c.count++; c.count < c.nth {
		return false, 0
	}
	c.fired = true
	return true, c.when
}

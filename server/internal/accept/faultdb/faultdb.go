// Package faultdb opens a test database through something that can hold a COMMIT, lose
// its answer, cut it off before it arrives, or cut everything off: a proxy in front of
// MySQL and MariaDB, a wrapped driver for SQLite.
package faultdb

import (
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Verdict says what becomes of one COMMIT.
type Verdict int

const (
	Pass       Verdict = iota // it is carried out and answered
	LoseAnswer                // it is carried out, and the connection breaks before the answer
	CutBefore                 // the connection breaks before it arrives
)

// Faults are the faults of one database as a node sees it.
type Faults struct {
	DB *sqldb.DB // the database, through the faults

	mu      sync.Mutex
	commits int
	judge   func(n int) Verdict
	broken  bool
}

// Open opens db once more, through faults. None happens until it is asked for.
func Open(t testing.TB, db *dbtest.DB) *Faults {
	t.Helper()
	f := &Faults{judge: func(int) Verdict { return Pass }}
	if db.Engine == dbtest.SQLite {
		f.openSQLite(t, db)
	} else {
		f.openMySQL(t, db)
	}
	t.Cleanup(func() { f.DB.Close() })
	return f
}

// OnCommit lets judge decide on each COMMIT from now on; n counts them from 1. It may
// block, which holds the COMMIT before it is carried out.
func (f *Faults) OnCommit(judge func(n int) Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits, f.judge = 0, judge
}

// Commits returns how many COMMITs were sent since OnCommit.
func (f *Faults) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

// Break cuts every statement off that is sent from now on, until Mend. A COMMIT that has
// been sent is still judged.
func (f *Faults) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = true
}

// Mend makes the database reachable again.
func (f *Faults) Mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = false
}

// Broken reports whether the database is unreachable.
func (f *Faults) Broken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// commit counts one COMMIT and asks what becomes of it.
func (f *Faults) commit() Verdict {
	f.mu.Lock()
	f.commits++
	n, judge := f.commits, f.judge
	f.mu.Unlock()
	return judge(n)
}

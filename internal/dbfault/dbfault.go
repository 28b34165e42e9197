// Package dbfault opens a test database through something that makes calls fail: a proxy
// in front of MySQL and MariaDB, a wrapped driver for SQLite. It can break any one call
// before or after its effect, let the engine refuse it as a deadlock or a lock wait that
// took too long, hold or break a COMMIT, and cut everything off.
package dbfault

import (
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Verdict says what becomes of one call.
type Verdict int

const (
	Pass       Verdict = iota // it is carried out and answered
	LoseAnswer                // it is carried out, and the connection breaks before the answer
	CutBefore                 // the connection breaks before it arrives
	Deadlock                  // the engine rolls the transaction back, error 1213; SQLITE_BUSY_SNAPSHOT
	LockWait                  // the engine refuses the statement, error 1205; SQLITE_BUSY
)

// Failures are all verdicts but Pass.
var Failures = []Verdict{LoseAnswer, CutBefore, Deadlock, LockWait}

// Ways returns the ways in which each call in turn is made to fail, the nth call from 1. A
// server's two refusals take turns: sqldb answers both by running the transaction again.
// On SQLite, which is slow under the race detector, a lost connection takes turns with them.
func Ways(engine string) []func(nth int) Verdict {
	lose := func(int) Verdict { return LoseAnswer }
	if engine == dbtest.SQLite {
		return []func(int) Verdict{lose, func(nth int) Verdict { return CutBefore + Verdict(nth%3) }}
	}
	return []func(int) Verdict{lose,
		func(int) Verdict { return CutBefore },
		func(nth int) Verdict { return Deadlock + Verdict(nth%2) },
	}
}

// String tells the verdict as what the call does.
func (v Verdict) String() string {
	return [...]string{"passes", "loses its answer", "is cut off before its effect", "ends in a deadlock", "waits too long for a lock"}[v]
}

// Refused reports whether the engine itself answers, and asks for the transaction to be
// run again.
func (v Verdict) Refused() bool { return v == Deadlock || v == LockWait }

// A Call says where a call stands.
type Call int

const (
	Outside  Call = iota // of any transaction
	Inside               // a transaction, its begin included
	Commit               // the end of one
	Rollback             // the other end
)

// Faults are the faults of one database as a node sees it.
type Faults struct {
	DB      *sqldb.DB // the database, through the faults
	Address string    // the same for another process; empty on SQLite

	mu      sync.Mutex
	commits int
	judge   func(n int) Verdict
	broken  bool

	calls int

	armed bool
	nth   int
	how   Verdict
	count int
	fired bool
	hit   Call

	trap *Trap
}

// A Trap is what happens at the COMMIT of the first transaction that has a certain
// statement. Its answer is lost. MySQL and MariaDB only.
type Trap struct {
	Statement func(text string) bool
	Before    bool   // the COMMIT does not arrive either; else the server has answered it
	Do        func() // is done before the connection breaks
}

// Open opens db once more, through faults. None happens until it is asked for.
func Open(t testing.TB, db *dbtest.DB) *Faults {
	t.Helper()
	f := &Faults{judge: func(int) Verdict { return Pass }}
	if db.Engine == dbtest.SQLite {
		f.openSQLite(db)
	} else {
		f.openMySQL(t, db)
	}
	t.Cleanup(func() { f.DB.Close() })
	return f
}

// Arm makes the nth call from now fail, counted from 1. It fails once.
func (f *Faults) Arm(nth int, how Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.nth, f.how, f.count, f.fired = true, nth, how, 0, false
}

// Disarm ends the counting and reports whether a call failed, and which.
func (f *Faults) Disarm() (hit Call, fired bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	return f.hit, f.fired
}

// Calls returns how many calls were made: statements, and ends of transactions.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Set sets a trap. It goes off once, in place of one that was set before.
func (f *Faults) Set(trap Trap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap = &trap
}

// tread reports whether a statement is the one that a trap waits for.
func (f *Faults) tread(statement string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trap != nil && f.trap.Statement(statement)
}

// spring takes the trap away, if it is still there.
func (f *Faults) spring() (t *Trap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, f.trap = f.trap, nil
	return t
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

// call counts one call and tells what becomes of it.
func (f *Faults) call(c Call) Verdict {
	f.mu.Lock()
	f.calls++
	if f.armed && !f.fired {
		if f.count++; f.count >= f.nth {
			f.fired, f.hit = true, c
			defer f.mu.Unlock()
			return f.how
		}
	}
	if c != Commit {
		f.mu.Unlock()
		return Pass
	}
	f.commits++
	n, judge := f.commits, f.judge
	f.mu.Unlock()
	return judge(n)
}

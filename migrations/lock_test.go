package migrations_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// holdLock writes a lock row for another runner, with a lease of so many microseconds.
func holdLock(t *testing.T, db *dbtest.DB, holder string, micros int64) {
	t.Helper()
	execute(t, db, "DELETE FROM orbit_migration_lock")
	execute(t, db, "INSERT INTO orbit_migration_lock (set_name, holder, epoch, lease_until) VALUES (?, ?, 7, "+db.Dialect().Clock+" + ?)",
		[]byte("server"), []byte(holder), micros)
}

func TestASecondRunnerSaysForWhomItWaitsAndGoesOnWhenTheLockIsFree(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 1)
		holdLock(t, db, "other host", time.Hour.Microseconds())
		waiting := make(chan string, 10)
		done := make(chan error, 1)
		go func() {
			_, err := migrations.Up(t.Context(), db.Reopen(t).DB, migrations.Server, migrations.Options{To: 2, Report: func(e migrations.Event) {
				if e.Kind == migrations.Waiting {
					waiting <- e.Holder
				}
			}})
			done <- err
		}()
		select {
		case holder := <-waiting:
			if holder != "other host" {
				t.Errorf("waits for %q, want other host", holder)
			}
		case err := <-done:
			t.Fatalf("Up did not wait: %v", err)
		}
		if v, err := migrations.Version(t.Context(), db.DB, migrations.Server); err != nil || v != 1 {
			t.Errorf("Version while waiting = %d, %v, want 1", v, err)
		}
		execute(t, db, "UPDATE orbit_migration_lock SET holder = ?, lease_until = 0", []byte{})
		if err := <-done; err != nil {
			t.Errorf("Up: %v", err)
		}
		if len(waiting) != 0 {
			t.Errorf("said %d more times for whom it waits", len(waiting))
		}
	})
}

func TestAWaitingRunnerStopsWithItsContext(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 1)
		holdLock(t, db, "other host", time.Hour.Microseconds())
		ctx, cancel := context.WithCancel(t.Context())
		_, err := migrations.Up(ctx, db.DB, migrations.Server, migrations.Options{Report: func(migrations.Event) { cancel() }})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "other host") {
			t.Errorf("Up = %v, want context.Canceled and the holder", err)
		}
	})
}

func TestTheLockOfACrashedRunnerFreesItself(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		other := db.Reopen(t)
		migrate(t, db, 1)
		holdLock(t, db, "crashed", time.Hour.Microseconds())
		waited := false
		_, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: 2, Report: func(e migrations.Event) {
			if e.Kind == migrations.Waiting {
				waited = true
				execute(t, other, "UPDATE orbit_migration_lock SET lease_until = "+db.Dialect().Clock+" + 200000") // its hour is over
			}
		}})
		if err != nil || !waited {
			t.Errorf("Up = %v, waited %v, want success after the lease", err, waited)
		}
		if v, err := migrations.Version(t.Context(), db.DB, migrations.Server); err != nil || v != 2 {
			t.Errorf("Version = %d, %v, want 2", v, err)
		}
	})
}

// A runner that was taken for dead must not go on beside its successor.
func TestARunnerThatLostTheLockStopsBeforeItsNextStatement(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		other := db.Reopen(t)
		steal := func(e migrations.Event) {
			if e.Kind == migrations.StatementRunning && e.Step == "000002_task" {
				holdLock(t, other, "successor", time.Hour.Microseconds())
			}
		}
		_, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{Report: steal})
		if !errors.Is(err, migrations.ErrLockLost) {
			t.Errorf("Up = %v, want ErrLockLost", err)
		}
		if v, err := migrations.Version(t.Context(), db.DB, migrations.Server); err != nil || v != 1 {
			t.Errorf("Version = %d, %v, want 1", v, err)
		}
		if _, there := schema(t, db)["task"]; there {
			t.Error("the runner without the lock created the next table")
		}
		if n := number(t, db, "SELECT COUNT(*) FROM orbit_migration_lock WHERE holder = ?", []byte("successor")); n != 1 {
			t.Error("the runner without the lock freed its successor's")
		}
	})
}

// What a statement writes and its record are one transaction, which ends with a look at
// the lock: a runner that lost it during the statement leaves nothing of it.
func TestRowsOfARunnerThatLostTheLockAreRolledBack(t *testing.T) {
	tree := oneSet("CREATE TABLE a (x INT);\nINSERT INTO a (x) VALUES (1);\n")
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		other := db.Reopen(t)
		steal := func(e migrations.Event) {
			if e.Kind == migrations.StatementRunning && e.Statement == 2 {
				holdLock(t, other, "successor", 0)
			}
		}
		if _, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{Report: steal}); !errors.Is(err, migrations.ErrLockLost) {
			t.Fatalf("Up = %v, want ErrLockLost", err)
		}
		if n := number(t, db, "SELECT COUNT(*) FROM a"); n != 0 {
			t.Errorf("%d rows of the runner that lost the lock, want 0", n)
		}
		if _, err := migrations.UpFiles(t.Context(), db.DB, tree, migrations.Server, migrations.Options{}); err != nil {
			t.Fatal(err)
		}
		if n := number(t, db, "SELECT COUNT(*) FROM a"); n != 1 {
			t.Errorf("%d rows after the successor, want 1", n)
		}
	})
}

// The lease is renewed while a statement runs: a runner at work is not taken for dead.
func TestTheLeaseIsRenewedWhileAStatementRuns(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		other := db.Reopen(t)
		const lease = "SELECT lease_until FROM orbit_migration_lock"
		renewed := false
		slow := func(e migrations.Event) {
			if e.Kind != migrations.StatementRunning || e.Step != "000002_task" || e.Statement != 2 {
				return
			}
			first := number(t, other, lease)
			for deadline := time.Now().Add(30 * time.Second); !renewed && time.Now().Before(deadline); {
				renewed = number(t, other, lease) > first
				time.Sleep(20 * time.Millisecond)
			}
		}
		if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: 2, Lease: time.Second, Report: slow}); err != nil {
			t.Fatal(err)
		}
		if !renewed {
			t.Error("the lease was not renewed")
		}
	})
}

func TestATooShortLeaseIsRefused(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite)
	if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{Lease: time.Millisecond}); err == nil {
		t.Error("Up with a lease of 1ms succeeded")
	}
}

package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// onServers runs f on the engines that have isolation levels.
func onServers(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		if db.Engine == dbtest.SQLite {
			t.Skip("SQLite has no such isolation level")
		}
		f(t, db)
	})
}

func mustExec(t testing.TB, tx *sql.Tx, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// readsOld opens a snapshot in tx, as an owner does who reads before writing.
func readsOld(t testing.TB, tx *sql.Tx) {
	t.Helper()
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM log").Scan(&n); err != nil {
		t.Fatal(err)
	}
}

// TestContentionEndsInNoDeadlock counts the writes that the engine could not judge.
// They are none on MySQL and MariaDB, but for one case: when the transaction that made a
// key's row rolls back, those that wait for the row inherit locks on the gap that it
// leaves, and all but one of them may be ended (1213). The row is there for good once any
// transaction with the key has committed, a Raise for one. PostgreSQL has no gaps; at
// REPEATABLE READ and above it refuses with 40001 whoever had to wait for another's raise,
// which is no deadlock.
// RG-003, RG-007.
func TestContentionEndsInNoDeadlock(t *testing.T) {
	const writers, rounds = 16, 3
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		for _, isolation := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			s := openStore(t, db, setting{isolation: isolation}, resourceguard.Config{})
			waitersFail := db.Engine == dbtest.Postgres && isolation != sql.LevelReadCommitted
			for _, c := range []struct {
				name      string
				write     func(writer int) resourceguard.Write
				there     bool // the row of the key
				rollsBack bool // every second writer
				mayRetry  bool
			}{
				{name: "first contact", write: risingTokens},
				{name: "known key", write: risingTokens, there: true},
				{name: "known key with rollbacks", write: risingTokens, there: true, rollsBack: true},
				{name: "new keys side by side", write: ownKeys},
				{name: "new keys side by side with rollbacks", write: ownKeys, rollsBack: true},
				{name: "one operation", write: oneOperation, there: true},
				{name: "one operation at first contact", write: oneOperation},
				{name: "first contact with rollbacks", write: risingTokens, rollsBack: true, mayRetry: db.Engine != dbtest.Postgres},
			} {
				// Keys are new each time and never deleted, as an owner's: the remains of
				// deleted rows would lock gaps at REPEATABLE READ.
				w := func(round, writer int) resourceguard.Write {
					w := c.write(writer)
					w.Key = fmt.Sprintf("%s/%s/%d/%s", c.name, isolation, round, w.Key)
					return w
				}
				var running sync.WaitGroup
				for round := range rounds {
					if c.there {
						first := w(round, 0)
						first.Operation = "first"
						mustApply(t, s, first)
					}
					for writer := range writers {
						end := guardtest.Commit
						if c.rollsBack && writer%2 == 0 {
							end = guardtest.RollBack
						}
						running.Go(func() {
							_, err := s.Apply(t.Context(), w(round, writer), []byte("receipt"), end)
							if err != nil && !errors.Is(err, resourceguard.ErrStale) && !errors.Is(err, resourceguard.ErrRetryable) {
								t.Errorf("%s: %v", c.name, err)
							}
						})
					}
					running.Wait()
				}
				n, dead := s.retries.Swap(0), s.dead.Swap(0)
				t.Logf("%s, %s: %d of %d writes to be tried again", c.name, isolation, n, writers*rounds)
				if n > 0 && !c.mayRetry && !waitersFail || dead > 0 && !c.mayRetry {
					t.Errorf("%s, %s: %d writes were to be tried again, %d of them after a deadlock, want 0", c.name, isolation, n, dead)
				}
			}
		}
	})
}

func risingTokens(writer int) resourceguard.Write {
	return write(uint64(writer+1), fmt.Sprintf("operation-%d", writer))
}

func ownKeys(writer int) resourceguard.Write {
	w := write(5, "a")
	w.Key = fmt.Sprintf("key-%d", writer)
	return w
}

func oneOperation(int) resourceguard.Write { return write(5, "a") }

// TestOldSnapshotDoesNotMislead: verdicts in a transaction that read long ago are
// those of the present; PostgreSQL, which could not give them, refuses to judge (40001).
func TestOldSnapshotDoesNotMislead(t *testing.T) {
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, setting{isolation: sql.LevelRepeatableRead}, resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		for _, c := range []struct {
			name string
			w    resourceguard.Write
			want error
		}{
			{"stale", write(6, "late"), resourceguard.ErrStale},
			{"repeat", write(9, "b"), nil},
			{"collision", resourceguard.Write{Namespace: "namespace", Key: "object/42", Token: 9, Attempt: "x", Operation: "c", Content: []byte("c")}, resourceguard.ErrTokenCollision},
			{"conflict", resourceguard.Write{Namespace: "namespace", Key: "object/42", Token: 9, Attempt: "attempt-9", Operation: "b", Content: []byte("c")}, resourceguard.ErrOperationConflict},
		} {
			if _, err := s.emptied(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustApply(t, s, write(5, "a"))
			tx, err := s.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			readsOld(t, tx)
			mustApply(t, s, write(9, "b"))
			res, err := s.guard.Apply(t.Context(), tx, c.w, nothing)
			tx.Rollback()
			if db.Engine == dbtest.Postgres {
				wantRetryable(t, err)
				mustHold(t, s, 9, guardtest.Entry{Token: 5, Operation: "a"}, guardtest.Entry{Token: 9, Operation: "b"})
				continue
			}
			if !errors.Is(err, c.want) || c.want == nil && (res.Verdict != resourceguard.Replayed || string(res.Receipt) != "receipt") {
				t.Errorf("%s: Apply = %v %q, %v, want %v", c.name, res.Verdict, res.Receipt, err, c.want)
			}
		}
	})
}

// impatient makes a transaction give up soon when it waits for a lock.
func impatient(t testing.TB, tx *sql.Tx, engine string) {
	t.Helper()
	if engine == dbtest.Postgres {
		mustExec(t, tx, "SET LOCAL lock_timeout = 100")
	} else {
		mustExec(t, tx, "SET SESSION innodb_lock_wait_timeout = 1")
	}
}

// TestLockWaitTimeoutIsRetryable: 1205 rolls the statement back, not the transaction;
// 55P03 leaves a transaction that can do nothing more.
func TestLockWaitTimeoutIsRetryable(t *testing.T) {
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		holder, err := s.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback()
		if _, err := s.guard.Apply(t.Context(), holder, write(6, "b"), nothing); err != nil {
			t.Fatal(err)
		}
		waiter, err := s.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		impatient(t, waiter, db.Engine)
		_, err = s.guard.Apply(t.Context(), waiter, write(9, "c"), nothing)
		wantRetryable(t, err)
		waiter.Rollback()
		holder.Rollback()
		mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
		mustApply(t, s, write(9, "c"))
	})
}

// TestLockWaitInsideFnIsNoRefusal: the savepoint outlives a 1205, but the database's
// failure is not the word of the business.
func TestLockWaitInsideFnIsNoRefusal(t *testing.T) {
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{KeepRaise: true})
		mustApply(t, s, write(5, "a"))
		holder, err := s.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback()
		mustExec(t, holder, "UPDATE log SET operation = operation")
		err = inTx(t, s, func(tx *sql.Tx) error {
			impatient(t, tx, db.Engine)
			_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, "UPDATE log SET operation = operation")
				return nil, err
			})
			return err
		})
		wantRetryable(t, err)
		holder.Rollback()
		mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
	})
}

func wantRetryable(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, resourceguard.ErrRetryable) {
		t.Errorf("Apply = %v, want ErrRetryable", err)
	}
	for _, other := range []error{resourceguard.ErrStale, resourceguard.ErrRefused, resourceguard.ErrOperationConflict} {
		if errors.Is(err, other) {
			t.Errorf("Apply = %v, which is also %v", err, other)
		}
	}
}

// TestDeadlockIsRetryable takes two keys in opposite orders, so that the engine ends
// one of the transactions: 1213, 40P01, in the guard's statement or in one of fn.
func TestDeadlockIsRetryable(t *testing.T) {
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		for _, cfg := range []resourceguard.Config{{}, {KeepRaise: true}} {
			s := openStore(t, db, settings(db.Engine)[0], cfg)
			if _, err := s.emptied(t.Context()); err != nil {
				t.Fatal(err)
			}
			results := make(chan error, 2)
			holds, cross := make(chan struct{}), make(chan struct{})
			for _, order := range [][2]string{{"left", "right"}, {"right", "left"}} {
				go func() { results <- s.applyBoth(t.Context(), order, holds, cross) }()
			}
			<-holds
			<-holds
			close(cross)
			var failed []error
			for range 2 {
				if err := <-results; err != nil {
					failed = append(failed, err)
				}
			}
			if len(failed) != 1 {
				t.Fatalf("%d of two crossing transactions failed: %v, want 1", len(failed), failed)
			}
			wantRetryable(t, failed[0])
			var entries int
			if err := s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM log").Scan(&entries); err != nil || entries != 2 {
				t.Errorf("%d entries are written (%v), want the 2 of one transaction", entries, err)
			}
		}
	})
}

// applyBoth applies a write to the first key and, within it, one to the second. It
// tells when it holds the first and then waits for cross.
func (s *store) applyBoth(ctx context.Context, keys [2]string, holds chan<- struct{}, cross <-chan struct{}) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	first, second := write(5, "a"), write(5, "a")
	first.Key, second.Key = keys[0], keys[1]
	_, err = s.guard.Apply(ctx, tx, first, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		holds <- struct{}{}
		<-cross
		if err := s.append(ctx, tx, first); err != nil {
			return nil, err
		}
		_, err := s.guard.Apply(ctx, tx, second, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
			return nil, s.append(ctx, tx, second)
		})
		return nil, err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// TestChangedSinceReadIsRetryable: MariaDB refuses locking reads after an old snapshot
// with 1020, if so configured (and by default from 11.6).
func TestChangedSinceReadIsRetryable(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		if db.Engine != dbtest.MariaDB {
			t.Skip("only MariaDB has innodb_snapshot_isolation")
		}
		s := openStore(t, db, setting{isolation: sql.LevelRepeatableRead}, resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "SET SESSION innodb_snapshot_isolation = ON"); err != nil {
			t.Skipf("server without innodb_snapshot_isolation: %v", err)
		}
		tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		readsOld(t, tx)
		mustApply(t, s, write(9, "b"))
		_, err = s.guard.Apply(t.Context(), tx, write(10, "c"), nothing)
		wantRetryable(t, err)
		tx.Rollback()
		mustHold(t, s, 9, guardtest.Entry{Token: 5, Operation: "a"}, guardtest.Entry{Token: 9, Operation: "b"})
		mustApply(t, s, write(10, "c"))
	})
}

// TestDeferredTransactionOfSQLiteIsRetryable: one that read first cannot write after
// another has (517), one that waits in vain neither (5).
func TestDeferredTransactionOfSQLiteIsRetryable(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	openLog(t, db)
	s := openStore(t, db, setting{flags: map[string]string{"_txlock": "deferred"}}, resourceguard.Config{})
	mustApply(t, s, write(5, "a"))
	old, err := s.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback()
	readsOld(t, old)
	mustApply(t, s, write(9, "b"))
	_, err = s.guard.Apply(t.Context(), old, write(10, "c"), nothing)
	wantRetryable(t, err)
	old.Rollback()

	holder, err := s.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback()
	if _, err := s.guard.Apply(t.Context(), holder, write(10, "c"), nothing); err != nil {
		t.Fatal(err)
	}
	waiter, err := s.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Rollback()
	mustExec(t, waiter, "PRAGMA busy_timeout = 1")
	_, err = s.guard.Apply(t.Context(), waiter, write(11, "d"), nothing)
	wantRetryable(t, err)
	waiter.Rollback()
	holder.Rollback()
	mustHold(t, s, 9, guardtest.Entry{Token: 5, Operation: "a"}, guardtest.Entry{Token: 9, Operation: "b"})
}

// TestKilledWriterLeavesNothing ends the connection of a writer between its business
// write and its commit (RG-005).
func TestKilledWriterLeavesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		err := inTx(t, s, func(tx *sql.Tx) error {
			_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				if err := s.append(ctx, tx, write(9, "b")); err != nil {
					return nil, err
				}
				return []byte("receipt"), s.kill(ctx, tx)
			})
			return err
		})
		if err == nil {
			t.Fatal("a write over a killed connection was committed")
		}
		mustApply(t, s, write(6, "b")) // waits for the engine to roll back, then 9 is forgotten
		mustHold(t, s, 6, guardtest.Entry{Token: 5, Operation: "a"}, guardtest.Entry{Token: 6, Operation: "b"})
	})
}

// kill ends the connection of a transaction from another one.
func (s *store) kill(ctx context.Context, tx resourceguard.Tx) error {
	which, end := "SELECT CONNECTION_ID()", "KILL CONNECTION ?"
	if s.engine == dbtest.Postgres {
		which, end = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend($1)"
	}
	var id int64
	if err := tx.QueryRowContext(ctx, which).Scan(&id); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, end, id)
	return err
}

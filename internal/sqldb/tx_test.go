package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

const createCounter = "CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)"

func TestTxRollsBackOnAnyError(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		ctx := context.Background()
		mustExec(t, db.Write(), createCounter)
		boom := errors.New("boom")
		err := db.Tx(ctx, func(tx *sqldb.Tx) error {
			mustExec(t, tx, "INSERT INTO counter (id, n) VALUES (1, 1)")
			return boom
		})
		if err != boom {
			t.Fatalf("Tx = %v, want the function's own error", err)
		}
		if n := count(t, db.Write()); n != 0 {
			t.Fatalf("%d rows after a rollback", n)
		}
	})
}

// Two transactions take two rows in opposite order, and neither goes on before both have
// their first: the engine ends one of them, the runner repeats the whole function, and no
// update is lost. On SQLite they come one after the other.
func TestTxRunsAgainAfterADeadlock(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		mustExec(t, db.Write(), createCounter)
		mustExec(t, db.Write(), "INSERT INTO counter (id, n) VALUES (1, 0), (2, 0)")
		var runs atomic.Int64
		var transactions, met sync.WaitGroup
		met.Add(2)
		for _, ids := range [][]int{{1, 2}, {2, 1}} {
			transactions.Go(func() {
				first := true
				err := db.Tx(t.Context(), func(tx *sqldb.Tx) error {
					runs.Add(1)
					for _, id := range ids {
						if _, err := tx.ExecContext(t.Context(), "UPDATE counter SET n = n + 1 WHERE id = ?", id); err != nil {
							return err
						}
						if first && db.Engine != dbtest.SQLite {
							first = false
							met.Done()
							met.Wait()
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("Tx = %v", err)
				}
			})
		}
		transactions.Wait()
		var sum int
		if err := db.Write().QueryRowContext(t.Context(), "SELECT SUM(n) FROM counter").Scan(&sum); err != nil || sum != 4 {
			t.Fatalf("sum %d, %v, want 4", sum, err)
		}
		if n := runs.Load(); db.Engine != dbtest.SQLite && n < 3 {
			t.Fatalf("the functions ran %d times: the deadlock never happened", n)
		}
	})
}

// A function that took the wrong locks is rolled back and run anew, as often as after a
// deadlock.
func TestTxRunsAgainWhenItsFunctionAsksForIt(t *testing.T) { // REF-QUOTA-002
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		ctx := context.Background()
		mustExec(t, db.Write(), createCounter)
		unresolved := func(context.Context, sqldb.Querier) (bool, error) {
			t.Error("a commit was looked up that was never sent")
			return false, nil
		}
		runs := 0
		err := db.TxResolve(ctx, func(tx *sqldb.Tx) error {
			if tx.Again() != runs {
				t.Errorf("Again = %d after %d runs that asked", tx.Again(), runs)
			}
			runs++
			mustExec(t, tx, "INSERT INTO counter (id, n) VALUES (?, 1)", runs)
			if runs < 4 {
				return fmt.Errorf("other rows: %w", sqldb.ErrAgain)
			}
			return nil
		}, unresolved)
		if err != nil || runs != 4 || count(t, db.Write()) != 1 {
			t.Errorf("Tx = %v after %d runs and left %d rows, want 4 runs and 1 row", err, runs, count(t, db.Write()))
		}
		runs = 0
		err = db.Tx(ctx, func(*sqldb.Tx) error { runs++; return sqldb.ErrAgain })
		if !errors.Is(err, sqldb.ErrAgain) || runs != 8 {
			t.Errorf("Tx that always asks = %v after %d runs, want ErrAgain after 8", err, runs)
		}
		ended, cancel := context.WithCancel(ctx)
		err = db.Tx(ended, func(*sqldb.Tx) error { cancel(); return sqldb.ErrAgain })
		if !errors.Is(err, sqldb.ErrAgain) {
			t.Errorf("Tx whose context ends = %v, want ErrAgain", err)
		}
	})
}

func TestClockIsTheDatabasesAndInMicroseconds(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		ctx := context.Background()
		var first, second int64
		err := db.Tx(ctx, func(tx *sqldb.Tx) (err error) {
			if first, err = tx.Now(ctx); err != nil {
				return err
			}
			second, err = tx.Now(ctx)
			return err
		})
		if err != nil || first != second {
			t.Fatalf("clock of one transaction: %d, %d, %v", first, second, err)
		}
		year := sqldb.Time(first).Year()
		if year < 2020 || year > 2200 {
			t.Fatalf("clock says year %d", year)
		}
	})
}

func TestOwnTransactionsRunAtReadCommitted(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		if db.Engine == "sqlite" {
			t.Skip("SQLite has one writer; isolation levels do not apply")
		}
		ctx := context.Background()
		mustExec(t, db.Write(), createCounter)
		err := db.Tx(ctx, func(tx *sqldb.Tx) error {
			if n := count(t, tx); n != 0 {
				t.Errorf("%d rows at first", n)
			}
			mustExec(t, db.Write(), "INSERT INTO counter (id, n) VALUES (1, 1)") // another connection
			if n := count(t, tx); n != 1 {
				t.Errorf("%d rows after another's commit, want 1: the snapshot is not per statement", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// The answer to COMMIT is swallowed and the connection cut: the transaction is in
// force, yet the client cannot know (ERR-017).
func TestLostCommitAnswerIsUnknownAndResolvedByIdentity(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		ctx := context.Background()
		mustExec(t, db.Write(), createCounter)
		faults := dbfault.Open(t, db)
		through := faults.DB
		lose := func() {
			faults.OnCommit(func(n int) dbfault.Verdict {
				if n == 1 {
					return dbfault.LoseAnswer
				}
				return dbfault.Pass
			})
		}
		insert := func(id int) func(*sqldb.Tx) error {
			return func(tx *sqldb.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO counter (id, n) VALUES (?, 0)", id)
				return err
			}
		}
		lose()
		if err := through.Tx(ctx, insert(1)); !errors.Is(err, sqldb.ErrUnknownCommit) {
			t.Fatalf("Tx = %v, want ErrUnknownCommit", err)
		}
		if faults.Commits() != 1 {
			t.Fatal("the fault did not fire")
		}
		lose()
		looked := 0
		err := through.TxResolve(ctx, insert(2), func(ctx context.Context, q sqldb.Querier) (bool, error) {
			looked++
			var n int
			err := q.QueryRowContext(ctx, "SELECT COUNT(*) FROM counter WHERE id = 2").Scan(&n)
			return n == 1, err
		})
		if err != nil || looked != 1 {
			t.Fatalf("TxResolve = %v after %d look-ups, want nil after 1", err, looked)
		}
		if n := count(t, db.Write()); n != 2 {
			t.Fatalf("%d rows, want 2", n)
		}
	})
}

func count(t *testing.T, q sqldb.Querier) (n int) {
	t.Helper()
	if err := q.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM counter").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var _ sqldb.Querier = (*sql.Tx)(nil)

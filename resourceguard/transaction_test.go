package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

func write(token uint64, operation string) resourceguard.Write {
	return resourceguard.Write{
		Namespace: "namespace", Key: "object/42", Token: token, Attempt: fmt.Sprintf("attempt-%d", token),
		Operation: operation, Content: []byte("content"),
	}
}

func nothing(context.Context, resourceguard.Tx) ([]byte, error) { return nil, nil }

func inTx(t testing.TB, s *store, f func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := s.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// mustApply commits a write.
func mustApply(t testing.TB, s *store, w resourceguard.Write) {
	t.Helper()
	if res, err := s.Apply(t.Context(), w, []byte("receipt"), guardtest.Commit); err != nil || res.Verdict != resourceguard.Applied {
		t.Fatalf("Apply of %q under %d = %v, %v, want Applied", w.Operation, w.Token, res.Verdict, err)
	}
}

// mustHold wants highest as the maximum of the usual key and log as what was written.
func mustHold(t testing.TB, s *store, highest uint64, log ...guardtest.Entry) {
	t.Helper()
	got, err := s.Log(t.Context(), "namespace", "object/42")
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(log) {
		t.Errorf("log holds %v, want %v", got, log)
	}
	var seen uint64
	err = s.db.QueryRowContext(t.Context(), s.dialect().Bind("SELECT highest FROM orbit_guard_key WHERE resource_key = ?"), []byte("object/42")).
		Scan(s.dialect().ScanUint64(&seen))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	if seen != highest {
		t.Errorf("highest token is %d, want %d", seen, highest)
	}
	var operations int
	if err := s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orbit_guard_operation").Scan(&operations); err != nil || operations != len(log) {
		t.Errorf("%d operations are recorded (%v), want %d", operations, err, len(log))
	}
}

type sqlxDB struct{ *sql.DB }

type bunDB struct{ *sql.DB }

func (bunDB) BeginTx(context.Context, *sql.TxOptions) (ormTx, error) {
	return ormTx{}, errors.New("not called")
}

type ormTx struct{ *sql.Tx } // its BeginTx begins a savepoint

func (ormTx) BeginTx(context.Context, *sql.TxOptions) (ormTx, error) {
	return ormTx{}, errors.New("not called")
}

// TestPoolIsNoTransaction: on a pool every statement would commit by itself (RG-003).
func TestPoolIsNoTransaction(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, tx := range []resourceguard.Tx{s.db, conn, sqlxDB{s.db}, bunDB{s.db}, nil, (*sql.Tx)(nil), resourceguard.InTransaction(nil)} {
			if _, err := s.guard.Apply(t.Context(), tx, write(5, "a"), nothing); !errors.Is(err, resourceguard.ErrNoTransaction) {
				t.Errorf("Apply through %T = %v, want ErrNoTransaction", tx, err)
			}
			fence := resourceguard.Fence{Namespace: "namespace", Key: "object/42", Token: 5}
			if err := s.guard.Raise(t.Context(), tx, fence); !errors.Is(err, resourceguard.ErrNoTransaction) {
				t.Errorf("Raise through %T = %v, want ErrNoTransaction", tx, err)
			}
		}
		mustHold(t, s, 0)
	})
}

// RG-005
func TestTransactionOfAnORMIsTaken(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		err := inTx(t, s, func(tx *sql.Tx) error {
			_, err := s.guard.Apply(t.Context(), ormTx{tx}, write(5, "a"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return nil, s.append(ctx, tx, write(5, "a"))
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
	})
}

func TestTransactionByHandIsTakenWithInTransaction(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for i, end := range []string{"ROLLBACK", "COMMIT"} {
			w := write(uint64(9-i), "a") // the second is lower: the first was rolled back
			if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
				t.Fatal(err)
			}
			res, err := s.guard.Apply(t.Context(), resourceguard.InTransaction(conn), w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return nil, s.append(ctx, tx, w)
			})
			if err != nil || res.Verdict != resourceguard.Applied {
				t.Fatalf("Apply by hand = %v, %v, want Applied", res.Verdict, err)
			}
			if _, err := conn.ExecContext(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		mustHold(t, s, 8, guardtest.Entry{Token: 8, Operation: "a"})
	})
}

var errBusiness = errors.New("out of stock")

// TestHalfAnOperationCannotBeCommitted: an owner who overlooks the error would leave
// an operation on record that was never done.
func TestHalfAnOperationCannotBeCommitted(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		refuse := resourceguard.Config{Check: func(_ context.Context, _ resourceguard.Tx, w resourceguard.Write) error {
			if w.Operation == "checked" {
				return errBusiness
			}
			return nil
		}}
		s := openStore(t, db, settings(db.Engine)[0], refuse)
		mustApply(t, s, write(5, "a"))
		for name, apply := range map[string]func(tx *sql.Tx) error{
			"fn fails": func(tx *sql.Tx) error {
				_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
					return nil, errors.Join(errBusiness, s.append(ctx, tx, write(9, "b")))
				})
				return err
			},
			"fn panics": func(tx *sql.Tx) (err error) {
				defer func() { err, _ = recover().(error) }()
				s.guard.Apply(t.Context(), tx, write(9, "b"), func(context.Context, resourceguard.Tx) ([]byte, error) { panic(errBusiness) })
				return nil
			},
			"check fails": func(tx *sql.Tx) error {
				_, err := s.guard.Apply(t.Context(), tx, write(9, "checked"), nothing)
				return err
			},
			"inner guard refuses": func(tx *sql.Tx) error {
				_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
					_, err := s.guard.Apply(ctx, tx, write(8, "inner"), nothing)
					if !errors.Is(err, resourceguard.ErrStale) {
						t.Errorf("inner Apply = %v, want ErrStale", err)
					}
					return nil, errors.Join(errBusiness, err)
				})
				return err
			},
			"receipt too long": func(tx *sql.Tx) error {
				_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(context.Context, resourceguard.Tx) ([]byte, error) {
					return make([]byte, resourceguard.MaxReceipt+1), nil
				})
				if !errors.Is(err, resourceguard.ErrInvalid) {
					return err
				}
				return errBusiness
			},
		} {
			tx, err := s.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(tx); !errors.Is(err, errBusiness) {
				t.Errorf("%s: got %v, want its own error", name, err)
			}
			if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s: Commit = %v, want ErrTxDone", name, err)
			}
			mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
		}
	})
}

// TestRefusalsLeaveTheTransactionUsable: a verdict is an answer, the owner may write
// on (RG-005, RG-010).
func TestRefusalsLeaveTheTransactionUsable(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		other := write(9, "a")
		other.Content = []byte("other")
		foreign := write(5, "b")
		foreign.Attempt = "another"
		err := inTx(t, s, func(tx *sql.Tx) error {
			for _, refused := range []struct {
				w    resourceguard.Write
				want error
			}{{write(4, "b"), resourceguard.ErrStale}, {foreign, resourceguard.ErrTokenCollision}, {other, resourceguard.ErrOperationConflict}} {
				if _, err := s.guard.Apply(t.Context(), tx, refused.w, nothing); !errors.Is(err, refused.want) {
					t.Errorf("Apply = %v, want %v", err, refused.want)
				}
			}
			_, err := s.guard.Apply(t.Context(), tx, write(6, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return nil, s.append(ctx, tx, write(6, "b"))
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, 6, guardtest.Entry{Token: 5, Operation: "a"}, guardtest.Entry{Token: 6, Operation: "b"})
	})
}

// TestASwallowedErrorCannotBeCommitted: PostgreSQL ends a transaction at the first error
// of a statement, even if fn keeps it to itself, and then takes a COMMIT for a ROLLBACK.
func TestASwallowedErrorCannotBeCommitted(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres, migrations.Guard)
	openLog(t, db)
	s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
	mustApply(t, s, write(5, "a"))
	for _, receipt := range []string{"", "receipt"} {
		err := inTx(t, s, func(tx *sql.Tx) error {
			_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				_, _ = tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
				return []byte(receipt), nil
			})
			return err
		})
		if err == nil {
			t.Errorf("a write with the receipt %q whose statement failed was committed", receipt)
		}
		mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
	}
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	res, err := s.guard.Apply(t.Context(), resourceguard.InTransaction(conn), write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		_, _ = tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
		return nil, nil
	})
	if err == nil {
		t.Errorf("Apply by hand = %v, though COMMIT would be a rollback", res.Verdict)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}

// TestApplyKeepsToItsCost counts the statements (cost law 5).
func TestApplyKeepsToItsCost(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		keeps := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{KeepRaise: true})
		receipt := func(context.Context, resourceguard.Tx) ([]byte, error) { return []byte("receipt"), nil }
		for _, c := range []struct {
			name                string
			guard               *resourceguard.Guard
			w                   resourceguard.Write
			fn                  resourceguard.WriteFunc
			key, operation, all int
		}{
			{"first contact", s.guard, write(5, "a"), nothing, 3, 1, 4},
			{"equal token", s.guard, write(5, "b"), nothing, 2, 1, 3},
			{"higher token", s.guard, write(6, "c"), nothing, 3, 1, 4},
			{"repeat", s.guard, write(6, "c"), nothing, 2, 2, 4},
			{"stale", s.guard, write(5, "d"), nothing, 2, 1, 3},
			{"with a receipt", s.guard, write(7, "e"), receipt, 3, 2, 5},
			{"with a savepoint", keeps.guard, write(8, "f"), nothing, 3, 1, 5},
		} {
			err := inTx(t, s, func(tx *sql.Tx) error {
				counted := &counter{Tx: tx}
				_, err := c.guard.Apply(t.Context(), counted, c.w, c.fn)
				got := [3]int{counted.of("orbit_guard_key"), counted.of("orbit_guard_operation"), len(counted.statements)}
				if want := [3]int{c.key, c.operation, c.all}; got != want {
					t.Errorf("%s: statements on the key row, on operations and in all are %v, want %v", c.name, got, want)
				}
				if errors.Is(err, resourceguard.ErrStale) {
					return nil
				}
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
	})
}

// A counter notes the statements of a transaction.
type counter struct {
	*sql.Tx
	statements []string
}

func (c *counter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.statements = append(c.statements, query)
	return c.Tx.ExecContext(ctx, query, args...)
}

func (c *counter) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.statements = append(c.statements, query)
	return c.Tx.QueryRowContext(ctx, query, args...)
}

func (c *counter) of(table string) (n int) {
	for _, s := range c.statements {
		if strings.Contains(s, table) {
			n++
		}
	}
	return n
}

var errInjected = errors.New("injected failure")

// A faulty transaction fails its Nth statement before or after it has run.
type faulty struct {
	*sql.Tx
	left  int
	after bool
	fired bool
}

func (f *faulty) fails() bool {
	f.left--
	f.fired = f.fired || f.left == 0
	return f.left == 0
}

func (f *faulty) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	fails := f.fails()
	if fails && !f.after {
		return nil, errInjected
	}
	res, err := f.Tx.ExecContext(ctx, query, args...)
	if fails {
		return nil, errInjected
	}
	return res, err
}

func (f *faulty) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if !f.fails() {
		return f.Tx.QueryRowContext(ctx, query, args...)
	}
	if f.after {
		_ = f.Tx.QueryRowContext(ctx, query, args...).Scan() // ends the statement
	}
	cut, cancel := context.WithCancelCause(ctx)
	cancel(errInjected)
	return f.Tx.QueryRowContext(cut, query, args...)
}

// TestEveryFailedStatementLeavesAllOrNothing fails each statement in turn, before and
// after its effect, under an owner who commits in spite of the error.
func TestEveryFailedStatementLeavesAllOrNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		for _, cfg := range []resourceguard.Config{{}, {KeepRaise: true}} {
			s := openStore(t, db, settings(db.Engine)[0], cfg)
			failures := 0
			for n := 1; ; n++ {
				fired := false
				for _, after := range []bool{false, true} {
					if _, err := s.emptied(t.Context()); err != nil {
						t.Fatal(err)
					}
					mustApply(t, s, write(5, "a"))
					fired = s.applyFaulty(t, n, after) || fired
					mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
					mustApply(t, s, write(6, "b")) // 9 was not raised, and b can be done
				}
				if !fired {
					break
				}
				failures++
			}
			if want := map[bool]int{false: 6, true: 7}[cfg.KeepRaise]; failures != want {
				t.Errorf("%d statements failed with %+v, want %d", failures, cfg, want)
			}
		}
	})
}

// applyFaulty applies write 9 with its Nth statement failing, and commits whatever
// there is. It rolls back if no statement failed.
func (s *store) applyFaulty(t *testing.T, n int, after bool) (fired bool) {
	t.Helper()
	tx, err := s.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	f := &faulty{Tx: tx, left: n, after: after}
	w := write(9, "b")
	_, err = s.guard.Apply(t.Context(), f, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		return []byte("receipt"), s.append(ctx, tx, w)
	})
	if !f.fired {
		if err != nil {
			t.Fatalf("Apply without a failure: %v", err)
		}
		return false
	}
	if err == nil {
		t.Errorf("Apply succeeded although statement %d failed (after its effect: %t)", n, after)
	}
	if errors.Is(err, resourceguard.ErrRefused) {
		return true // the business write was refused: keeping its raise is tested elsewhere
	}
	_ = tx.Commit()
	return true
}

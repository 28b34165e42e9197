package resourceguard_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

func TestGuardNeedsDialectAndAuthorisation(t *testing.T) {
	var invalid *resourceguard.InvalidError
	if _, err := resourceguard.New(nil, guardtest.Authorise, resourceguard.Config{}); !errors.As(err, &invalid) || invalid.Field != "dialect" {
		t.Errorf("New without dialect = %v, want an InvalidError of dialect", err)
	}
	if _, err := resourceguard.New(resourceguard.SQLite, nil, resourceguard.Config{}); !errors.As(err, &invalid) || invalid.Field != "authorise" {
		t.Errorf("New without authorisation = %v, want an InvalidError of authorise", err)
	}
	if _, err := resourceguard.NewMemory(nil); !errors.As(err, &invalid) || invalid.Field != "authorise" {
		t.Errorf("NewMemory without authorisation = %v, want an InvalidError of authorise", err)
	}
}

// TestInvalidInputNamesFieldAndRule gives no database at all: nothing may be asked (RG-009,
// RG-010).
func TestInvalidInputNamesFieldAndRule(t *testing.T) {
	denyAll := func(context.Context, string, string) error { return errors.New("denied") }
	guard, err := resourceguard.New(resourceguard.MySQL, denyAll, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := resourceguard.NewMemory(denyAll)
	if err != nil {
		t.Fatal(err)
	}
	tooLong := strings.Repeat("键", resourceguard.MaxName+1)
	for _, c := range []struct {
		change      func(*resourceguard.Write)
		field, rule string
	}{
		{func(w *resourceguard.Write) { w.Namespace = "" }, "namespace", "must not be empty"},
		{func(w *resourceguard.Write) { w.Namespace = tooLong }, "namespace", "must be at most 191 Unicode characters long"},
		{func(w *resourceguard.Write) { w.Key = "" }, "key", "must not be empty"},
		{func(w *resourceguard.Write) { w.Key = "a\xff" }, "key", "must be valid UTF-8"},
		{func(w *resourceguard.Write) { w.Key = "a\nb" }, "key", "must not contain control characters"},
		{func(w *resourceguard.Write) { w.Key = tooLong }, "key", "must be at most 191 Unicode characters long"},
		{func(w *resourceguard.Write) { w.Token = 0 }, "token", "must not be 0"},
		{func(w *resourceguard.Write) { w.Attempt = "" }, "attempt", "must not be empty"},
		{func(w *resourceguard.Write) { w.Attempt = tooLong }, "attempt", "must be at most 191 Unicode characters long"},
		{func(w *resourceguard.Write) { w.Operation = "" }, "operation", "must not be empty"},
		{func(w *resourceguard.Write) { w.Operation = "a\x00" }, "operation", "must not contain control characters"},
		{func(w *resourceguard.Write) { w.Content = nil }, "content", "must not be empty"},
	} {
		w := write(5, "a")
		c.change(&w)
		want := resourceguard.InvalidError{Field: c.field, Rule: c.rule}
		_, byGuard := guard.Apply(t.Context(), nil, w, nothing)
		_, byMemory := memory.Apply(t.Context(), w, func(context.Context) ([]byte, error) { return nil, nil })
		for _, err := range []error{byGuard, byMemory} {
			var invalid *resourceguard.InvalidError
			if !errors.As(err, &invalid) || *invalid != want || !errors.Is(err, resourceguard.ErrInvalid) {
				t.Errorf("Apply = %v, want %+v", err, want)
			}
		}
	}
	if _, err := guard.Apply(t.Context(), nil, write(5, "a"), nil); !errors.Is(err, resourceguard.ErrInvalid) {
		t.Errorf("Apply without fn = %v, want ErrInvalid", err)
	}
	if _, _, err := guard.Lookup(t.Context(), nil, "namespace", "key", "a"); !errors.Is(err, resourceguard.ErrInvalid) {
		t.Errorf("Lookup without a database = %v, want ErrInvalid", err)
	}
}

// TestTokenIsNoPermission: the owner's function decides, before any I/O (ID-005, RG-010).
func TestTokenIsNoPermission(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		errDenied := errors.New("not your resource")
		type caller struct{}
		guard, err := resourceguard.New(db.Dialect(), func(ctx context.Context, namespace, key string) error {
			if ctx.Value(caller{}) != "owner" || namespace != "namespace" || key != "object/42" {
				return errDenied
			}
			return nil
		}, resourceguard.Config{})
		if err != nil {
			t.Fatal(err)
		}
		stranger, owner := context.WithValue(t.Context(), caller{}, "stranger"), context.WithValue(t.Context(), caller{}, "owner")
		err = inTx(t, s, func(tx *sql.Tx) error {
			counted := &counter{Tx: tx}
			_, applied := guard.Apply(stranger, counted, write(5, "a"), nothing)
			raised := guard.Raise(stranger, counted, resourceguard.Fence{Namespace: "namespace", Key: "object/42", Token: 5})
			_, _, found := guard.Lookup(stranger, counted, "namespace", "object/42", "a")
			for _, err := range []error{applied, raised, found} {
				if !errors.Is(err, resourceguard.ErrNotAuthorised) || !errors.Is(err, errDenied) {
					t.Errorf("a stranger got %v, want ErrNotAuthorised and its cause", err)
				}
			}
			if len(counted.statements) > 0 {
				t.Errorf("statements ran for a stranger: %q", counted.statements)
			}
			_, err := guard.Apply(owner, tx, write(5, "a"), nothing)
			return err
		})
		if err != nil {
			t.Errorf("the owner's write: %v", err)
		}
	})
}

// TestCheckBelongsToTheAtomicStep: it sees the business row under the lock, and does
// not stand in the way of repeats (RG-013).
func TestCheckBelongsToTheAtomicStep(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		errFrozen := errors.New("resource is frozen")
		for _, keep := range []bool{false, true} {
			calls := 0
			s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{
				KeepRaise: keep,
				Check: func(ctx context.Context, tx resourceguard.Tx, w resourceguard.Write) error {
					calls++
					var entries int
					err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM log").Scan(&entries)
					if err == nil && entries >= 1 {
						err = errFrozen
					}
					return err
				},
			})
			if _, err := s.emptied(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustApply(t, s, write(5, "a"))
			if _, err := s.Apply(t.Context(), write(9, "b"), nil, guardtest.Commit); !errors.Is(err, errFrozen) || errors.Is(err, resourceguard.ErrRefused) {
				t.Errorf("Apply against the check = %v, want its error alone", err)
			}
			mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "a"})
			if res, err := s.Apply(t.Context(), write(6, "a"), nil, guardtest.Commit); err != nil || res.Verdict != resourceguard.Replayed {
				t.Errorf("repeat = %v, %v, want Replayed", res.Verdict, err)
			}
			if calls != 2 {
				t.Errorf("check ran %d times, want 2: not for the repeat", calls)
			}
		}
	})
}

// TestKeptRaiseUndoesOnlyItsOwnWrite applies one write within another.
func TestKeptRaiseUndoesOnlyItsOwnWrite(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{KeepRaise: true})
		inner := write(7, "inner")
		inner.Key = "object/43"
		appends := func(w resourceguard.Write, err error) resourceguard.WriteFunc {
			return func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return nil, errors.Join(s.append(ctx, tx, w), err)
			}
		}
		err := inTx(t, s, func(tx *sql.Tx) error {
			_, err := s.guard.Apply(t.Context(), tx, write(5, "outer"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				_, err := s.guard.Apply(ctx, tx, inner, appends(inner, errBusiness))
				if !errors.Is(err, resourceguard.ErrRefused) || !errors.Is(err, errBusiness) {
					t.Errorf("inner Apply = %v, want ErrRefused", err)
				}
				return appends(write(5, "outer"), nil)(ctx, tx)
			})
			return err
		})
		if err != nil {
			t.Fatalf("outer Apply around a refused one: %v", err)
		}
		mustHold(t, s, 5, guardtest.Entry{Token: 5, Operation: "outer"})

		err = inTx(t, s, func(tx *sql.Tx) error {
			_, err := s.guard.Apply(t.Context(), tx, write(9, "second"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				if _, err := s.guard.Apply(ctx, tx, inner, appends(inner, nil)); err != nil {
					t.Errorf("inner Apply = %v", err)
				}
				return nil, errBusiness
			})
			if !errors.Is(err, resourceguard.ErrRefused) {
				t.Errorf("outer Apply = %v, want ErrRefused", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, 9, guardtest.Entry{Token: 5, Operation: "outer"})
		if log, err := s.Log(t.Context(), "namespace", "object/43"); err != nil || len(log) > 0 {
			t.Errorf("inner log = %v, %v, want it undone with the outer write", log, err)
		}
	})
}

// TestARefusalByTheDatabaseKeepsTheRaise: a violated constraint is the word of the business,
// also where it has ended the transaction but for the savepoint (PostgreSQL).
func TestARefusalByTheDatabaseKeepsTheRaise(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{KeepRaise: true})
		mustApply(t, s, write(5, "a"))
		err := inTx(t, s, func(tx *sql.Tx) error {
			_, err := s.guard.Apply(t.Context(), tx, write(9, "b"), func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				if err := s.append(ctx, tx, write(9, "b")); err != nil {
					return nil, err
				}
				_, err := tx.ExecContext(ctx, "INSERT INTO log (namespace) VALUES (NULL)")
				return nil, err
			})
			if !errors.Is(err, resourceguard.ErrRefused) || errors.Is(err, resourceguard.ErrRetryable) {
				t.Errorf("Apply = %v, want ErrRefused", err)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("commit of the raise: %v", err)
		}
		mustHold(t, s, 9, guardtest.Entry{Token: 5, Operation: "a"})
	})
}

func TestRecordTellsWhatWasApplied(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		r, there, err := s.Lookup(t.Context(), "namespace", "object/42", "a")
		if err != nil || !there {
			t.Fatalf("Lookup = %t, %v, want the record", there, err)
		}
		now, err := db.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if age := time.UnixMicro(now).Sub(r.AppliedAt); age < 0 || age > time.Minute || r.AppliedAt.Location() != time.UTC {
			t.Errorf("applied at %v, %v ago by the database's clock", r.AppliedAt, age)
		}
		if r.Digest != sha256.Sum256([]byte("content")) || r.Token != 5 || r.Attempt != "attempt-5" || string(r.Receipt) != "receipt" {
			t.Errorf("record = %+v", r)
		}
	})
}

// TestTablesHoldBytes looks at what the engine made of the schema (RG-008, RG-009, TOK-015,
// MIG-015 to MIG-017).
func TestTablesHoldBytes(t *testing.T) {
	onServers(t, func(t *testing.T, db *dbtest.DB) {
		types, query, schema := mysqlTypes, mysqlColumns, "DATABASE()"
		if db.Engine == dbtest.Postgres {
			types, query, schema = postgresTypes, postgresColumns, "current_schema()"
		}
		rows, err := db.Read().QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns := 0
		for rows.Next() {
			var table, column, kind, comment string
			if err := rows.Scan(&table, &column, &kind, &comment); err != nil {
				t.Fatal(err)
			}
			if column != "" {
				columns++
				if kind = strings.Replace(kind, "(20)", "", 1); kind != types[column] { // MariaDB tells the digits
					t.Errorf("%s.%s is %s, want %s", table, column, kind, types[column])
				}
			}
			if !strings.ContainsFunc(comment, func(r rune) bool { return r >= '一' && r <= '鿿' }) {
				t.Errorf("%s.%s has the comment %q, want a Chinese one", table, column, comment)
			}
		}
		if err := rows.Err(); err != nil || columns != 13 {
			t.Errorf("%d columns (%v), want 13", columns, err)
		}
		var foreign int
		err = db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.referential_constraints WHERE constraint_schema = "+schema).Scan(&foreign)
		if err != nil || foreign != 0 {
			t.Errorf("%d foreign keys (%v), want 0", foreign, err)
		}
	})
}

var (
	mysqlTypes = map[string]string{
		"namespace": "varbinary(764)", "resource_key": "varbinary(764)", "operation": "varbinary(764)", "attempt": "varbinary(764)",
		"highest": "bigint unsigned", "token": "bigint unsigned", "digest": "binary(32)", "receipt": "mediumblob",
		"raised_at": "bigint", "applied_at": "bigint",
	}
	postgresTypes = map[string]string{
		"namespace": "bytea", "resource_key": "bytea", "operation": "bytea", "attempt": "bytea",
		"highest": "bytea", "token": "bytea", "digest": "bytea", "receipt": "bytea", "raised_at": "bigint", "applied_at": "bigint",
	}
)

// Tables, and their columns, with types and comments; a table's own comment stands at an
// empty column.
const (
	mysqlColumns = `
		SELECT table_name, column_name, column_type, column_comment FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name LIKE 'orbit\_guard\_%'
		UNION ALL
		SELECT table_name, '', '', table_comment FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name LIKE 'orbit\_guard\_%'`
	postgresColumns = `
		SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), COALESCE(col_description(c.oid, a.attnum), '')
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		WHERE c.relnamespace = to_regnamespace(current_schema()::TEXT) AND c.relkind = 'r' AND c.relname LIKE 'orbit\_guard\_%'
		UNION ALL
		SELECT relname, '', '', COALESCE(obj_description(oid), '') FROM pg_class
		WHERE relnamespace = to_regnamespace(current_schema()::TEXT) AND relkind = 'r' AND relname LIKE 'orbit\_guard\_%'`
)

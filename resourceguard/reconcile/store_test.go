package reconcile_test

import (
	"context"
	"errors"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/reconcile"
)

// A look-up sees what was committed before it and nothing else, also on a connection that
// keeps a snapshot open, since its session commits nothing by itself, and on one that reads
// what others have not committed.
func TestALookUpSeesWhatIsCommittedWhateverTheSession(t *testing.T) { // RG-011, TOK-017
	for _, engine := range dbtest.GuardEngines() {
		t.Run(engine, func(t *testing.T) {
			mysql := engine == dbtest.MySQL || engine == dbtest.MariaDB
			db := dbtest.Open(t, engine, migrations.Guard)
			guard := newGuard(t, db)
			pool := db.Reopen(t).Write()
			pool.SetMaxOpenConns(1) // each look-up is on the session that is set up here
			store := reconcile.NewStore(guard, pool)
			found := func(want bool, when string) {
				t.Helper()
				if _, got, err := store.Lookup(t.Context(), "namespace", "key", "operation"); err != nil || got != want {
					t.Errorf("%s: found = %t, %v; want %t", when, got, err, want)
				}
			}
			if mysql {
				for _, set := range []string{"SET autocommit = 0", "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"} {
					if _, err := pool.ExecContext(t.Context(), set); err != nil {
						t.Fatal(err)
					}
				}
			}
			found(false, "before the write")
			tx, err := db.Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			_, err = guard.Apply(t.Context(), tx, resourceguard.Write{
				Namespace: "namespace", Key: "key", Token: 7, Attempt: "attempt", Operation: "operation", Content: []byte("content"),
			}, func(context.Context, resourceguard.Tx) ([]byte, error) { return nil, nil })
			if err != nil {
				t.Fatal(err)
			}
			if mysql {
				found(false, "before the commit")
				for _, set := range []string{"ROLLBACK", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"} {
					if _, err := pool.ExecContext(t.Context(), set); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := guard.Lookup(t.Context(), pool, "namespace", "key", "operation"); err != nil { // opens a snapshot
					t.Fatal(err)
				}
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			found(true, "after the commit")
		})
	}
}

func TestAStoreWithoutGuardOrDatabaseIsInvalid(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	for field, store := range map[string]reconcile.Store{
		"guard": reconcile.NewStore(nil, db.Write()), "db": reconcile.NewStore(newGuard(t, db), nil),
	} {
		raiseErr := store.Raise(t.Context(), resourceguard.Fence{Namespace: "namespace", Key: "key", Token: 1})
		_, _, lookupErr := store.Lookup(t.Context(), "namespace", "key", "operation")
		for _, err := range []error{raiseErr, lookupErr} {
			var invalid *resourceguard.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("without %s: %v", field, err)
			}
		}
	}
}

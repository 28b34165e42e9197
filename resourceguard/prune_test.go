package resourceguard_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// age makes an operation of the usual key as old as told, by the database's clock.
func (s *store) age(t *testing.T, operation string, by time.Duration) {
	t.Helper()
	query := s.dialect().Bind("UPDATE orbit_guard_operation SET applied_at = applied_at - ? WHERE operation = ?")
	if _, err := s.db.ExecContext(t.Context(), query, by.Microseconds(), []byte(operation)); err != nil {
		t.Fatal(err)
	}
}

// TestPruneLeavesTheWindowAndEveryKey: old records go in bounded steps, the oldest first;
// what the platform may still repeat stays, and so does every highest token.
func TestPruneLeavesTheWindowAndEveryKey(t *testing.T) {
	const window = resourceguard.PromisedWindow
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		for i, age := range []time.Duration{window + 3*time.Hour, window + 2*time.Hour, window + time.Hour, window - time.Minute, 0} {
			operation := fmt.Sprintf("operation-%d", i)
			mustApply(t, s, write(uint64(i+1), operation))
			s.age(t, operation, age)
		}
		for i, want := range []int{2, 1, 0} {
			if n, err := s.guard.Prune(t.Context(), s.db, window, 2); err != nil || n != want {
				t.Errorf("call %d of Prune = %d, %v, want %d records gone", i+1, n, err, want)
			}
			if _, there, err := s.Lookup(t.Context(), "namespace", "object/42", "operation-2"); err != nil || there != (i == 0) {
				t.Errorf("after call %d the youngest of the old records is there: %t, %v", i+1, there, err)
			}
		}
		for _, operation := range []string{"operation-3", "operation-4"} {
			if _, there, err := s.Lookup(t.Context(), "namespace", "object/42", operation); err != nil || !there {
				t.Errorf("%s of the window: recorded %t, %v", operation, there, err)
			}
		}
		if _, err := s.Apply(t.Context(), write(4, "late"), nil, guardtest.Commit); !errors.Is(err, resourceguard.ErrStale) {
			t.Errorf("a late write after Prune = %v, want ErrStale", err)
		}
		mustApply(t, s, write(6, "operation-0")) // its record is gone
	})
}

// TestPruneCommitsWhatItCounts: in a session without autocommit a pool's statement would
// be rolled back when its connection is used again.
func TestPruneCommitsWhatItCounts(t *testing.T) {
	dbtest.RunOn(t, []string{dbtest.MySQL, dbtest.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		openLog(t, db)
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		manual := openStore(t, db, setting{flags: map[string]string{"autocommit": "0"}}, resourceguard.Config{})
		mustApply(t, s, write(5, "a"))
		s.age(t, "a", resourceguard.PromisedWindow+time.Hour)
		if n, err := manual.guard.Prune(t.Context(), manual.db, resourceguard.PromisedWindow, 10); err != nil || n != 1 {
			t.Errorf("Prune = %d, %v, want 1", n, err)
		}
		if _, there, err := s.Lookup(t.Context(), "namespace", "object/42", "a"); err != nil || there {
			t.Errorf("the record that Prune has counted is there: %t, %v", there, err)
		}
	}, migrations.Guard)
}

// TestPruneKeepsThePromise gives no database that could be asked.
func TestPruneKeepsThePromise(t *testing.T) {
	guard, err := resourceguard.New(resourceguard.MySQL, guardtest.Authorise, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		db    resourceguard.Tx
		age   time.Duration
		limit int
		field string
	}{
		{nil, resourceguard.PromisedWindow, 1, "db"},
		{ormTx{}, resourceguard.PromisedWindow - 1, 1, "age"},
		{ormTx{}, resourceguard.PromisedWindow, 0, "limit"},
		{ormTx{}, resourceguard.PromisedWindow, resourceguard.MaxPrune + 1, "limit"},
	} {
		var invalid *resourceguard.InvalidError
		if _, err := guard.Prune(t.Context(), c.db, c.age, c.limit); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("Prune of age %v and limit %d = %v, want an InvalidError of %s", c.age, c.limit, err, c.field)
		}
	}
}

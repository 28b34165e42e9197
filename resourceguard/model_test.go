package resourceguard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

func raisedTo(t *testing.T, s *store, token uint64, attempt string) {
	t.Helper()
	if err := s.Raise(t.Context(), resourceguard.Fence{Namespace: "namespace", Key: "object/42", Token: token, Attempt: attempt}); err != nil {
		t.Fatalf("Raise to %d: %v", token, err)
	}
}

// RG-013, TOK-016: the trace of docs/model, on the real guard. A write of an attempt whose
// lease has ended is taken while its successor's token has not arrived, and refused from
// the successor's raise on.
func TestLateWriteIsTakenUntilAHigherTokenArrives(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		raisedTo(t, s, 1, "attempt-1") // then its lease ends, and attempt-3 is given token 3
		mustApply(t, s, write(1, "a"))
		raisedTo(t, s, 3, "attempt-3")
		if _, err := s.Apply(t.Context(), write(1, "b"), nil, guardtest.Commit); !errors.Is(err, resourceguard.ErrStale) {
			t.Errorf("late write after the successor's raise: %v, want ErrStale", err)
		}
		mustHold(t, s, 3, guardtest.Entry{Token: 1, Operation: "a"})
	})
}

// TOK-017: an operation that was looked up in vain proves nothing before a raise to the
// attempt's fence_token, and everything after it.
func TestAbsentIsAProofAfterARaise(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		mustBeAbsent := func(operation string) {
			t.Helper()
			if _, there, err := s.Lookup(t.Context(), "namespace", "object/42", operation); there || err != nil {
				t.Fatalf("Lookup of %q = %t, %v, want absent", operation, there, err)
			}
		}
		mustBeAbsent("a")
		mustApply(t, s, write(5, "a"))
		raisedTo(t, s, 6, "")
		mustBeAbsent("b")
		if _, err := s.Apply(t.Context(), write(5, "b"), nil, guardtest.Commit); !errors.Is(err, resourceguard.ErrStale) {
			t.Errorf("write that was declared absent: %v, want ErrStale", err)
		}
		mustApply(t, s, write(7, "b"))
	})
}

// The restore drill of docs/resource-guard.md: a resource that has forgotten its tokens takes
// old writes, unless it is raised to the server's before.
func TestRestoredResourceIsRaisedBeforeItTakesWrites(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		s := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{})
		old := func(ctx context.Context) error {
			_, err := s.Apply(ctx, write(1, "a"), nil, guardtest.Commit)
			return err
		}
		raisedTo(t, s, 3, "attempt-3")
		if err := old(t.Context()); !errors.Is(err, resourceguard.ErrStale) {
			t.Fatalf("old write before the restore: %v, want ErrStale", err)
		}
		for _, raised := range []bool{false, true} {
			if _, err := s.emptied(t.Context()); err != nil { // restored to before its first write
				t.Fatal(err)
			}
			if raised {
				raisedTo(t, s, 4, "") // the server's last token: attempt-3 has ended
			}
			if err := old(t.Context()); errors.Is(err, resourceguard.ErrStale) != raised {
				t.Errorf("old write after the restore, raised %t: %v", raised, err)
			}
		}
		mustApply(t, s, write(5, "a")) // the task's next attempt
	})
}

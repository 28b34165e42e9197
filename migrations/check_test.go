package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// MIG-008
func TestCheckRefusesVersionsOutsideTheRange(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		check := func(min, max int) error {
			return migrations.Check(t.Context(), db.DB, migrations.Server, min, max)
		}
		refused := func(err error, words ...string) {
			t.Helper()
			var version *migrations.VersionError
			if !errors.As(err, &version) {
				t.Fatalf("Check = %v, want a VersionError", err)
			}
			for _, w := range words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("Check = %q, want it to say %q", err, w)
				}
			}
		}
		refused(check(5, 9), "no schema", "needs version 5", "orbit-migrate up")
		migrate(t, db, 7)
		refused(check(8, 9), "version 7", "at least 8", "orbit-migrate up")
		refused(check(5, 6), "version 7", "knows (6)", "newer release")
		for _, r := range [][2]int{{7, 7}, {5, 7}, {7, 9}, {1, 13}} {
			if err := check(r[0], r[1]); err != nil {
				t.Errorf("Check(%d, %d) at version 7 = %v", r[0], r[1], err)
			}
		}
	})
}

// MIG-008: additive steps keep the previous release running.
func TestCheckAcceptsNewerStepsThatAreAllAdditive(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 7)
		check := func() error { return migrations.Check(t.Context(), db.DB, migrations.Server, 7, 7) }
		insertStep(t, db, 8, true, true)
		if err := check(); err != nil {
			t.Errorf("Check with an additive step above = %v", err)
		}
		insertStep(t, db, 9, true, false)
		if err := check(); err != nil {
			t.Errorf("Check while an additive step is applied = %v", err)
		}
		insertStep(t, db, 10, false, true)
		var version *migrations.VersionError
		if err := check(); !errors.As(err, &version) || version.Found != 10 {
			t.Errorf("Check with a breaking step above = %v, want a VersionError", err)
		}
	})
}

// The resource keys are the example of a step with which old nodes must not run.
// MIG-007, MIG-008.
func TestTheResourceKeyStepIsNotAdditive(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db, 11)
		var version *migrations.VersionError
		if err := migrations.Check(t.Context(), db.DB, migrations.Server, 10, 10); !errors.As(err, &version) {
			t.Errorf("Check of a release without resource keys = %v, want a VersionError", err)
		}
	})
}

func TestStatusTellsPendingFromApplied(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for version := range 3 {
			if version > 0 {
				migrate(t, db, version)
			}
			status, err := migrations.Status(t.Context(), db.DB, migrations.Server)
			if err != nil || len(status) != latest(t, db, migrations.Server) {
				t.Fatalf("Status = %d steps, %v", len(status), err)
			}
			for i, s := range status {
				want := migrations.Pending
				if i < version {
					want = migrations.Applied
				}
				if s.Number != i+1 || s.State != want || s.AppliedAt.IsZero() != (want == migrations.Pending) {
					t.Errorf("at version %d: step %d = %+v, want %s", version, i+1, s, want)
				}
			}
		}
	})
}

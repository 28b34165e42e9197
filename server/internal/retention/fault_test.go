package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
)

// IDEM-025: whichever call breaks, before or after its effect, a task is there with all
// that is its own or not at all; and the next run deletes what is left. The audit tells of
// exactly what was deleted.
func TestEveryCallMayFail(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		calls := dbfault.Open(t, db)
		for _, way := range dbfault.Ways(db.Engine) {
			for nth := 1; ; nth++ {
				when := way(nth)
				name := fmt.Sprintf("call %d %v", nth, when)
				id := s.make(old{attempts: 2, evidence: 1, reviews: 1, retained: []time.Duration{-10 * day, -9 * day}})
				whole := s.counts(id)
				calls.Arm(nth, when)
				report, failed := s.retention(calls.DB, 2*day, nil).Sweep(t.Context())
				_, fired := calls.Disarm()
				if left := s.counts(id); left != whole && left.Rows() != 0 {
					t.Errorf("%s: %v are left of %v", name, left, whole)
				}
				if failed == nil && (report.Counts.Rows() == 0) == !s.exists(id) {
					t.Errorf("%s: %v are reported, and the task exists: %v", name, report.Counts, s.exists(id))
				}
				if !s.goes(id) {
					t.Errorf("%s (first: %v): the task is not deleted by later runs", name, failed)
				}
				if n := s.w.Int("SELECT COUNT(*) FROM audit"); n != 1 {
					t.Errorf("%s: %d audit lines for one task", name, n)
				}
				s.w.Exec("DELETE FROM audit")
				if !fired {
					if failed != nil || nth < 10 {
						t.Errorf("%s: nothing failed after %d calls, yet %v", name, nth-1, failed)
					}
					break
				}
			}
		}
	}, migrations.Server)
}

// goes sweeps until the task is gone: what the broken try held is passed over until the
// server notices that its connection is gone.
func (s *scene) goes(id sqldb.ID) bool {
	s.Helper()
	for range 500 {
		if s.sweep(2 * day); !s.exists(id) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// A task that the database does not let go keeps all that is its own, and keeps no other
// task.
func TestARefusedTaskStaysWholeAndAlone(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := newScene(t, db)
		rich := old{attempts: 2, evidence: 1, reviews: 1, retained: []time.Duration{-10 * day, -9 * day}}
		stuck := s.make(rich)
		others := []sqldb.ID{s.make(rich), s.make(rich), s.make(rich)}
		whole := s.counts(stuck)
		trigger := fmt.Sprintf("CREATE TRIGGER stuck BEFORE DELETE ON task FOR EACH ROW WHEN OLD.id = x'%v' BEGIN SELECT RAISE(ABORT, 'stuck'); END", stuck)
		if db.Engine != dbtest.SQLite {
			trigger = fmt.Sprintf("CREATE TRIGGER stuck BEFORE DELETE ON task FOR EACH ROW BEGIN IF OLD.id = x'%v' THEN SIGNAL SQLSTATE '45000'; END IF; END", stuck)
		}
		s.w.Exec(trigger)
		report, err := s.retention(db.DB, 2*day, nil).Sweep(t.Context())
		if err == nil || report.Counts.Tasks != 3 {
			t.Errorf("Sweep = %v, %v; want 3 tasks and the refusal", report.Counts, err)
		}
		if left := s.counts(stuck); left != whole {
			t.Errorf("%v are left of %v", left, whole)
		}
		for _, id := range others {
			if left := s.counts(id); left.Rows() != 0 {
				t.Errorf("left behind: %v", left)
			}
		}
		s.w.Exec("DROP TRIGGER stuck")
		if got := s.sweep(2 * day).Counts; got != whole {
			t.Errorf("swept %v at last, want %v", got, whole)
		}
	}, migrations.Server)
}

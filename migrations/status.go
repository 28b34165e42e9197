package migrations

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A StepState says how far a step is.
type StepState string

// The states of a step.
const (
	Pending StepState = "pending"
	Half    StepState = "half applied" // a crash stopped it; up goes on
	Applied StepState = "applied"
	Changed StepState = "changed" // applied with another text than this program holds
	Unknown StepState = "unknown" // newer than this program
)

// A StepStatus is what is known of one step.
type StepStatus struct {
	Number    int
	Name      string
	State     StepState
	AppliedAt time.Time // zero unless it was applied
}

// Status returns every step of set that this program or the database knows, in order.
func Status(ctx context.Context, db *sqldb.DB, set Set) ([]StepStatus, error) {
	steps, err := load(files, set, db.Dialect())
	if err != nil {
		return nil, err
	}
	recorded, err := records(ctx, db.Read(), db.Dialect(), set)
	if err != nil {
		return nil, err
	}
	byNumber := map[int]record{}
	for _, r := range recorded {
		byNumber[r.number] = r
	}
	var status []StepStatus
	for _, s := range steps {
		st := StepStatus{Number: s.number, Name: s.name, State: Pending}
		if r, ok := byNumber[s.number]; ok {
			st.State, st.AppliedAt = stateOf(s, r), r.completed
		}
		status = append(status, st)
	}
	for _, r := range recorded {
		if r.number > len(steps) {
			status = append(status, StepStatus{Number: r.number, Name: r.name, State: Unknown, AppliedAt: r.completed})
		}
	}
	return status, nil
}

func stateOf(s step, r record) StepState {
	switch {
	case string(s.checksum[:]) != string(r.checksum):
		return Changed
	case r.completed.IsZero():
		return Half
	}
	return Applied
}

// Version returns the number of the newest step that is completely applied; 0 if none.
func Version(ctx context.Context, db *sqldb.DB, set Set) (int, error) {
	recorded, err := records(ctx, db.Read(), db.Dialect(), set)
	if err != nil {
		return 0, err
	}
	version := 0
	for _, r := range recorded {
		if !r.completed.IsZero() {
			version = r.number
		}
	}
	return version, nil
}

// Check returns nil if a program that is written for versions min to max of set may run
// on db (MIG-008). A half-applied step refuses with a [HalfAppliedError], a version
// outside the range with a [VersionError]; a newer version is within it if every step
// above max was recorded as additive, so that the previous release keeps running while
// such a step is rolled out.
func Check(ctx context.Context, db *sqldb.DB, set Set, min, max int) error {
	recorded, err := records(ctx, db.Read(), db.Dialect(), set)
	if err != nil {
		return err
	}
	version, breaking := 0, false
	for _, r := range recorded {
		harmless := r.number > max && r.additive
		if r.completed.IsZero() && !harmless {
			return &HalfAppliedError{Set: set, Step: r.String()}
		}
		version = r.number
		breaking = breaking || r.number > max && !harmless
	}
	if version < min || breaking {
		return &VersionError{Set: set, Found: version, Min: min, Max: max}
	}
	return nil
}

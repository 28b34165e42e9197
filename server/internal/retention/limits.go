package retention

import (
	"database/sql"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/task"
)

// limits are the two bounds at one moment, in microseconds UTC.
type limits struct {
	now    int64
	cutoff int64 // what ended or was made later stays
}

func limitsAt(now int64, age time.Duration) limits {
	return limits{now: now, cutoff: now - age.Microseconds()}
}

// until is the last retention deadline that the walk looks at: it must have passed, and a
// later one belongs to a record that was made after the cutoff, and so to a task that ended
// after it.
func (l limits) until() int64 {
	return min(l.now-1, l.cutoff+orbit.IdempotencyRetention.Microseconds())
}

// An end is how far a task has come.
type end struct {
	state     task.State
	completed sql.NullInt64 // microseconds UTC
}

// ripe reports whether a task may go whose last retention deadline is retained.
func (l limits) ripe(e end, retained int64) bool {
	return e.state.Terminal() && e.completed.Valid && e.completed.Int64 <= l.cutoff && retained < l.now
}

// due is the moment from which a task could go.
func (l limits) due(completed, retained int64) int64 {
	return max(completed+l.now-l.cutoff, retained)
}

// looseDue is the moment from which a record without a task can go: its deadline, or the
// age after it was made if that is later.
func (l limits) looseDue(retained int64) int64 {
	return max(retained, retained-orbit.IdempotencyRetention.Microseconds()+l.now-l.cutoff)
}

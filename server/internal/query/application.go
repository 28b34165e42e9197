package query

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// stateActive is the stored state of an application in use.
const stateActive = 1

const selectApplication = `
SELECT a.name, a.state, a.dispatch_stopped, a.revision, a.created_at, a.updated_at,
       q.max_unfinished, q.unfinished, q.max_active_attempts
FROM application a
JOIN application_quota q ON q.application_id = a.id
WHERE a.id = ?`

const countApplicationAttempts = `
SELECT COUNT(*)
FROM attempt{by}
WHERE application_id = ?
  AND live = 1`

// Application reads an application. Its error is [ErrNotFound] if there is none.
func (r *Reader) Application(ctx context.Context, id sqldb.ID) (orbit.Application, error) {
	var (
		a                = orbit.Application{ID: id.String(), State: "DISABLED"}
		state            int
		created, updated int64
		unfinished       uint64
	)
	err := r.db.Read().QueryRowContext(ctx, selectApplication, id).Scan(
		&a.Name, &state, &a.DispatchStopped, &a.Revision, &created, &updated,
		&a.MaxUnfinished, &unfinished, &a.MaxActiveAttempts)
	if err := found(err, "read application"); err != nil {
		return orbit.Application{}, err
	}
	if state == stateActive {
		a.State = "ACTIVE"
	}
	a.CreatedAt, a.UpdatedAt = sqldb.Time(created), sqldb.Time(updated)
	if a.MaxUnfinished > 0 { // else it is not counted
		a.Unfinished = &unfinished
	}
	err = r.db.Read().QueryRowContext(ctx, r.by("attempt_application", countApplicationAttempts), id).Scan(&a.ActiveAttempts)
	if err != nil {
		return orbit.Application{}, fmt.Errorf("count attempts of application: %w", err)
	}
	return a, nil
}

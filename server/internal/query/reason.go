package query

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

const selectReasons = `
SELECT attempt_id, reason
FROM task_event
WHERE task_id = ?
  AND reason <> ?
  AND attempt_id IN %s
ORDER BY seq`

// addReasons adds why the attempts ended, where their last event tells it.
func (r *Reader) addReasons(ctx context.Context, id sqldb.ID, attempts []*orbit.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	byID := map[string]*orbit.Attempt{}
	args := []any{id, []byte{}}
	for _, a := range attempts {
		byID[a.ID] = a
		attempt, err := sqldb.ParseID(a.ID)
		if err != nil {
			return err
		}
		args = append(args, attempt)
	}
	query := fmt.Sprintf(selectReasons, sqldb.Placeholders(len(attempts)))
	rows, err := r.db.Read().QueryContext(ctx, query, args...)
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		var attempt sqldb.ID
		var reason string
		if err := rows.Scan(&attempt, &reason); err != nil {
			return false, err
		}
		explain(byID[attempt.String()], reason)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("read events of attempts: %w", err)
	}
	return nil
}

// explain adds the reason of an end that no worker reported.
func explain(a *orbit.Attempt, reason string) {
	switch a.Outcome {
	case orbit.OutcomeUnknown, orbit.OutcomeExpired:
		a.Reason = reason
	}
	if a.Outcome == orbit.OutcomeExpired && reason == settle.ReasonReturned {
		a.Outcome = orbit.OutcomeReturned
	}
}

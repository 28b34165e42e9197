package retention

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A LastRun is the newest run that deleted something, as the audit tells it.
type LastRun struct {
	At    time.Time // of its first transaction
	Actor string
	Note  string // counts and cutoff
}

const selectLast = `
SELECT created_at, actor, note
FROM audit
WHERE namespace_id IS NULL
  AND action = ?
ORDER BY created_at DESC
LIMIT 1`

// Last returns the newest run that deleted something; ok is false if there is none.
func Last(ctx context.Context, db *sqldb.DB) (last LastRun, ok bool, err error) {
	var at int64
	err = db.Read().QueryRowContext(ctx, selectLast, []byte(Action)).Scan(&at, &last.Actor, &last.Note)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return LastRun{}, false, nil
	case err != nil:
		return LastRun{}, false, fmt.Errorf("read audit of retention: %w", err)
	}
	last.At = sqldb.Time(at)
	return last, true, nil
}

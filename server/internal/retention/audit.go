package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Action is what the audit calls a run that deleted something.
const Action = "retention.purge"

const maxActor = 128 // bytes of the column

// An auditLine is the row of a run in the audit. Each transaction of the run brings it up
// to date, so that nothing is ever deleted that the audit does not tell of.
type auditLine struct {
	actor  string
	cutoff time.Time
	seq    int64 // zero as long as there is no row
	counts Counts
}

const (
	insertAudit = `
INSERT INTO audit (actor, action, note, created_at)
VALUES (?, ?, ?, ?)`

	updateAudit = `
UPDATE audit
SET note = ?
WHERE seq = ?`
)

// note is what the row tells.
func (a *auditLine) note() []byte {
	return fmt.Appendf(nil, "%v; ended until %s", a.counts, a.cutoff.Format(time.RFC3339Nano))
}

// write tells the audit of what the transaction removes.
func (a *auditLine) write(ctx context.Context, tx *sqldb.Tx, removed Counts) error {
	a.counts.add(removed)
	if a.seq != 0 {
		if _, err := tx.ExecContext(ctx, updateAudit, a.note(), a.seq); err != nil {
			return fmt.Errorf("update audit row: %w", err)
		}
		return nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, insertAudit, []byte(a.actor), []byte(Action), a.note(), now)
	if err != nil {
		return fmt.Errorf("insert audit row: %w", err)
	}
	a.seq, err = result.LastInsertId()
	return err
}

const countAudit = `
SELECT COUNT(*)
FROM audit
WHERE seq = ?
  AND actor = ?
  AND note = ?`

// inForce reports whether the transaction that wrote the line has come into force.
func (a *auditLine) inForce(ctx context.Context, q sqldb.Querier) (bool, error) {
	var n int
	if err := q.QueryRowContext(ctx, countAudit, a.seq, []byte(a.actor), a.note()).Scan(&n); err != nil {
		return false, fmt.Errorf("look up audit row: %w", err)
	}
	return n > 0, nil
}

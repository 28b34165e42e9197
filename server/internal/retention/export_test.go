package retention

import (
	"context"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// SetBound makes transactions of r small.
func (r *Retention) SetBound(tasks int, rows, bytes int64, loose int) {
	r.bound = bound{tasks: tasks, rows: rows, bytes: bytes, loose: loose}
}

// Rows is how many rows c are in all.
func (c Counts) Rows() int64 { return c.rows() }

// PurgeTasks deletes those of tasks that may go, whatever a walk would have found.
func (r *Retention) PurgeTasks(ctx context.Context, tasks ...sqldb.ID) (Counts, error) {
	s, err := r.begin(ctx, false)
	if err != nil {
		return Counts{}, err
	}
	err = s.purgeTasks(ctx, tasks)
	return s.report.Counts, err
}

// PurgeLoose deletes those of records that may go, whatever a walk would have found.
func (r *Retention) PurgeLoose(ctx context.Context, records ...idempotency.Identity) (Counts, error) {
	s, err := r.begin(ctx, false)
	if err != nil {
		return Counts{}, err
	}
	err = s.purgeLoose(ctx, records)
	return s.report.Counts, err
}

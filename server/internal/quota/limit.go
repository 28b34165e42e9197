package quota

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

const (
	lockQueue = `
SELECT id
FROM queue
WHERE id = ?`

	// States 1 to 4 are those of unfinished tasks.
	countQueue = `
SELECT COUNT(*)
FROM task
WHERE queue_id = ? AND state IN (1, 2, 3, 4)`

	limitQueue = `
UPDATE queue
SET max_backlog = ?, unfinished = ?
WHERE id = ?`
)

// LimitQueue sets how many unfinished tasks a queue may have, 0 for any number, and counts
// those that it has: a limit below that number refuses new tasks until enough have ended.
// It locks the queue until the transaction ends, and waits for transactions that accept or
// end tasks of it. The queue's revision is the caller's. A queue that does not exist is
// [database/sql.ErrNoRows].
func LimitQueue(ctx context.Context, tx *sqldb.Tx, queue sqldb.ID, maxBacklog int64) error {
	if err := limit(ctx, tx, queue, maxBacklog, lockQueue, countQueue, limitQueue); err != nil {
		return fmt.Errorf("limit queue %v: %w", queue, err)
	}
	return nil
}

const (
	lockApplication = `
SELECT application_id
FROM application_quota
WHERE application_id = ?`

	countApplication = `
SELECT COUNT(*)
FROM namespace n
JOIN queue q ON q.namespace_id = n.id
JOIN task t ON t.queue_id = q.id
WHERE n.application_id = ? AND t.state IN (1, 2, 3, 4)`

	limitApplication = `
UPDATE application_quota
SET max_unfinished = ?, unfinished = ?, updated_at = %s
WHERE application_id = ?`
)

// LimitApplication is LimitQueue for an application, over all its namespaces. It must be
// called before any queue is locked (LIC-014).
func LimitApplication(ctx context.Context, tx *sqldb.Tx, application sqldb.ID, maxUnfinished int64) error {
	err := makeRow(ctx, tx, application)
	if err == nil {
		err = limit(ctx, tx, application, maxUnfinished, lockApplication, countApplication,
			fmt.Sprintf(limitApplication, tx.Dialect().Clock))
	}
	if err != nil {
		return fmt.Errorf("limit application %v: %w", application, err)
	}
	return nil
}

func limit(ctx context.Context, tx *sqldb.Tx, id sqldb.ID, most int64, lock, count, update string) error {
	if most < 0 {
		return fmt.Errorf("limit %d must not be negative", most)
	}
	var locked sqldb.ID
	if err := tx.QueryRowContext(ctx, lock+tx.Dialect().ForUpdate, id).Scan(&locked); err != nil {
		return err
	}
	var unfinished int64
	if most > 0 { // by a statement of its own, whose snapshot is taken under the lock
		if err := tx.QueryRowContext(ctx, count, id).Scan(&unfinished); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, update, most, unfinished, id)
	return err
}

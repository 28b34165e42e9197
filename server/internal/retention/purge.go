package retention

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// A doomed task is one that goes, with the records of its keys, locked.
type doomed struct {
	id      sqldb.ID
	records [][]byte
}

// purgeTasks deletes those of tasks that may go, each with all that belongs to it, in one
// transaction.
func (s *sweep) purgeTasks(ctx context.Context, tasks []sqldb.ID) error {
	var going []doomed
	remove := func(tx *sqldb.Tx) (removed Counts, err error) {
		if going, err = s.lock(ctx, tx, tasks); err != nil {
			return removed, err
		}
		for _, d := range going {
			if err := d.delete(ctx, tx, &removed); err != nil {
				return removed, err
			}
		}
		return removed, nil
	}
	gone := func(ctx context.Context, q sqldb.Querier) (bool, error) {
		return s.isGone(ctx, q, "SELECT COUNT(*) FROM task WHERE id = ?", going[0].id)
	}
	if err := s.commit(ctx, remove, gone); err != nil {
		return fmt.Errorf("delete old tasks: %w", err)
	}
	return nil
}

// purgeLoose deletes those of records that may go and belong to no task.
func (s *sweep) purgeLoose(ctx context.Context, records []idempotency.Identity) error {
	var going [][]byte
	remove := func(tx *sqldb.Tx) (removed Counts, err error) {
		if going, err = s.lockLoose(ctx, tx, records); err != nil {
			return removed, err
		}
		return removed, deleteRecords(ctx, tx, going, &removed)
	}
	gone := func(ctx context.Context, q sqldb.Querier) (bool, error) {
		return s.isGone(ctx, q, "SELECT COUNT(*) FROM idempotency WHERE digest = ?", going[0])
	}
	if err := s.commit(ctx, remove, gone); err != nil {
		return fmt.Errorf("delete old records of keys: %w", err)
	}
	return nil
}

func (s *sweep) isGone(ctx context.Context, q sqldb.Querier, query string, id any) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, query, id).Scan(&n)
	return n == 0, err
}

// commit runs remove in a transaction, with the audit of it, and counts what it removed.
// After a commit of unknown outcome gone tells whether it is in force.
func (s *sweep) commit(ctx context.Context, remove func(*sqldb.Tx) (Counts, error), gone func(context.Context, sqldb.Querier) (bool, error)) error {
	var removed Counts
	var audit auditLine
	err := s.db.TxResolve(ctx, func(tx *sqldb.Tx) (err error) {
		audit = s.audit
		if removed, err = remove(tx); err != nil || removed.rows() == 0 {
			return err
		}
		return audit.write(ctx, tx, removed)
	}, func(ctx context.Context, q sqldb.Querier) (bool, error) {
		if removed.rows() == 0 {
			return true, nil
		}
		return gone(ctx, q)
	})
	if err != nil || removed.rows() == 0 {
		return err
	}
	s.audit = audit
	s.report.Counts.add(removed)
	s.cfg.Removed(removed)
	return nil
}

const lockRecords = `
SELECT task_id, digest
FROM idempotency
WHERE task_id IN `

const lockTasks = `
SELECT id, state, completed_at
FROM task
WHERE id IN `

const countRecords = `
SELECT task_id, COUNT(*), MAX(retain_until)
FROM idempotency
WHERE task_id IN %s
GROUP BY task_id`

// lock locks what may go of tasks, records before tasks. A task of which somebody else
// holds a part is left out, and so is one that may not go.
func (s *sweep) lock(ctx context.Context, tx *sqldb.Tx, tasks []sqldb.ID) ([]doomed, error) {
	in, args := sqldb.Placeholders(len(tasks)), settle.IDArgs(tasks)
	records := make(map[sqldb.ID][][]byte, len(tasks))
	err := eachRow(ctx, tx, lockRecords+in+tx.Dialect().SkipLocked, args, func(scan func(...any) error) error {
		var id sqldb.ID
		var digest []byte
		err := scan(&id, &digest)
		records[id] = append(records[id], digest)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock records: %w", err)
	}
	ends := make(map[sqldb.ID]end, len(tasks))
	err = eachRow(ctx, tx, lockTasks+in+tx.Dialect().SkipLocked, args, func(scan func(...any) error) error {
		var id sqldb.ID
		var e end
		err := scan(&id, &e.state, &e.completed)
		ends[id] = e
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock tasks: %w", err)
	}
	var going []doomed
	err = eachRow(ctx, tx, fmt.Sprintf(countRecords, in), args, func(scan func(...any) error) error {
		var id sqldb.ID
		var n int
		var retained int64
		err := scan(&id, &n, &retained)
		e, locked := ends[id]
		if err == nil && locked && n == len(records[id]) && s.limits.ripe(e, retained) {
			going = append(going, doomed{id, records[id]})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at records again: %w", err)
	}
	return going, nil
}

const lockLooseRecords = `
SELECT i.digest
FROM idempotency i
WHERE i.digest IN %s
  AND i.retain_until <= ?
  AND NOT EXISTS (SELECT 1 FROM task t WHERE t.id = i.task_id)`

// lockLoose locks what may go of records. A task that is gone never comes back.
func (s *sweep) lockLoose(ctx context.Context, tx *sqldb.Tx, records []idempotency.Identity) (going [][]byte, err error) {
	args := make([]any, 0, len(records)+1)
	for _, digest := range records {
		args = append(args, digest[:])
	}
	query := fmt.Sprintf(lockLooseRecords, sqldb.Placeholders(len(records))) + tx.Dialect().SkipLocked
	err = eachRow(ctx, tx, query, append(args, s.limits.until()), func(scan func(...any) error) error {
		var digest []byte
		err := scan(&digest)
		going = append(going, digest)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock records: %w", err)
	}
	return going, nil
}

// Rows are deleted by one key at a time. A statement for many may scan a short table, and
// then waits for rows of others; and a record must not be found by its task, for a cancel
// that waits for the task may just have put another one there.
const (
	deletePart = `
DELETE FROM %s
WHERE task_id = ?`

	deleteRecord = `
DELETE FROM idempotency
WHERE digest = ?`

	deleteTask = `
DELETE FROM task
WHERE id = ?`
)

// delete deletes a locked task and all that belongs to it.
func (d *doomed) delete(ctx context.Context, tx *sqldb.Tx, removed *Counts) error {
	for _, p := range parts {
		if err := deleteRows(ctx, tx, fmt.Sprintf(deletePart, p.table), d.id, p.count(removed)); err != nil {
			return fmt.Errorf("delete from %s: %w", p.table, err)
		}
	}
	if err := deleteRecords(ctx, tx, d.records, removed); err != nil {
		return err
	}
	if err := deleteRows(ctx, tx, deleteTask, d.id, &removed.Tasks); err != nil {
		return fmt.Errorf("delete task: %w", err)
	}
	return nil
}

func deleteRecords(ctx context.Context, tx *sqldb.Tx, records [][]byte, removed *Counts) error {
	for _, digest := range records {
		if err := deleteRows(ctx, tx, deleteRecord, digest, &removed.Records); err != nil {
			return fmt.Errorf("delete record: %w", err)
		}
	}
	return nil
}

// deleteRows adds how many rows it has deleted to n, for people to read.
func deleteRows(ctx context.Context, tx *sqldb.Tx, query string, id any, n *int64) error {
	result, err := tx.ExecContext(ctx, query, id)
	if err != nil {
		return err
	}
	affected, err := result.RowsAffected()
	*n += affected
	return err
}

// eachRow calls f for each row of a query.
func eachRow(ctx context.Context, q sqldb.Querier, query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

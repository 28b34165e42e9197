package retention

import (
	"context"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// purgeTasks deletes those of tasks that may go, each with all that belongs to it, in one
// transaction.
func (s *sweep) purgeTasks(ctx context.Context, tasks []sqldb.ID) error {
	err := s.commit(ctx, func(tx *sqldb.Tx) (removed Counts, err error) {
		going, err := s.lock(ctx, tx, tasks)
		if err != nil || len(going.tasks) == 0 {
			return removed, err
		}
		err = going.delete(ctx, tx, &removed)
		return removed, err
	})
	if err != nil {
		return fmt.Errorf("delete old tasks: %w", err)
	}
	return nil
}

// purgeLoose deletes those of records that may go and belong to no task.
func (s *sweep) purgeLoose(ctx context.Context, records []idempotency.Identity) error {
	err := s.commit(ctx, func(tx *sqldb.Tx) (removed Counts, err error) {
		going, err := s.lockLoose(ctx, tx, records)
		if err != nil || len(going) == 0 {
			return removed, err
		}
		err = deleteRecords(ctx, tx, going, &removed)
		return removed, err
	})
	if err != nil {
		return fmt.Errorf("delete old records of keys: %w", err)
	}
	return nil
}

// commit runs remove in a transaction, with the audit of it, and counts what it removed.
func (s *sweep) commit(ctx context.Context, remove func(*sqldb.Tx) (Counts, error)) error {
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
			return true, nil // there was nothing to commit
		}
		return audit.inForce(ctx, q)
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

// Doomed are tasks that go, with the records of their keys, locked.
type doomed struct {
	tasks   []any // ids
	records []any // digests
}

// lock locks what may go of tasks, records before tasks. A task of which somebody else
// holds a part is left out, and so is one that may not go.
func (s *sweep) lock(ctx context.Context, tx *sqldb.Tx, tasks []sqldb.ID) (going doomed, err error) {
	in, args := sqldb.Placeholders(len(tasks)), settle.IDArgs(tasks)
	records := make(map[sqldb.ID][]any, len(tasks))
	err = sqldb.EachRow(ctx, tx, lockRecords+in+tx.Dialect().SkipLocked, args, func(scan func(...any) error) error {
		var id sqldb.ID
		var digest []byte
		err := scan(&id, &digest)
		records[id] = append(records[id], digest)
		return err
	})
	if err != nil {
		return going, fmt.Errorf("lock records: %w", err)
	}
	ends := make(map[sqldb.ID]end, len(tasks))
	err = sqldb.EachRow(ctx, tx, lockTasks+in+tx.Dialect().SkipLocked, args, func(scan func(...any) error) error {
		var id sqldb.ID
		var e end
		err := scan(&id, &e.state, &e.completed)
		ends[id] = e
		return err
	})
	if err != nil {
		return going, fmt.Errorf("lock tasks: %w", err)
	}
	err = sqldb.EachRow(ctx, tx, fmt.Sprintf(countRecords, in), args, func(scan func(...any) error) error {
		var id sqldb.ID
		var n int
		var retained int64
		err := scan(&id, &n, &retained)
		e, locked := ends[id]
		if err == nil && locked && n == len(records[id]) && s.limits.ripe(e, retained) {
			going.tasks, going.records = append(going.tasks, id), append(going.records, records[id]...)
		}
		return err
	})
	if err != nil {
		return going, fmt.Errorf("look at records again: %w", err)
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
func (s *sweep) lockLoose(ctx context.Context, tx *sqldb.Tx, records []idempotency.Identity) (going []any, err error) {
	args := make([]any, 0, len(records)+1)
	for _, digest := range records {
		args = append(args, digest[:])
	}
	query := fmt.Sprintf(lockLooseRecords, sqldb.Placeholders(len(records))) + tx.Dialect().SkipLocked
	err = sqldb.EachRow(ctx, tx, query, append(args, s.limits.until()), func(scan func(...any) error) error {
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

// deleteQuery returns the statement that deletes the rows of a table with n values in a
// column. MySQL is made to look each value up: left alone it scans a short table, and then
// waits for rows of others. It heeds FORCE INDEX only in a join.
func deleteQuery(d *sqldb.Dialect, table, index, column string, n int) string {
	if d == sqldb.SQLite {
		return fmt.Sprintf("DELETE FROM %s WHERE %s IN %s", table, column, sqldb.Placeholders(n))
	}
	values := "SELECT ? AS value" + strings.Repeat(" UNION ALL SELECT ?", n-1)
	return fmt.Sprintf("DELETE x FROM (%s) v STRAIGHT_JOIN %s x FORCE INDEX (%s) ON x.%s = v.value", values, table, index, column)
}

// delete deletes locked tasks and all that belongs to them.
func (d *doomed) delete(ctx context.Context, tx *sqldb.Tx, removed *Counts) error {
	for _, p := range parts {
		if err := deleteRows(ctx, tx, deleteQuery(tx.Dialect(), p.table, p.index, "task_id", len(d.tasks)), d.tasks, p.count(removed)); err != nil {
			return fmt.Errorf("delete from %s: %w", p.table, err)
		}
	}
	if err := deleteRecords(ctx, tx, d.records, removed); err != nil {
		return err
	}
	if err := deleteRows(ctx, tx, deleteQuery(tx.Dialect(), "task", "PRIMARY", "id", len(d.tasks)), d.tasks, &removed.Tasks); err != nil {
		return fmt.Errorf("delete tasks: %w", err)
	}
	return nil
}

// deleteRecords deletes locked records. They are not found by their task: a cancel that
// waits for the task may just have put another one there.
func deleteRecords(ctx context.Context, tx *sqldb.Tx, digests []any, removed *Counts) error {
	err := deleteRows(ctx, tx, deleteQuery(tx.Dialect(), "idempotency", "PRIMARY", "digest", len(digests)), digests, &removed.Records)
	if err != nil {
		return fmt.Errorf("delete records: %w", err)
	}
	return nil
}

// deleteRows adds how many rows it has deleted to n, for people to read.
func deleteRows(ctx context.Context, tx *sqldb.Tx, query string, args []any, n *int64) error {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	affected, err := result.RowsAffected()
	*n += affected
	return err
}

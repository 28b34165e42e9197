package query

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A QueuePage is a page of queues in the order of their names' bytes.
type QueuePage struct {
	Queues []orbit.Queue
	More   bool // another page begins after the last name
}

const queueColumns = `
SELECT q.id, q.namespace_id, q.name, q.max_concurrency, q.max_backlog, q.unfinished, q.paused,
       q.revision, q.created_at, q.updated_at
FROM queue q`

const (
	selectQueues = queueColumns + `
WHERE q.namespace_id = ?
  AND q.name > ?
ORDER BY q.name
LIMIT ?`

	// Either table may lead: a scope is as short as it was made, and so is a page.
	selectQueuesOf = queueColumns + `
JOIN credential_queue s ON s.queue_id = q.id
WHERE s.credential_id = ?
  AND q.namespace_id = ?
  AND q.name > ?
ORDER BY q.name
LIMIT ?`
)

// Queues reads a page of at most limit queues of the scope's namespace, which must be set,
// whose names come after a name.
func (r *Reader) Queues(ctx context.Context, s Scope, after string, limit int) (QueuePage, error) {
	query, args := selectQueues, []any{s.Namespace, []byte(after), limit + 1}
	if !s.Credential.IsZero() {
		query, args = selectQueuesOf, append([]any{s.Credential}, args...)
	}
	var page QueuePage
	rows, err := r.db.Read().QueryContext(ctx, query, args...)
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		if len(page.Queues) == limit {
			page.More = true
			return false, nil
		}
		q, _, _, err := scanQueue(rows)
		page.Queues = append(page.Queues, q)
		return true, err
	})
	if err != nil {
		return QueuePage{}, fmt.Errorf("list queues: %w", err)
	}
	return page, r.addActive(ctx, page.Queues)
}

const selectQueue = queueColumns + `
WHERE q.id = ?`

// Queue reads a queue. Its error is [ErrNotFound] if there is none in scope.
func (r *Reader) Queue(ctx context.Context, s Scope, id sqldb.ID) (orbit.Queue, error) {
	q, namespace, queue, err := scanQueue(r.db.Read().QueryRowContext(ctx, selectQueue, id))
	if err := found(err, "read queue"); err != nil {
		return orbit.Queue{}, err
	}
	if !s.sees(namespace, queue) {
		return orbit.Queue{}, ErrNotFound
	}
	one := []orbit.Queue{q}
	err = r.addActive(ctx, one)
	return one[0], err
}

func scanQueue(row interface{ Scan(...any) error }) (q orbit.Queue, namespace, id sqldb.ID, err error) {
	var created, updated int64
	var unfinished uint64
	err = row.Scan(&id, &namespace, &q.Name, &q.MaxConcurrency, &q.MaxBacklog, &unfinished, &q.Paused,
		&q.Revision, &created, &updated)
	q.ID, q.NamespaceID = id.String(), namespace.String()
	q.CreatedAt, q.UpdatedAt = sqldb.Time(created), sqldb.Time(updated)
	if q.MaxBacklog > 0 { // else it is not counted
		q.Unfinished = &unfinished
	}
	return q, namespace, id, err
}

const countQueueAttempts = `
SELECT queue_id, COUNT(*)
FROM attempt{by}
WHERE live = 1 AND queue_id IN %s
GROUP BY queue_id`

// addActive adds how many attempts of each queue are leased or running.
func (r *Reader) addActive(ctx context.Context, queues []orbit.Queue) error {
	if len(queues) == 0 {
		return nil
	}
	byID := map[string]*orbit.Queue{}
	var args []any
	for i := range queues {
		byID[queues[i].ID] = &queues[i]
		id, err := sqldb.ParseID(queues[i].ID)
		if err != nil {
			return err
		}
		args = append(args, id)
	}
	query := fmt.Sprintf(r.by("attempt_queue", countQueueAttempts), sqldb.Placeholders(len(args)))
	rows, err := r.db.Read().QueryContext(ctx, query, args...)
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		var id sqldb.ID
		var live uint64
		if err := rows.Scan(&id, &live); err != nil {
			return false, err
		}
		byID[id.String()].ActiveAttempts = live
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("count attempts of queues: %w", err)
	}
	return nil
}

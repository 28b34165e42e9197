package retention

import (
	"context"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// pageSize is how many records one read looks at.
const pageSize = 200

// A place is a position in the order of the walk: retention deadline, then primary key.
type place struct {
	retainUntil int64
	digest      idempotency.Identity
}

// A record is the record of a key, with what decides about it.
type record struct {
	place
	task sqldb.ID // zero if the command had none
	end  end      // of the task; its state is zero if there is none
	last bool     // no record of its task comes later in the walk
}

// loose reports whether the record belongs to no task that exists.
func (r *record) loose() bool { return r.end.state == 0 }

// The walk keeps to its indexes whatever statistics say, see query.Reader.
const selectPage = `
SELECT i.retain_until, i.digest, i.task_id, COALESCE(t.state, 0), t.completed_at,
       NOT EXISTS (SELECT 1 FROM idempotency x{of}
                   WHERE x.task_id = i.task_id
                     AND (x.retain_until > i.retain_until OR (x.retain_until = i.retain_until AND x.digest > i.digest)))
FROM idempotency i{by}
LEFT JOIN task t ON t.id = i.task_id
WHERE {after}
  AND i.retain_until <= ?
ORDER BY i.retain_until, i.digest
LIMIT ?`

// pageQuery returns the statement that reads the records after from and not after until,
// and what it binds.
func pageQuery(d *sqldb.Dialect, from place, until int64) (query string, args []any) {
	after, args := "(i.retain_until > ? OR (i.retain_until = ? AND i.digest > ?))", []any{from.retainUntil, from.retainUntil}
	if d == sqldb.SQLite {
		after, args = "(i.retain_until, i.digest) > (?, ?)", args[:1]
	}
	query = strings.NewReplacer("{by}", d.ByIndex("idempotency_retain"), "{of}", d.ByIndex("idempotency_task"), "{after}", after).Replace(selectPage)
	return query, append(args, from.digest[:], until, pageSize)
}

// readPage reads without a lock: whatever it finds is judged again.
func readPage(ctx context.Context, db *sqldb.DB, from place, until int64) ([]record, error) {
	query, args := pageQuery(db.Dialect(), from, until)
	rows, err := db.Read().QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read old records: %w", err)
	}
	defer rows.Close()
	var page []record
	for rows.Next() {
		var r record
		var digest []byte
		if err := rows.Scan(&r.retainUntil, &digest, &r.task, &r.end.state, &r.end.completed, &r.last); err != nil {
			return nil, fmt.Errorf("read old records: %w", err)
		}
		r.digest = idempotency.Identity(digest)
		page = append(page, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read old records: %w", err)
	}
	return page, nil
}

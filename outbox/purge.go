package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Purged tells what one call of Purge has done.
type Purged struct {
	Rows int
	// Next is where the next call goes on; zero if this one has come to rows that
	// are too young.
	Next int64
}

const (
	scanForPurge = `
SELECT seq, state, created_at, settled_at
FROM orbit_outbox
WHERE seq > ?
ORDER BY seq
LIMIT ?`

	deleteDelivered = `
WHERE seq IN %s AND state = 2 AND settled_at <= ?`
)

// Purge deletes rows that were delivered at least age ago. It looks at no more than
// limit rows (at most 1000) that come after the given seq, and never touches a row
// that is open, refused or blocked. To purge all, call it with Next until that is
// zero. Purging a row ends the local detection of a duplicate; the server's stays.
func (s *Store) Purge(ctx context.Context, age time.Duration, after int64, limit int) (Purged, error) {
	if age < 0 || limit < 1 || limit > MaxRows {
		return Purged{}, fmt.Errorf("outbox: purge of age %v and %d rows: age must not be negative, rows must be 1 to %d", age, limit, MaxRows)
	}
	p, err := s.purge(ctx, age, after, limit)
	if err != nil {
		return Purged{}, failed(s.dialect, "purge", err)
	}
	return p, nil
}

func (s *Store) purge(ctx context.Context, age time.Duration, after int64, limit int) (p Purged, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return p, err
	}
	before := now - age.Microseconds()
	old, next, err := s.scanForPurge(ctx, before, after, limit)
	if err != nil {
		return p, err
	}
	p.Next = next
	if len(old) > 0 {
		p.Rows, err = s.exec(ctx, s.remove+fmt.Sprintf(deleteDelivered, sqldb.Placeholders(len(old))), append(seqArgs(nil, old), before))
	}
	return p, err
}

// scanForPurge returns the old delivered rows among the next limit rows. Numbers are
// given out in the order of time but for transactions that run side by side, so the
// scan ends at a row that is a good deal younger than wanted.
func (s *Store) scanForPurge(ctx context.Context, before, after int64, limit int) (old []int64, next int64, err error) {
	const slack = int64(time.Hour / time.Microsecond)
	type seen struct {
		seq, created, settled int64
		state                 State
	}
	rows, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (r seen, err error) {
		return r, rows.Scan(&r.seq, &r.state, &r.created, &r.settled)
	}, scanForPurge, after, limit)
	for _, r := range rows {
		if r.state == Delivered && r.settled <= before {
			old = append(old, r.seq)
		}
	}
	if n := len(rows); n == limit && rows[n-1].created <= before+slack {
		next = rows[n-1].seq
	}
	return old, next, err
}

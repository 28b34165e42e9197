package outbox

import (
	"context"
	"database/sql"
	"errors"
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

	// deleteAnswers names rows that are delivered, which no answer follows.
	deleteAnswers = `
DELETE FROM orbit_outbox_answer
WHERE row_seq IN `
)

// Purge deletes rows that were delivered at least age ago. It looks at no more than
// limit rows (at most 1000) that come after the given seq, and never touches a row
// that is open, refused or blocked. To purge all, call it with Next until that is
// zero. Purging a row ends the local detection of a duplicate; the server's stays. The
// answers in its journal go with it, audit rows of operators stay (OUT-018).
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
		// The answers go first: what is left of a purge that breaks off is found again.
		if _, err := s.exec(ctx, deleteAnswers+sqldb.Placeholders(len(old)), seqArgs(nil, old)); err != nil {
			return p, err
		}
		p.Rows, err = s.exec(ctx, s.remove+fmt.Sprintf(deleteDelivered, sqldb.Placeholders(len(old))), append(seqArgs(nil, old), before))
	}
	return p, err
}

// scanForPurge returns the old delivered rows among the next limit rows. Numbers are
// given out in the order of time but for transactions that run side by side, so the
// scan ends at a row that is a good deal younger than wanted.
func (s *Store) scanForPurge(ctx context.Context, before, after int64, limit int) (old []int64, next int64, err error) {
	const slack = int64(time.Hour / time.Microsecond)
	type seen struct{ seq, state, created, settled integer }
	rows, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (r seen, err error) {
		return r, rows.Scan(&r.seq, &r.state, &r.created, &r.settled)
	}, scanForPurge, after, limit)
	for _, r := range rows {
		if r.state == integer(Delivered) && int64(r.settled) <= before {
			old = append(old, int64(r.seq))
		}
	}
	if n := len(rows); n == limit && int64(rows[n-1].created) <= before+slack {
		next = int64(rows[n-1].seq)
	}
	return old, next, err
}

const countDelivered = `
SELECT COUNT(*)
FROM orbit_outbox
WHERE state = 2 AND settled_at <= `

// PurgeAll deletes what was delivered at least age ago, in batches of 500 rows with a
// pause as long as the batch took, and writes one audit row. It returns how many rows are
// gone, also with an error. A dry run counts them, which reads each delivered row.
func (s *Store) PurgeAll(ctx context.Context, age time.Duration, act Act) (rows int64, err error) {
	if err := act.validate(); err != nil {
		return 0, err
	}
	if age < 0 {
		return 0, fmt.Errorf("outbox: purge of age %v: must not be negative", age)
	}
	if act.DryRun {
		err := s.db.Read().QueryRowContext(ctx, countDelivered+s.dialect.Clock+" - ?", age.Microseconds()).Scan(&rows)
		if err != nil {
			return 0, failed(s.dialect, "count delivered rows", err)
		}
		return rows, nil
	}
	rows, err = s.purgeBatches(ctx, age)
	if rows == 0 && err != nil {
		return 0, err
	}
	// What is gone is told even if the caller has given up meanwhile.
	audit, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	reason := fmt.Sprintf("%d rows delivered at least %v ago: %s", rows, age, act.Reason)
	auditErr := s.act(audit, "purge", act, func(tx *sql.Tx) error { return s.journal(audit, tx, "purge", act.Operator, reason) })
	return rows, errors.Join(err, auditErr)
}

const (
	purgeRows    = 500
	auditTimeout = 10 * time.Second
)

func (s *Store) purgeBatches(ctx context.Context, age time.Duration) (rows int64, err error) {
	for next := int64(0); ; {
		began := time.Now()
		p, err := s.Purge(ctx, age, next, purgeRows)
		rows += int64(p.Rows)
		if next = p.Next; err != nil || next == 0 {
			return rows, err
		}
		select {
		case <-ctx.Done():
			return rows, ctx.Err()
		case <-time.After(time.Since(began)):
		}
	}
}

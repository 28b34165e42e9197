package outbox

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Lane is a lane with rows to be sent.
type Lane struct {
	ID      int64
	Target  string
	QueueID string
	Wait    time.Duration // until its first row is due, by the database's clock; not positive if one is due now
	First   int64         // seq of its first row
	// Damage tells what of the first row is damaged, so that Target and QueueID are not those
	// of the lane: see [Row.Damage]. Block the row with [OutcomeDamaged] and list the lanes
	// again. Empty for a sound one.
	Damage string
}

// A Cursor is a place in the due rows of a lane. The zero Cursor is before the first.
type Cursor struct {
	dueAt, seq int64
}

// A Due is a row that may be sent, as its index entry tells.
type Due struct {
	Seq   int64
	Size  int // bytes of its request
	dueAt int64
}

// Cursor returns the place of the row, to read on after it.
func (d Due) Cursor() Cursor { return Cursor{dueAt: d.dueAt, seq: d.Seq} }

// DueAt returns since when the row may be sent.
func (d Due) DueAt() time.Time { return sqldb.Time(d.dueAt) }

const (
	nextShard = `
SELECT shard
FROM orbit_outbox
WHERE state = 1 AND shard >= ? AND shard < ?
ORDER BY shard
LIMIT 1`

	ledShards = `
SELECT shard
FROM orbit_outbox_lease
ORDER BY shard`
)

// Shards returns, in ascending order, every shard that a relay has to lead: those that
// have ever been led and those with rows to be sent. It costs one index look-up a
// shard.
func (s *Store) Shards(ctx context.Context) ([]int, error) {
	shards, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (n int, err error) {
		return n, rows.Scan(&n)
	}, ledShards)
	if err != nil {
		return nil, failed(s.dialect, "list shards", err)
	}
	for next := 0; ; next++ {
		// What is beyond the highest shard is that of a damaged row, of which Verify tells.
		err := s.db.Read().QueryRowContext(ctx, nextShard, int64(next), MaxShards).Scan(&next)
		if errors.Is(err, sql.ErrNoRows) {
			slices.Sort(shards)
			return slices.Compact(shards), nil
		}
		if err != nil {
			return nil, failed(s.dialect, "list shards", err)
		}
		shards = append(shards, next)
	}
}

const nextLane = `
SELECT lane, seq, target, queue_id, due_at - `

// What is no integer, of a damaged row, comes after all lanes.
const nextLaneFrom = `
FROM orbit_outbox
WHERE state = 1 AND shard = ? AND lane BETWEEN ? AND 9223372036854775807
ORDER BY lane, due_at, seq
LIMIT 1`

// Lanes returns the lanes of a shard that have rows to be sent, due or not. It costs
// one index look-up a lane, and one more: a single one for a shard without work.
func (s *Store) Lanes(ctx context.Context, shard int) ([]Lane, error) {
	query := nextLane + s.dialect.Clock + nextLaneFrom
	var lanes []Lane
	for from := int64(math.MinInt64); ; {
		l, err := scanLane(s.db.Read().QueryRowContext(ctx, query, int64(shard), from))
		if errors.Is(err, sql.ErrNoRows) {
			return lanes, nil
		}
		if err != nil {
			return nil, failed(s.dialect, "list lanes", err)
		}
		lanes = append(lanes, l)
		if l.ID == math.MaxInt64 {
			return lanes, nil
		}
		from = l.ID + 1
	}
}

// scanLane reads a lane of the beginning of its first row, which may be damaged.
func scanLane(row *sql.Row) (l Lane, err error) {
	target, queue := text{column: column{name: "target", damage: &l.Damage}}, id{column: column{name: "queue_id", null: true, damage: &l.Damage}}
	wait := number{column: column{name: "due_at", damage: &l.Damage}, least: -latest, most: latest}
	if err := row.Scan(&l.ID, &l.First, &target, &queue, &wait); err != nil {
		return l, err
	}
	l.Target, l.QueueID, l.Wait = target.s, textID(queue.id), micros(wait.n)
	if l.Damage == "" && l.ID != LaneOf(l.Target, l.QueueID) {
		l.Damage = laneRule
	}
	return l, nil
}

const readDue = `
SELECT seq, size, due_at
FROM orbit_outbox
WHERE state = 1 AND shard = ? AND lane = ? AND due_at <= `

const readDueAfter = `
  AND due_at >= ? AND (due_at > ? OR (due_at = ? AND seq > ?))
ORDER BY due_at, seq
LIMIT ?`

// ReadDue returns at most limit rows of a lane that are due, in the order of their
// index, after the given place. It reads the index only.
//
// A transaction may commit late and leave a row behind a place that was read: whoever
// reads on by cursor has to begin again at the zero Cursor when it reaches the end and
// at the latest every second.
//
// limit is 1 to 1000; another one is refused with an [*orbit.InvalidArgumentError].
func (s *Store) ReadDue(ctx context.Context, shard int, lane int64, after Cursor, limit int) ([]Due, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	due, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (d Due, err error) {
		var size integer
		err = rows.Scan(&d.Seq, &size, &d.dueAt)
		d.Size = int(size)
		return d, err
	}, readDue+s.dialect.Clock+readDueAfter, int64(shard), lane, after.dueAt, after.dueAt, after.dueAt, after.seq, limit)
	if err != nil {
		return nil, failed(s.dialect, "read due rows", err)
	}
	return due, nil
}

// readAll scans every row of a query.
func readAll[T any](ctx context.Context, q rowsQuerier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// textID returns an id in its text form, empty for none.
func textID(id sqldb.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

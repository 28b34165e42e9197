package outbox

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxLanes is how many lanes one call of ReadFirst takes.
const MaxLanes = 100

// A Ready is a row that may be sent, with all that a send needs unless it is large.
type Ready struct {
	Due
	Lane int64
	// Row is nil if the request is larger than was asked for: [Store.Fetch] reads it. It
	// tells of earlier answers only whether their outcome is unknown (Last.Unknown). Of a
	// damaged row, [Row.Damage] tells.
	Row *Row
}

// The index alone tells which rows are due and how large they are; a large one is not read.
const (
	readReady = `
SELECT d.seq, d.size, d.due_at, d.lane, ` + selectSend + `%[1]s
FROM orbit_outbox d
LEFT JOIN orbit_outbox r ON r.seq = d.seq AND d.size <= ?
WHERE d.state = 1 AND d.shard = ? AND d.due_at <= %[1]s AND `

	readyAfter = `d.lane = ?
  AND d.due_at >= ? AND (d.due_at > ? OR (d.due_at = ? AND d.seq > ?))
ORDER BY d.due_at, d.seq
LIMIT ?`

	readyFirst = `d.lane IN %s
ORDER BY d.lane, d.due_at, d.seq
LIMIT ?`
)

// ReadReady is [Store.ReadDue] with the rows themselves, as far as their requests have at
// most maxBytes: with 0 it tells no more than ReadDue. The caller chooses limit and
// maxBytes so that their product fits its memory.
func (s *Store) ReadReady(ctx context.Context, shard int, lane int64, after Cursor, limit, maxBytes int) ([]Ready, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	return s.readReady(ctx, shard, readyAfter, maxBytes, lane, after.dueAt, after.dueAt, after.dueAt, after.seq, limit)
}

// ReadFirst returns at most limit rows of several lanes that are due, lane by lane from the
// beginning of each, as ReadReady does. It takes 1 to [MaxLanes] lanes, and as many rows as
// ReadDue.
func (s *Store) ReadFirst(ctx context.Context, shard int, lanes []int64, limit, maxBytes int) ([]Ready, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	if n := len(lanes); n < 1 || n > MaxLanes {
		return nil, &orbit.InvalidArgumentError{Field: "lanes", Rule: fmt.Sprintf("must be 1 to %d", MaxLanes)}
	}
	return s.readReady(ctx, shard, fmt.Sprintf(readyFirst, sqldb.Placeholders(len(lanes))), maxBytes, append(seqArgs(nil, lanes), limit)...)
}

func (s *Store) readReady(ctx context.Context, shard int, where string, maxBytes int, args ...any) ([]Ready, error) {
	query := fmt.Sprintf(readReady, s.dialect.Clock) + where
	ready, err := readAll(ctx, s.db.Read(), newRowReader().ready, query, append([]any{maxBytes, int64(shard)}, args...)...)
	if err != nil {
		return nil, failed(s.dialect, "read rows to be sent", err)
	}
	for i := range ready {
		if r := ready[i].Row; r != nil {
			r.Shard = shard
		}
	}
	return ready, nil
}

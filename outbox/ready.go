package outbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

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
	// tells of earlier answers only whether their outcome is unknown (Last.Unknown).
	Row *Row
}

// The index alone tells which rows are due and how large they are; a large one is not read.
const (
	readReady = `
SELECT d.seq, d.size, d.due_at, d.lane, r.operation, r.operation_task_id, r.target, r.idempotency_key, r.queue_id, r.handler,
  r.request, r.request_sha256, r.content_algorithm, r.content_digest, r.traceparent, r.created_at, r.not_before, r.not_after,
  r.window_from, r.attempts, r.outcome_unknown, r.late_allowed, %[1]s
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
	ready, err := readAll(ctx, s.db.Read(), scanReady, query, append([]any{maxBytes, int64(shard)}, args...)...)
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

// A rawReady takes the columns of readReady; those of a row that was not read are NULL.
type rawReady struct {
	operation, created, notBefore, notAfter, window, attempts, unknown, late, read number
	target, key, handler, algorithm, trace                                         text
	subject, sum, digest                                                           sql.RawBytes
	queue                                                                          sqldb.ID
	request                                                                        []byte
}

func scanReady(rows *sql.Rows) (d Ready, err error) {
	var w rawReady
	var size, due number
	err = rows.Scan(&d.Seq, &size, &due, &d.Lane, &w.operation, &w.subject, &w.target, &w.key, &w.queue, &w.handler,
		&w.request, &w.sum, &w.algorithm, &w.digest, &w.trace, &w.created, &w.notBefore, &w.notAfter,
		&w.window, &w.attempts, &w.unknown, &w.late, &w.read)
	if err != nil {
		return d, err
	}
	d.Size, d.dueAt = int(size), int64(due)
	if w.sum == nil {
		return d, nil
	}
	if len(w.sum) != sha256.Size || len(w.digest) != sha256.Size || len(w.subject) != 0 && len(w.subject) != len(sqldb.ID{}) {
		return d, errors.New("a digest or id has the wrong length")
	}
	d.Row = w.row(&d)
	return d, nil
}

func (w *rawReady) row(d *Ready) *Row {
	r := &Row{
		Seq: d.Seq, Operation: Operation(w.operation), Lane: d.Lane, Size: d.Size,
		Target: string(w.target), Key: string(w.key), QueueID: textID(w.queue), Handler: string(w.handler),
		Request: w.request, RequestSHA256: [32]byte(w.sum), Algorithm: string(w.algorithm), Digest: orbit.Digest(w.digest),
		Traceparent: string(w.trace), CreatedAt: sqldb.Time(int64(w.created)),
		NotBefore: zeroTime(int64(w.notBefore)), NotAfter: zeroTime(int64(w.notAfter)),
		State: Pending, DueAt: d.DueAt(), WindowFrom: sqldb.Time(int64(w.window)), Attempts: int(w.attempts),
		Last: Answer{Unknown: w.unknown != 0}, LateAllowed: w.late != 0, ReadAt: sqldb.Time(int64(w.read)),
	}
	if len(w.subject) > 0 {
		r.CancelTaskID = sqldb.ID(w.subject).String()
	}
	return r
}

// text and number are columns in whatever form the driver has them, without the detours of
// package sql; NULL is their zero.
type (
	text   string
	number int64
)

// Scan implements [sql.Scanner].
func (t *text) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = ""
	case []byte:
		*t = text(v)
	case string:
		*t = text(v)
	default:
		return fmt.Errorf("cannot read a text from %T", src)
	}
	return nil
}

// Scan implements [sql.Scanner].
func (n *number) Scan(src any) (err error) {
	switch v := src.(type) {
	case nil:
		*n = 0
	case int64:
		*n = number(v)
	case []byte:
		var i int64
		i, err = strconv.ParseInt(string(v), 10, 64)
		*n = number(i)
	default:
		err = fmt.Errorf("cannot read a number from %T", src)
	}
	return err
}

package outbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxRows is how many rows one call of Fetch and of the settling methods takes.
const MaxRows = 1000

const selectRow = `
SELECT seq, operation, operation_task_id, shard, lane, size, target, idempotency_key, queue_id, handler,
  request, request_sha256, content_algorithm, content_digest, traceparent, created_at, not_before, not_after,
  state, due_at, window_from, attempts, outcome, outcome_unknown,
  answer_status, answer_code, answer_message, answer_digest, answer_request_id,
  task_id, deduplicated, accepted_at, settled_at, late_allowed, `

// Fetch returns those of the rows that are still Pending, in ascending order of seq.
// The caller chooses rows whose sizes fit its memory. At most 1000 rows.
func (s *Store) Fetch(ctx context.Context, seqs []int64) ([]Row, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	if err := checkCount(len(seqs)); err != nil {
		return nil, err
	}
	rows, err := readAll(ctx, s.db.Read(), scanRows, s.fetchQuery(len(seqs)), seqArgs(nil, seqs)...)
	if err != nil {
		return nil, failed(s.dialect, "fetch rows", err)
	}
	return rows, nil
}

func (s *Store) fetchQuery(n int) string {
	return selectRow + s.dialect.Clock + `
FROM orbit_outbox` + s.byPrimary + `
WHERE seq IN ` + sqldb.Placeholders(n) + ` AND state = 1
ORDER BY seq`
}

// Get returns one row in whatever state it is, or ErrNotFound.
func (s *Store) Get(ctx context.Context, seq int64) (Row, error) {
	query := selectRow + s.dialect.Clock + `
FROM orbit_outbox
WHERE seq = ?`
	rows, err := readAll(ctx, s.db.Read(), scanRows, query, seq)
	if err != nil {
		return Row{}, failed(s.dialect, "read row", err)
	}
	if len(rows) == 0 {
		return Row{}, fmt.Errorf("%w: %d", ErrNotFound, seq)
	}
	return rows[0], nil
}

func checkCount(n int) error {
	if n > MaxRows {
		return fmt.Errorf("outbox: %d rows at once, at most %d", n, MaxRows)
	}
	return nil
}

// checkLimit refuses what an engine would not take, or a page that is too long.
func checkLimit(n int) error {
	if n < 1 || n > MaxRows {
		return &orbit.InvalidArgumentError{Field: "limit", Rule: fmt.Sprintf("must be 1 to %d", MaxRows)}
	}
	return nil
}

func seqArgs(args []any, seqs []int64) []any {
	for _, seq := range seqs {
		args = append(args, seq)
	}
	return args
}

// rawRow takes the columns whose type is not that of their field.
type rawRow struct {
	target, key, handler, sum, algorithm, digest, trace []byte
	code, message, answered, subject                    []byte
	queue, requestID, task                              sqldb.ID
	created, window, read, due, accepted, settled       int64
	notBefore, notAfter                                 sql.NullInt64
}

func scanRows(rows *sql.Rows) (Row, error) {
	var r Row
	var w rawRow
	if err := rows.Scan(w.columns(&r)...); err != nil {
		return Row{}, err
	}
	if !w.whole() {
		return Row{}, errors.New("a digest or id has the wrong length")
	}
	w.into(&r)
	return r, nil
}

// columns returns where the columns of selectRow go.
func (w *rawRow) columns(r *Row) []any {
	return []any{
		&r.Seq, &r.Operation, &w.subject, &r.Shard, &r.Lane, &r.Size, &w.target, &w.key, &w.queue, &w.handler,
		&r.Request, &w.sum, &w.algorithm, &w.digest, &w.trace, &w.created, &w.notBefore, &w.notAfter,
		&r.State, &w.due, &w.window, &r.Attempts, &r.Last.Outcome, &r.Last.Unknown,
		&r.Last.Status, &w.code, &w.message, &w.answered, &w.requestID,
		&w.task, &r.Deduplicated, &w.accepted, &w.settled, &r.LateAllowed, &w.read,
	}
}

// whole reports whether digests and ids have their length.
func (w *rawRow) whole() bool {
	return len(w.sum) == sha256.Size && len(w.digest) == sha256.Size && (len(w.subject) == 0 || len(w.subject) == len(sqldb.ID{}))
}

func (w *rawRow) into(r *Row) {
	r.Target, r.Key, r.Handler = string(w.target), string(w.key), string(w.handler)
	r.QueueID, r.TaskID = textID(w.queue), textID(w.task)
	if len(w.subject) > 0 {
		r.CancelTaskID = sqldb.ID(w.subject).String()
	}
	r.RequestSHA256, r.Digest = [32]byte(w.sum), orbit.Digest(w.digest)
	r.Algorithm, r.Traceparent = string(w.algorithm), string(w.trace)
	r.Last.Code, r.Last.Message = string(w.code), string(w.message)
	r.Last.Digest, r.Last.RequestID = string(w.answered), textID(w.requestID)
	r.CreatedAt, r.WindowFrom, r.ReadAt = sqldb.Time(w.created), sqldb.Time(w.window), sqldb.Time(w.read)
	r.NotBefore, r.NotAfter = zeroTime(w.notBefore.Int64), zeroTime(w.notAfter.Int64)
	r.DueAt, r.AcceptedAt, r.SettledAt = zeroTime(w.due), zeroTime(w.accepted), zeroTime(w.settled)
}

func zeroTime(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return sqldb.Time(n)
}

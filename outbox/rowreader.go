package outbox

import (
	"database/sql"
	"math"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// The columns of a row, with the clock after those that a send needs. A row that was not
// read has NULL for its state.
const (
	selectSend = `r.state, r.identity, r.operation, r.operation_task_id, r.target, r.idempotency_key, r.queue_id, r.handler,
  r.request, r.request_sha256, r.content_algorithm, r.content_digest, r.traceparent, r.created_at, r.not_before, r.not_after,
  r.window_from, r.attempts, r.outcome_unknown, r.late_allowed, `

	selectRest = `,
  r.shard, r.outcome, r.answer_status, r.answer_code, r.answer_message, r.answer_digest, r.answer_request_id,
  r.task_id, r.deduplicated, r.accepted_at, r.settled_at`

	selectRow = `
SELECT r.seq, r.size, r.due_at, r.lane, ` + selectSend
)

// A rowReader reads rows one after the other, and never fails on what one of them has: it
// tells of the damage. It may be used by one query only.
type rowReader struct {
	damage string // what a send rests on; not to be sent
	flaw   string // of the rest

	seq, size, due, lane                                        number
	state, operation, created, notBefore, notAfter, window      number
	attempts, unknown, late, read                               number
	identity, sum, content                                      digest
	subject, queue                                              id
	target, key, handler, algorithm, trace                      text
	request                                                     blob
	shard, outcome, status, deduplicated, acceptedAt, settledAt number
	code, message, answered                                     text
	requestID, task                                             id

	send, all []any

	// sound is the lane that was last found to be that of its target and queue: most rows
	// are in the same one as the row before.
	sound struct {
		target, queue string
		lane          int64
	}
}

func newRowReader() *rowReader {
	r := &rowReader{}
	r.send = r.sendColumns()
	r.all = append(r.send[:len(r.send):len(r.send)], r.restColumns()...)
	return r
}

// sendColumns returns where the columns go that a send needs.
func (r *rowReader) sendColumns() []any {
	frozen := func(name string) column { return column{name: name, damage: &r.damage} }
	r.seq, r.lane = anyNumber("seq", &r.flaw), anyNumber("lane", &r.damage)
	r.size, r.due = countColumn("size", orbit.MaxBodyBytes, &r.damage), timeColumn("due_at", &r.flaw)
	r.state = number{column: column{name: "state", null: true, damage: &r.flaw}, least: math.MinInt8, most: math.MaxInt8}
	r.identity.column, r.sum.column, r.content.column = frozen("identity"), frozen("request_sha256"), frozen("content_digest")
	r.operation = countColumn("operation", math.MaxInt8, &r.damage)
	r.subject = id{column: frozen("operation_task_id"), empty: true}
	r.target.column, r.key.column, r.handler.column = frozen("target"), frozen("idempotency_key"), frozen("handler")
	r.queue.column = frozen("queue_id")
	r.request.column, r.algorithm.column, r.trace.column = frozen("request"), frozen("content_algorithm"), frozen("traceparent")
	r.created, r.window = timeColumn("created_at", &r.damage), timeColumn("window_from", &r.damage)
	r.notBefore, r.notAfter = timeColumn("not_before", &r.damage), timeColumn("not_after", &r.damage)
	r.queue.null, r.notBefore.null, r.notAfter.null = true, true, true
	r.attempts, r.late = countColumn("attempts", math.MaxInt32, &r.damage), countColumn("late_allowed", 1, &r.damage)
	r.unknown = countColumn("outcome_unknown", 1, &r.damage)
	r.unknown.instead = 1 // nobody can say any more that no send was accepted
	r.read = anyNumber("clock", &r.damage)
	return []any{
		&r.seq, &r.size, &r.due, &r.lane, &r.state, &r.identity, &r.operation, &r.subject, &r.target, &r.key, &r.queue, &r.handler,
		&r.request, &r.sum, &r.algorithm, &r.content, &r.trace, &r.created, &r.notBefore, &r.notAfter,
		&r.window, &r.attempts, &r.unknown, &r.late, &r.read,
	}
}

// restColumns returns where the others go.
func (r *rowReader) restColumns() []any {
	told := func(name string) column { return column{name: name, damage: &r.flaw} }
	r.shard, r.outcome = countColumn("shard", MaxShards-1, &r.flaw), countColumn("outcome", math.MaxInt8, &r.flaw)
	r.status, r.deduplicated = countColumn("answer_status", math.MaxUint16, &r.flaw), countColumn("deduplicated", 1, &r.flaw)
	r.code.column, r.message.column, r.answered.column = told("answer_code"), told("answer_message"), told("answer_digest")
	r.requestID.column, r.task.column = told("answer_request_id"), told("task_id")
	r.acceptedAt, r.settledAt = timeColumn("accepted_at", &r.flaw), timeColumn("settled_at", &r.flaw)
	return []any{
		&r.shard, &r.outcome, &r.status, &r.code, &r.message, &r.answered, &r.requestID,
		&r.task, &r.deduplicated, &r.acceptedAt, &r.settledAt,
	}
}

// scan reads a row into columns, which are send or all.
func (r *rowReader) scan(rows *sql.Rows, columns []any) error {
	r.damage, r.flaw = "", ""
	return rows.Scan(columns...)
}

// ready reads a row of readReady.
func (r *rowReader) ready(rows *sql.Rows) (d Ready, err error) {
	if err := r.scan(rows, r.send); err != nil {
		return d, err
	}
	d.Due, d.Lane = Due{Seq: r.seq.n, Size: int(r.size.n), dueAt: r.due.n}, r.lane.n
	if r.state.n != 0 {
		d.Row = &Row{}
		r.sendable(d.Row)
	}
	return d, nil
}

// whole reads a row with all that is known of it.
func (r *rowReader) whole(rows *sql.Rows) (w Row, err error) {
	if err := r.scan(rows, r.all); err != nil {
		return w, err
	}
	r.sendable(&w)
	r.rest(&w)
	return w, nil
}

// sendable fills in what a send needs.
func (r *rowReader) sendable(w *Row) {
	w.Seq, w.Lane, w.Size, w.State, w.DueAt = r.seq.n, r.lane.n, int(r.size.n), State(r.state.n), zeroTime(r.due.n)
	w.Operation, w.Target, w.Key, w.QueueID, w.Handler = Operation(r.operation.n), r.target.s, r.key.s, textID(r.queue.id), r.handler.s
	w.CancelTaskID = textID(r.subject.id)
	w.Request, w.RequestSHA256, w.Algorithm, w.Digest = r.request.b, r.sum.sum, r.algorithm.s, orbit.Digest(r.content.sum)
	w.Traceparent, w.CreatedAt, w.WindowFrom, w.ReadAt = r.trace.s, sqldb.Time(r.created.n), sqldb.Time(r.window.n), sqldb.Time(r.read.n)
	w.NotBefore, w.NotAfter = zeroTime(r.notBefore.n), zeroTime(r.notAfter.n)
	w.Attempts, w.LateAllowed = int(r.attempts.n), r.late.n == 1
	w.Last.Unknown = r.unknown.n == 1
	w.Damage = r.damage
	switch {
	case w.Damage != "":
	case !r.identityFits():
		w.Damage = identityRule
	case !r.laneFits(w):
		w.Damage = laneRule
	}
}

const (
	identityRule = "identity is not that of target, operation, task and key"
	laneRule     = "lane is not that of target and queue"
)

func (r *rowReader) identityFits() bool {
	var task []byte
	if !r.subject.id.IsZero() {
		task = r.subject.id[:]
	}
	return r.identity.sum == identityOf(r.target.s, Operation(r.operation.n), task, r.key.s)
}

func (r *rowReader) laneFits(w *Row) bool {
	if s := &r.sound; s.lane == w.Lane && s.target == w.Target && s.queue == w.QueueID && s.target != "" {
		return true
	}
	if w.Lane != LaneOf(w.Target, w.QueueID) {
		return false
	}
	r.sound.target, r.sound.queue, r.sound.lane = w.Target, w.QueueID, w.Lane
	return true
}

// rest fills in what is known of the delivery.
func (r *rowReader) rest(w *Row) {
	w.Shard, w.TaskID, w.Deduplicated = int(r.shard.n), textID(r.task.id), r.deduplicated.n == 1
	w.AcceptedAt, w.SettledAt = zeroTime(r.acceptedAt.n), zeroTime(r.settledAt.n)
	w.Last.Outcome, w.Last.Status, w.Last.RequestID = Outcome(r.outcome.n), int(r.status.n), textID(r.requestID.id)
	w.Last.Code, w.Last.Message, w.Last.Digest = r.code.s, r.message.s, r.answered.s
}

func zeroTime(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return sqldb.Time(n)
}

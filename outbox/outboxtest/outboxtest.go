// Package outboxtest is for tests of those who use package outbox. [RequireEnqueued],
// [RequireCancelEnqueued] and their like look into the outbox of a database or into a [Fake], an outbox in
// memory. [TestOutbox] holds the promises of package outbox as a suite, so that whoever runs
// an outbox can hold it to their own database: their engine and version, their DSN flags,
// their proxy, their transaction wrapper.
package outboxtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// An Outbox is what the suite asks of [*outbox.Outbox].
type Outbox interface {
	Enqueue(context.Context, outbox.Tx, outbox.Message) (outbox.Receipt, error)
	EnqueueBatch(context.Context, outbox.Tx, []outbox.Message) ([]outbox.Receipt, error)
}

// A Store is what the suite asks of [*outbox.Store].
type Store interface {
	Shards(context.Context) ([]int, error)
	Lanes(ctx context.Context, shard int) ([]outbox.Lane, error)
	ReadDue(ctx context.Context, shard int, lane int64, after outbox.Cursor, limit int) ([]outbox.Due, error)
	ReadReady(ctx context.Context, shard int, lane int64, after outbox.Cursor, limit, maxBytes int) ([]outbox.Ready, error)
	ReadFirst(ctx context.Context, shard int, lanes []int64, limit, maxBytes int) ([]outbox.Ready, error)
	Fetch(ctx context.Context, seqs []int64) ([]outbox.Row, error)
	Get(ctx context.Context, seq int64) (outbox.Row, error)

	Lead(ctx context.Context, shard int, leader string, length time.Duration) (outbox.Lease, error)
	Renew(context.Context, outbox.Lease, time.Duration) (outbox.Lease, error)
	Release(context.Context, outbox.Lease) error

	Deliver(context.Context, outbox.Lease, []outbox.Delivery) (int, error)
	Reject(context.Context, outbox.Lease, []int64, outbox.Answer) (int, error)
	Block(context.Context, outbox.Lease, []int64, outbox.Answer) (int, error)
	Postpone(context.Context, outbox.Lease, []int64, time.Duration, outbox.Answer) (int, error)
	Doubt(context.Context, outbox.Lease, []int64, outbox.Answer) (int, error)

	Requeue(ctx context.Context, seq int64, act outbox.Act, risks outbox.Risk) error
	Discard(ctx context.Context, seq int64, act outbox.Act) error
	RequeueRows(ctx context.Context, seqs []int64, act outbox.Act, risks outbox.Risk) error
	DiscardRows(ctx context.Context, seqs []int64, act outbox.Act) error
	Depth(context.Context) (outbox.Status, error)
	Hold(ctx context.Context, target, queueID string, act outbox.Act) error
	Unhold(ctx context.Context, target, queueID string, act outbox.Act) error
	Holds(context.Context) ([]outbox.Hold, error)
	Journal(ctx context.Context, seq, after int64, limit int) ([]outbox.Entry, error)
	Attempts(ctx context.Context, seq int64) ([]outbox.Attempt, error)
	Show(ctx context.Context, seq int64) (outbox.History, error)
	List(ctx context.Context, f outbox.Filter, after int64, limit int) ([]outbox.Row, error)
	Verify(ctx context.Context, after int64, limit int) (outbox.Verified, error)
	Purge(ctx context.Context, age time.Duration, after int64, limit int) (outbox.Purged, error)
	PurgeAll(ctx context.Context, age time.Duration, act outbox.Act) (int64, error)
	ReportTarget(context.Context, outbox.Lease, outbox.TargetReport) error
	Status(context.Context) (outbox.Status, error)
	Doctor(context.Context) ([]outbox.Check, error)
}

// A Database is a fresh, migrated business database and the outbox in it, with one shard.
type Database struct {
	Outbox Outbox
	Store  Store // of one relay
	Other  Store // of another relay, through connections of its own
	// Business is the pool on which business transactions run, and TxOptions are
	// what they begin with.
	Business  *sql.DB
	TxOptions *sql.TxOptions
	// OneWriter says that the engine runs one writing transaction at a time, as
	// SQLite does: cases that need two open ones are left out.
	OneWriter bool
}

// TestOutbox runs the suite, its cases side by side. Open returns a database of its own
// to each case.
func TestOutbox(t *testing.T, open func(testing.TB) Database) {
	for _, group := range [][]testCase{enqueueCases, batchCases, dueCases, leaseCases, settleCases, journalCases, operatorCases, lookCases, purgeCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				d := open(t)
				if c.twoWriters && d.OneWriter {
					t.Skip("needs two open writing transactions; this engine has one at a time")
				}
				_, err := d.Business.ExecContext(t.Context(), "CREATE TABLE outboxtest_order (id INTEGER NOT NULL PRIMARY KEY)")
				if err != nil {
					t.Fatalf("create a business table: %v", err)
				}
				c.run(&suite{T: t, Database: d, ctx: t.Context()})
			})
		}
	}
}

type testCase struct {
	name       string
	twoWriters bool
	run        func(*suite)
}

// A suite is one case under way.
type suite struct {
	*testing.T
	Database
	ctx context.Context
}

// Names and ids that no case cares about.
const (
	target     = "main"
	queue      = "0123456789abcdef0123456789abcdef"
	otherQueue = "00000000000000000000000000000002"
	taskID     = "11111111111111111111111111111111"
	requestID  = "22222222222222222222222222222222"
)

var operator = outbox.Act{Operator: "anna", Reason: "ticket 7"}

func message(key string) outbox.Message {
	return outbox.Message{
		Key:    key,
		Target: target,
		Request: orbit.SubmitTaskRequest{
			QueueID: queue, Handler: "stock.reserve", HandlerVersion: "1", PayloadVersion: "1",
			Payload: json.RawMessage(`{"n":1}`),
		},
	}
}

func withPayload(m outbox.Message, payload string) outbox.Message {
	m.Request.Payload = json.RawMessage(payload)
	return m
}

// begin opens a business transaction, which ends with the case at the latest.
func (s *suite) begin() *sql.Tx {
	s.Helper()
	tx, err := s.Business.BeginTx(s.ctx, s.TxOptions)
	if err != nil {
		s.Fatalf("begin: %v", err)
	}
	s.Cleanup(func() { tx.Rollback() })
	return tx
}

// beginInRace begins a transaction beside many others. An engine with one writer may
// have kept it waiting for too long; then it waits again.
func (s *suite) beginInRace() (tx *sql.Tx, err error) {
	for range 20 {
		tx, err = s.Business.BeginTx(s.ctx, s.TxOptions)
		if err == nil || !s.OneWriter {
			return tx, err
		}
	}
	return tx, err
}

func (s *suite) commit(tx *sql.Tx) {
	s.Helper()
	if err := tx.Commit(); err != nil {
		s.Fatalf("commit: %v", err)
	}
}

// enqueue runs a business transaction of its own.
func (s *suite) enqueue(m outbox.Message) outbox.Receipt {
	s.Helper()
	tx := s.begin()
	r := s.enqueueIn(tx, m)
	s.commit(tx)
	return r
}

func (s *suite) enqueueIn(tx outbox.Tx, m outbox.Message) outbox.Receipt {
	s.Helper()
	r, err := s.Outbox.Enqueue(s.ctx, tx, m)
	if err != nil {
		s.Fatalf("Enqueue of %s: %v", m.Key, err)
	}
	return r
}

// enqueueKeys enqueues one message a key, in one transaction.
func (s *suite) enqueueKeys(keys ...string) (seqs []int64) {
	s.Helper()
	tx := s.begin()
	for _, k := range keys {
		seqs = append(seqs, s.enqueueIn(tx, message(k)).Seq)
	}
	s.commit(tx)
	return seqs
}

func (s *suite) get(seq int64) outbox.Row {
	s.Helper()
	r, err := s.Store.Get(s.ctx, seq)
	if err != nil {
		s.Fatalf("Get row %d: %v", seq, err)
	}
	return r
}

// rows counts the rows of the outbox.
func (s *suite) rows() (n int64) {
	s.Helper()
	st, err := s.Store.Status(s.ctx)
	if err != nil {
		s.Fatalf("Status: %v", err)
	}
	for _, count := range st.Count {
		n += count
	}
	return n
}

// lead leads shard 0 for an hour.
func (s *suite) lead() outbox.Lease {
	s.Helper()
	l, err := s.Store.Lead(s.ctx, 0, "first", time.Hour)
	if err != nil {
		s.Fatalf("Lead: %v", err)
	}
	return l
}

// takeOver ends the lease as if its time had come, and leads from the other relay.
func (s *suite) takeOver() outbox.Lease {
	s.Helper()
	s.exec("UPDATE orbit_outbox_lease SET expires_at = 1 WHERE shard = 0")
	l, err := s.Other.Lead(s.ctx, 0, "second", time.Hour)
	if err != nil {
		s.Fatalf("Lead after the end of the lease: %v", err)
	}
	return l
}

// exec runs a statement of its own, past the outbox.
func (s *suite) exec(query string, args ...any) {
	s.Helper()
	if _, err := s.Business.ExecContext(s.ctx, query, args...); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

func delivery(seq int64) outbox.Delivery {
	return outbox.Delivery{
		Seq: seq, TaskID: taskID, Status: 201, RequestID: requestID,
		AcceptedAt: time.Date(2026, 9, 17, 1, 2, 3, 456789000, time.UTC),
	}
}

func deliveries(seqs []int64) (all []outbox.Delivery) {
	for _, seq := range seqs {
		all = append(all, delivery(seq))
	}
	return all
}

func refusal(o outbox.Outcome) outbox.Answer {
	return outbox.Answer{
		Outcome: o, Status: 400, Code: orbit.CodeInvalidArgument, Message: "payload: must not be null", RequestID: requestID,
	}
}

// want fails the case unless a settle changed n rows without an error.
func (s *suite) want(act string, n, got int, err error) {
	s.Helper()
	if err != nil || got != n {
		s.Fatalf("%s changed %d rows, %v; want %d", act, got, err, n)
	}
}

func (s *suite) wantState(seq int64, want outbox.State) outbox.Row {
	s.Helper()
	r := s.get(seq)
	if r.State != want {
		s.Fatalf("row %d is %v, want %v", seq, r.State, want)
	}
	return r
}

func (s *suite) wantError(act string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s = %v, want %v", act, err, want)
	}
}

// eventually calls f until it reports true.
func (s *suite) eventually(what string, f func() bool) {
	s.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			s.Fatalf("did not come about: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

package outbox_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

const someQueue = "0123456789abcdef0123456789abcdef"

// benchMessage has a payload of about 1 KiB.
func benchMessage(n int) outbox.Message {
	m := message(fmt.Sprintf("bench:%d", n))
	m.Request.Payload = json.RawMessage(fmt.Sprintf(`{"order":%d,"lines":[%s{"sku":"A-17","n":1}]}`, n, strings.Repeat(`{"sku":"A-17","n":12},`, 42)))
	return m
}

// BenchmarkEnqueue compares a row of ours with an INSERT written by hand of the same
// bytes into the same indexes, without validation and digests. Both are the one
// statement of a transaction, turn by turn.
func BenchmarkEnqueue(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(engine, func(b *testing.B) {
			db := dbtest.Open(b, engine, migrations.Outbox)
			o := newOutbox(b, db.Dialect(), outbox.Config{})
			var ours, floor time.Duration
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				m := benchMessage(n)
				ours += timeTx(b, db, func(tx *sql.Tx) error {
					_, err := o.Enqueue(b.Context(), tx, m)
					return err
				})
				floor += timeTx(b, db, func(tx *sql.Tx) error {
					return insertByHand(b.Context(), tx, db.Dialect(), n, m.Request.Payload)
				})
			}
			b.ReportMetric(float64(ours.Microseconds())/float64(n), "enqueue-µs")
			b.ReportMetric(float64(floor.Microseconds())/float64(n), "floor-µs")
			b.ReportMetric(float64(floor)/float64(ours), "ratio")
		})
	}
}

func timeTx(b *testing.B, db *dbtest.DB, f func(*sql.Tx) error) time.Duration {
	start := time.Now()
	tx, err := db.Write().BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := f(tx); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func insertByHand(ctx context.Context, tx *sql.Tx, d *outbox.Dialect, n int, payload []byte) error {
	identity := sha256.Sum256(fmt.Appendf(nil, "by hand %d", n))
	now := time.Now().UnixMicro()
	_, err := tx.ExecContext(ctx, `
INSERT INTO orbit_outbox
  (identity, operation, operation_task_id, shard, lane, size, target, idempotency_key,
   queue_id, handler, request, request_sha256, content_algorithm, content_digest, traceparent,
   created_at, state, due_at, window_from)
VALUES (?, 1, ?, 0, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?)`,
		identity[:], []byte{}, len(payload), []byte("main"), fmt.Appendf(nil, "bench:%d", n), identity[:16], []byte("h"), payload,
		identity[:], []byte("orbit-json-v1"), identity[:], []byte{}, now, now, now)
	return err
}

// discard is a transaction that does nothing: what is left is our own work.
type discard struct{}

func (discard) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return discard{}, nil
}
func (discard) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }
func (discard) LastInsertId() (int64, error)                             { return 1, nil }
func (discard) RowsAffected() (int64, error)                             { return 1, nil }

func BenchmarkEnqueueWithoutDatabase(b *testing.B) {
	o := newOutbox(b, outbox.MySQL, outbox.Config{})
	m := benchMessage(1)
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Request.Payload)))
	for b.Loop() {
		if _, err := o.Enqueue(b.Context(), discard{}, m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDeliver compares a settle of ours with an UPDATE of the same rows that keeps
// nothing of the answers.
func BenchmarkDeliver(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		for _, batch := range []int{100, 250, 1000} {
			b.Run(fmt.Sprintf("%s/%d", engine, batch), func(b *testing.B) { benchDeliver(b, engine, batch) })
		}
	}
}

func benchDeliver(b *testing.B, engine string, batch int) {
	db := dbtest.Open(b, engine, migrations.Outbox)
	s := openStore(b, db.Dialect(), db.Write(), db.Read())
	l, err := s.Lead(b.Context(), 0, "bench", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	var ours, floor time.Duration
	n := 0
	for b.Loop() {
		rows := enqueueMany(b, db, n*2*batch, 2*batch)
		n++
		start := time.Now()
		if k, err := s.Deliver(b.Context(), l, rows[:batch]); err != nil || k != batch {
			b.Fatal(k, err)
		}
		ours += time.Since(start)
		var args []any
		for _, r := range rows[batch:] {
			args = append(args, r.Seq)
		}
		start = time.Now()
		if _, err := db.Write().ExecContext(b.Context(), "UPDATE orbit_outbox SET state = 2, due_at = 0 WHERE seq IN "+sqldb.Placeholders(batch), args...); err != nil {
			b.Fatal(err)
		}
		floor += time.Since(start)
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(n*batch), "deliver-µs/row")
	b.ReportMetric(float64(floor.Microseconds())/float64(n*batch), "floor-µs/row")
	b.ReportMetric(float64(floor)/float64(ours), "ratio")
}

func enqueueMany(b *testing.B, db *dbtest.DB, from, n int) (rows []outbox.Delivery) {
	o := newOutbox(b, db.Dialect(), outbox.Config{})
	timeTx(b, db, func(tx *sql.Tx) error {
		for i := from; i < from+n; i++ {
			r, err := o.Enqueue(b.Context(), tx, benchMessage(i))
			if err != nil {
				return err
			}
			rows = append(rows, outbox.Delivery{
				Seq: r.Seq, TaskID: fmt.Sprintf("%032x", i+1), RequestID: fmt.Sprintf("%032x", 1+i/100), Status: 201,
				AcceptedAt: time.UnixMicro(1_790_000_000_000_000 + int64(i/100)),
			})
		}
		return nil
	})
	return rows
}

// BenchmarkReadReady reads 500 rows of 1 KiB: what a relay does before it sends them.
func BenchmarkReadReady(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(engine, func(b *testing.B) {
			db := dbtest.Open(b, engine, migrations.Outbox)
			s := openStore(b, db.Dialect(), db.Write(), db.Read())
			enqueueMany(b, db, 0, 500)
			m := benchMessage(0)
			lane := outbox.LaneOf(m.Target, m.Request.QueueID)
			b.ReportAllocs()
			for b.Loop() {
				ready, err := s.ReadReady(b.Context(), 0, lane, outbox.Cursor{}, 500, 4096)
				if err != nil || len(ready) != 500 || ready[499].Row == nil {
					b.Fatal(len(ready), err)
				}
			}
		})
	}
}

package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

const someQueue = "0123456789abcdef0123456789abcdef"

func benchMessage(n int, size int) outbox.Message {
	payload, _ := json.Marshal(map[string]any{"n": n, "fill": string(make([]byte, 0)) + fmt.Sprintf("%0*d", size, n)})
	return outbox.Message{
		Key: fmt.Sprintf("bench:%d", n), Target: "main",
		Request: orbit.SubmitTaskRequest{QueueID: someQueue, Handler: "h", HandlerVersion: "1", PayloadVersion: "1", Payload: payload},
	}
}

func BenchmarkDeliver(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		for _, batch := range []int{100, 250, 500, 1000} {
			b.Run(fmt.Sprintf("%s/%d", engine, batch), func(b *testing.B) { benchDeliver(b, engine, batch) })
		}
	}
}

func benchDeliver(b *testing.B, engine string, batch int) {
	ctx := context.Background()
	db := dbtest.Open(b, engine, migrations.Outbox)
	o, _ := outbox.New(db.Dialect(), outbox.Config{})
	s, _ := outbox.Open(db.Dialect(), db.Write(), db.Read())
	l, err := s.Lead(ctx, 0, "bench", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	var ds []outbox.Delivery
	n := 0
	for b.Loop() {
		b.StopTimer()
		ds = ds[:0]
		tx, _ := db.Write().BeginTx(ctx, nil)
		for range batch {
			n++
			r, err := o.Enqueue(ctx, tx, benchMessage(n, 900))
			if err != nil {
				b.Fatal(err)
			}
			ds = append(ds, outbox.Delivery{Seq: r.Seq, TaskID: fmt.Sprintf("%032x", n), Status: 201, RequestID: fmt.Sprintf("%032x", n/100), AcceptedAt: time.Now()})
		}
		tx.Commit()
		b.StartTimer()
		if k, err := s.Deliver(ctx, l, ds); err != nil || k != batch {
			b.Fatal(k, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/row")
}

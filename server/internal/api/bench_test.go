package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// BenchmarkSubmit submits single tasks of 1 KiB from 64 clients over HTTP.
func BenchmarkSubmit(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(engine, func(b *testing.B) {
			db := dbtest.Open(b, engine, migrations.Server)
			client, queue := startBench(b, db)
			request := orbit.SubmitTaskRequest{
				QueueID: queue, Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: fmt.Appendf(nil, `"%01022d"`, 0),
			}
			var next atomic.Int64
			b.SetParallelism(64 / 2)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := client.SubmitTask(b.Context(), fmt.Sprint("key-", next.Add(1)), request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkSubmitBatch submits batches of 100 tasks of 1 KiB from 4 clients, as a relay
// does. One operation is one task.
func BenchmarkSubmitBatch(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		b.Run(engine, func(b *testing.B) {
			db := dbtest.Open(b, engine, migrations.Server)
			client, queue := startBench(b, db)
			body, _, err := orbit.SubmitTaskRequest{
				QueueID: queue, Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: fmt.Appendf(nil, `"%01022d"`, 0),
			}.Freeze()
			if err != nil {
				b.Fatal(err)
			}
			var next atomic.Int64
			var sending sync.WaitGroup
			b.ResetTimer()
			for range 4 {
				sending.Go(func() {
					for {
						last := next.Add(100)
						if last-100 >= int64(b.N) {
							return
						}
						items := make([]orbit.FrozenItem, 100)
						for i := range items {
							items[i] = orbit.FrozenItem{Key: fmt.Sprint("key-", last-int64(i)), Body: body}
						}
						if answer, err := client.SubmitFrozenBatch(b.Context(), items); err != nil || answer.Items == nil {
							b.Error(err, answer.Err)
							return
						}
					}
				})
			}
			sending.Wait()
		})
	}
}

func startBench(b *testing.B, db *dbtest.DB) (*orbit.Client, string) {
	creds, err := admin.Bootstrap{Application: "app", Namespace: "ns", Environment: "bench", Queue: "q", Actor: "bench"}.Run(b.Context(), db.DB)
	if err != nil {
		b.Fatal(err)
	}
	committer := accept.New(db.DB, accept.Config{})
	web := httptest.NewServer(api.New(api.Config{
		DB: db.DB, Auth: auth.New(db.DB), Committer: committer, Worker: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { committer.Run(ctx) })
	b.Cleanup(func() { web.Close(); cancel(); running.Wait() })
	client, err := orbit.NewClient(web.URL, creds.Token, orbit.ClientConfig{MinimalBatchAnswers: true})
	if err != nil {
		b.Fatal(err)
	}
	return client, creds.QueueID
}

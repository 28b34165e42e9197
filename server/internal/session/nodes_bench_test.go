package session_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/session"
	"github.com/orbitkit/orbit/worker"
)

// BenchmarkTwoNodesShare shows how two nodes on one database share the tasks of one queue:
// the part in percent that the first node gave away, and how long tasks waited for a claim.
// docs/dispatch.md has its figures. One operation is one whole case: run it with
// -benchtime 1x.
func BenchmarkTwoNodesShare(b *testing.B) {
	for _, c := range []struct {
		name     string
		slots    [2]int        // of the workers of each node
		work     time.Duration // of a handler
		tasks    int
		interval time.Duration // between submits through the first node; 0 for a backlog
	}{
		{"backlog/20_and_20_slots", [2]int{20, 20}, 20 * time.Millisecond, 2000, 0},
		{"backlog/4_and_40_slots", [2]int{4, 40}, 20 * time.Millisecond, 2000, 0},
		{"backlog/100_and_100_slots/no_work", [2]int{100, 100}, 0, 4000, 0},
		{"light/20_and_20_slots", [2]int{20, 20}, 5 * time.Millisecond, 400, 10 * time.Millisecond},
		{"light/1_and_20_slots/first_is_too_small", [2]int{1, 20}, 50 * time.Millisecond, 400, 10 * time.Millisecond},
	} {
		for _, engine := range dbtest.Engines() {
			b.Run(c.name+"/"+engine, func(b *testing.B) {
				for range b.N {
					db := dbtest.Open(b, engine, migrations.Server)
					n := &pair{b: b, w: dispatchtest.New(b, db.DB)}
					n.queue = n.w.NewQueue("q")
					hubs := []*session.Hub{n.node(db.DB, "a", c.slots[0], c.work), n.node(db.Reopen(b).DB, "b", c.slots[1], c.work)}
					x := spec{Queue: n.queue}
					if c.interval == 0 {
						n.w.Flood(c.tasks, x)
						for _, hub := range hubs {
							hub.Wake([]int64{x.Lane().ID()})
						}
					} else {
						for range c.tasks {
							n.w.Submit(x)
							hubs[0].Wake([]int64{x.Lane().ID()})
							time.Sleep(c.interval)
						}
					}
					n.report(c.tasks)
				}
			})
		}
	}
}

// A pair is two nodes with workers.
type pair struct {
	b     *testing.B
	w     *dispatchtest.World
	queue sqldb.ID
}

// node starts a node and a worker of it.
func (p *pair) node(db *sqldb.DB, name string, slots int, work time.Duration) *session.Hub {
	p.b.Helper()
	hub, err := session.New(db, auth.New(db), session.Config{Node: name, DrainTimeout: time.Millisecond})
	if err != nil {
		p.b.Fatal(err)
	}
	srv := httptest.NewTLSServer(hub)
	id := sqldb.NewID()
	token, digest := auth.NewToken(id)
	permissions, err := auth.NewPermissions([]string{auth.WorkersConnect, auth.WorkersConsume})
	if err != nil {
		p.b.Fatal(err)
	}
	p.w.Exec("INSERT INTO credential (id, namespace_id, name, secret_digest, permissions, all_queues, created_at) VALUES (?, ?, ?, ?, ?, 1, 0)",
		id, p.w.Namespace, []byte(name), digest[:], permissions.Column())
	handle := func(context.Context, worker.Execution) (json.RawMessage, error) { time.Sleep(work); return nil, nil }
	w, err := worker.NewWorker(srv.URL, token, worker.Config{
		Queues: []string{p.queue.String()}, Capacity: slots, Log: slog.New(slog.DiscardHandler), OnError: func(error) {},
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: dispatchtest.Version}: handle},
		Network:  worker.Network{TLS: srv.Client().Transport.(*http.Transport).TLSClientConfig},
	})
	if err != nil {
		p.b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	working, quit := context.WithCancel(ctx)
	var running, workers sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	workers.Go(func() { w.Run(working) })
	p.b.Cleanup(func() { quit(); workers.Wait(); stop(); running.Wait(); srv.Close() })
	for p.w.Int("SELECT COUNT(*) FROM worker_session WHERE node_id = ?", []byte(name)) == 0 {
		time.Sleep(time.Millisecond)
	}
	return hub
}

// report waits until all is done and tells how it went.
func (p *pair) report(tasks int) {
	p.b.Helper()
	for p.w.Int("SELECT COUNT(*) FROM task WHERE state = 5") < int64(tasks) {
		time.Sleep(5 * time.Millisecond)
	}
	first := p.w.Int("SELECT COUNT(*) FROM attempt WHERE node_id = ?", []byte("a"))
	rows, err := p.w.DB.Read().Query("SELECT a.claimed_at - t.available_at FROM attempt a JOIN task t ON t.id = a.task_id")
	if err != nil {
		p.b.Fatal(err)
	}
	defer rows.Close()
	var waits []int64
	for rows.Next() {
		var wait int64
		if err := rows.Scan(&wait); err != nil {
			p.b.Fatal(err)
		}
		waits = append(waits, wait)
	}
	slices.Sort(waits)
	p.b.ReportMetric(100*float64(first)/float64(len(waits)), "%first")
	p.b.ReportMetric(float64(waits[len(waits)/2])/1000, "ms-wait-p50")
	p.b.ReportMetric(float64(waits[len(waits)*99/100])/1000, "ms-wait-p99")
}

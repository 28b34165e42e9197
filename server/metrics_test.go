package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// Under load, with scrapes all the while, what /metrics counts is what the database holds.
func TestMetricsAgreeWithTheDatabase(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := listener.Addr().String()
		n := start(t, db.DB, server.Config{NodeID: "counted", Metrics: listener})
		stopWorker := runMixedWorker(t, n.url, creds.Token, creds.QueueID)
		defer stopWorker()
		scraping, stopScraping := context.WithCancel(t.Context())
		var scraper sync.WaitGroup
		scraper.Go(func() { scrapeAll(t, scraping, addr) })
		const senders, each = 3, 20
		var sending sync.WaitGroup
		for s := range senders {
			api := client(t, n, creds)
			sending.Go(func() {
				for i := range each {
					if _, err := api.SubmitTask(t.Context(), fmt.Sprint("key-", s, "-", i), request(creds)); err != nil {
						t.Errorf("submit: %v", err)
					}
				}
			})
		}
		sending.Wait()
		number := func(query string) (count float64) {
			if err := db.Write().QueryRowContext(t.Context(), query).Scan(&count); err != nil {
				t.Fatal(err)
			}
			return count
		}
		for deadline := time.Now().Add(time.Minute); number("SELECT COUNT(*) FROM task WHERE state IN (1, 2, 3)") > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("tasks are left")
			}
		}
		stopScraping()
		scraper.Wait()
		wants := map[string]float64{
			"orbit_accept_tasks_total":                                senders * each,
			"orbit_accept_commit_tasks_sum":                           number("SELECT COUNT(*) FROM task"),
			"orbit_attempts_claimed_total":                            number("SELECT COUNT(*) FROM attempt"),
			"orbit_claim_tasks_sum":                                   number("SELECT COUNT(*) FROM attempt"),
			"orbit_attempts_started_total":                            number("SELECT COUNT(*) FROM attempt WHERE started_at IS NOT NULL"),
			"orbit_worker_sessions":                                   1,
			"orbit_worker_connections":                                1,
			"orbit_worker_held_attempts":                              0,
			"orbit_delayed_tasks":                                     0,
			`orbit_worker_connections_closed_total{cause="overflow"}`: 0,
			`orbit_worker_batch_messages_sum{message="task.finish"}`:  number("SELECT COUNT(*) FROM attempt WHERE receipt <> ''"),
		}
		for outcome, code := range map[string]int{"succeeded": 1, "failed": 2, "unknown": 3} {
			wants[fmt.Sprintf("orbit_attempts_ended_total{cause=%q,outcome=%q}", "worker", outcome)] = number(fmt.Sprintf("SELECT COUNT(*) FROM attempt WHERE outcome = %d", code))
		}
		got := scrape(t, addr)
		for range 200 { // what a commit did is counted a moment later
			if len(differing(got, wants)) == 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
			got = scrape(t, addr)
		}
		for _, difference := range differing(got, wants) {
			t.Error(difference)
		}
		if wants[`orbit_attempts_ended_total{cause="worker",outcome="unknown"}`] == 0 {
			t.Error("the load had no unknown end")
		}
		if got["go_sql_max_open_connections{db_name=\"write\"}"] == 0 && got["go_sql_open_connections{db_name=\"write\"}"] == 0 {
			t.Error("the pools are not shown")
		}
	}, migrations.Server)
}

// runMixedWorker runs a worker whose handler ends one in five attempts otherwise than well.
func runMixedWorker(t *testing.T, url, token, queue string) (stop func()) {
	var runs atomic.Int64
	w, err := worker.NewWorker(url, token, worker.Config{
		Queues: []string{queue}, Capacity: 8, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: "v1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
			switch runs.Add(1) % 10 {
			case 3:
				return nil, errors.New("nobody knows")
			case 7:
				return nil, worker.Failed(errors.New("no"))
			}
			return nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { w.Run(ctx) })
	return func() { cancel(); working.Wait() }
}

// scrapeAll scrapes until ctx ends: no counter may fall.
func scrapeAll(t *testing.T, ctx context.Context, addr string) {
	last := map[string]float64{}
	for ctx.Err() == nil {
		now := scrape(t, addr)
		for _, name := range []string{"orbit_accept_tasks_total", "orbit_attempts_claimed_total", "orbit_attempts_started_total", "orbit_claim_duration_seconds_count"} {
			if now[name] < last[name] {
				t.Errorf("%s fell from %v to %v", name, last[name], now[name])
			}
		}
		last = now
		time.Sleep(50 * time.Millisecond)
	}
}

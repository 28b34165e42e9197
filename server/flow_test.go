package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/worker"
)

// counter counts runs of a handler, and sees two at one time on one resource key.
type counter struct {
	mu     sync.Mutex
	runs   map[string]int
	active map[string]int
	faults []string
}

func (c *counter) handle(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	key := e.Task.ConcurrencyKey
	c.enter(e.Task.ID, key, 1)
	time.Sleep(time.Millisecond)
	c.enter("", key, -1)
	return json.RawMessage(`{"done":true}`), nil
}

func (c *counter) enter(task, key string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if task != "" {
		c.runs[task]++
	}
	if c.active[key] += by; key != "" && c.active[key] > 1 {
		c.faults = append(c.faults, "two handlers run at one time on "+key)
	}
}

func (c *counter) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

// Cost law 2 from end to end: tasks that are accepted on two nodes while both claim and
// finish, keyed, un-keyed and delayed, singly and in batches, all run once, one at a time
// per key, and none is left behind.
func TestTasksFlowThroughTwoNodes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		c := &counter{runs: map[string]int{}, active: map[string]int{}}
		nodes := []*node{start(t, db.DB, server.Config{}), start(t, db.Reopen(t).DB, server.Config{})}
		ctx, stop := context.WithCancel(context.Background())
		var working sync.WaitGroup
		defer func() { stop(); working.Wait() }()
		for _, n := range nodes {
			w, err := worker.NewWorker(n.url, creds.Token, worker.Config{
				Queues: []string{creds.QueueID}, Capacity: 8, Log: slog.New(slog.DiscardHandler),
				Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: "v1"}: c.handle},
			})
			if err != nil {
				t.Fatal(err)
			}
			working.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Errorf("worker: %v", err)
				}
			})
		}
		const senders, each = 6, 5 * 5
		var sending sync.WaitGroup
		for s := range senders {
			api := client(t, nodes[s%2], creds)
			sending.Go(func() { submitMixed(t, api, creds, s, each) })
		}
		sending.Wait()
		succeeded := func() (n int) {
			if err := db.Write().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM task WHERE state = 5").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for deadline := time.Now().Add(time.Minute); succeeded() < senders*each; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d tasks succeeded", succeeded(), senders*each)
			}
		}
		if len(c.faults) > 0 || c.done() != senders*each {
			t.Errorf("%d tasks ran, want %d; %v", c.done(), senders*each, c.faults)
		}
		for task, runs := range c.runs {
			if runs != 1 {
				t.Errorf("task %s ran %d times", task, runs)
			}
		}
		wrong, err := dispatch.Verify(t.Context(), db.DB)
		if err != nil || len(wrong) > 0 {
			t.Errorf("verify: %v, %v", wrong, err)
		}
	}, migrations.Server)
}

// submitMixed submits n tasks, every fifth by a batch of five.
func submitMixed(t *testing.T, api *orbit.Client, creds orbit.Credentials, sender, n int) {
	for i := 0; i < n; i += 5 {
		var items []orbit.BatchItem
		for k := range 5 {
			r := request(creds)
			if k%2 == 0 {
				r.ConcurrencyKey = fmt.Sprint("object/", (sender+i+k)%3)
			}
			if k == 3 {
				r.AvailableAt = inFiveSeconds()
			}
			r.Priority = k
			items = append(items, orbit.BatchItem{Key: fmt.Sprint("key-", sender, "-", i+k), Request: r})
		}
		if i%10 == 0 {
			submitBatch(t, api, items)
			continue
		}
		for _, item := range items {
			if item.Request.AvailableAt != nil { // the others may have taken long
				item.Request.AvailableAt = inFiveSeconds()
			}
			if _, err := api.SubmitTask(t.Context(), item.Key, item.Request); err != nil {
				t.Errorf("submit %s: %v", item.Key, err)
			}
		}
	}
}

func inFiveSeconds() *time.Time {
	at := time.Now().Add(5 * time.Second).UTC().Truncate(time.Microsecond)
	return &at
}

func submitBatch(t *testing.T, api *orbit.Client, items []orbit.BatchItem) {
	results, err := api.SubmitTasks(t.Context(), items)
	if err != nil {
		t.Errorf("submit batch: %v", err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("submit %s: %v", items[i].Key, r.Err)
		}
	}
}

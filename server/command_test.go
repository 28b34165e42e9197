package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// serveTasks runs a worker on a node until the test ends.
func serveTasks(t *testing.T, n *node, creds orbit.Credentials, handle worker.HandlerFunc) {
	t.Helper()
	w, err := worker.NewWorker(n.url, creds.Token, worker.Config{
		Queues: []string{creds.QueueID}, Capacity: 2, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: "v1"}: handle},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() { stop(); working.Wait() })
}

// waitUntil waits for a task to get where it has to go.
func waitUntil(t *testing.T, api *orbit.Client, id, state string) orbit.Task {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got, err := api.GetTask(t.Context(), id)
		switch {
		case err != nil:
			t.Fatal(err)
		case got.State == state:
			return got
		case time.Now().After(deadline):
			t.Fatalf("task is %s, want %s", got.State, state)
		}
	}
}

// CAN-023, REF-CAN-001, REF-CAN-002, STATE-013: a cancel of a running task ends its handler,
// at once on the worker's node and with the next renewal from another one.
func TestCancelReachesTheHandler(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		here := start(t, db.DB, server.Config{Lease: 1500 * time.Millisecond, ShortLease: true})
		elsewhere := start(t, db.Reopen(t).DB, server.Config{})
		causes := make(chan error, 2)
		serveTasks(t, here, creds, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, worker.Cancelled(context.Cause(ctx))
		})
		for i, n := range []*node{here, elsewhere} {
			api := client(t, n, creds)
			key := string(rune('a' + i))
			accepted, err := api.SubmitTask(t.Context(), key, request(creds))
			if err != nil {
				t.Fatal(err)
			}
			running := waitUntil(t, api, accepted.Task.ID, orbit.StateRunning)
			cancel := orbit.CancelTaskRequest{ExpectedRevision: running.Revision, Reason: "source object was replaced"}
			receipt, err := api.CancelTask(t.Context(), running.ID, key, cancel)
			if err != nil || receipt.Task.State != orbit.StateRunning || receipt.Deduplicated {
				t.Fatalf("CancelTask = %+v, %v", receipt, err)
			}
			if cause := <-causes; !errors.Is(cause, worker.ErrCancelRequested) {
				t.Errorf("cause %v, want ErrCancelRequested", cause)
			}
			waitUntil(t, api, running.ID, orbit.StateCancelled)
			again, err := api.CancelTask(t.Context(), running.ID, key, cancel)
			if err != nil || again.Task.State != orbit.StateRunning || !again.Deduplicated { // CAN-012, CAN-016, TEST-046
				t.Errorf("repeat = %+v, %v", again, err)
			}
		}
	}, migrations.Server)
}

// REF-QRES-001: what waits behind a pause, a stop or a limit goes on soon after it is
// lifted, on whatever node that was done: closed and full lanes are looked at again by
// themselves, at the latest after a second.
func TestDispatchGoesOnWhenALimitIsLifted(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		here, elsewhere := start(t, db.DB, server.Config{}), start(t, db.Reopen(t).DB, server.Config{})
		started := make(chan time.Time, 10)
		hold := make(chan struct{})
		serveTasks(t, here, creds, func(context.Context, worker.Execution) (json.RawMessage, error) {
			started <- time.Now()
			<-hold
			return nil, nil
		})
		defer close(hold)
		api := client(t, elsewhere, creds)
		yes, no := true, false
		one, none := uint64(1), uint64(0)
		queue := uint64(1)
		app := uint64(1)
		setQueue := func(r orbit.UpdateQueueRequest) {
			r.ExpectedRevision = queue
			q, err := api.UpdateQueue(t.Context(), creds.QueueID, "q"+string(rune('a'+queue)), r)
			if err != nil {
				t.Fatal(err)
			}
			queue = q.Revision
		}
		setApplication := func(r orbit.UpdateApplicationRequest) {
			r.ExpectedRevision = app
			a, err := api.UpdateApplication(t.Context(), "a"+string(rune('a'+app)), r)
			if err != nil {
				t.Fatal(err)
			}
			app = a.Revision
		}
		for _, c := range []struct {
			name       string
			shut, open func()
		}{
			{"pause",
				func() { setQueue(orbit.UpdateQueueRequest{Paused: &yes}) },
				func() { setQueue(orbit.UpdateQueueRequest{Paused: &no}) },
			},
			{"stop",
				func() { setApplication(orbit.UpdateApplicationRequest{DispatchStopped: &yes}) },
				func() { setApplication(orbit.UpdateApplicationRequest{DispatchStopped: &no}) },
			},
			{"limit",
				func() {
					setQueue(orbit.UpdateQueueRequest{MaxConcurrency: &one})
					if _, err := api.SubmitTask(t.Context(), "first", request(creds)); err != nil {
						t.Fatal(err)
					}
					<-started
				},
				func() { setQueue(orbit.UpdateQueueRequest{MaxConcurrency: &none}) },
			},
		} {
			c.shut()
			if _, err := api.SubmitTask(t.Context(), c.name, request(creds)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-started:
				t.Fatalf("%s: dispatched nevertheless", c.name)
			case <-time.After(300 * time.Millisecond): // a claim has looked and found it shut
			}
			c.open()
			opened := time.Now()
			t.Logf("%s: dispatched %v after it was lifted", c.name, (<-started).Sub(opened))
			hold <- struct{}{}
			if c.name == "limit" {
				hold <- struct{}{}
			}
		}
	}, migrations.Server)
}

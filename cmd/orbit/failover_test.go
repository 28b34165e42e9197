package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// A node is killed with SIGKILL while a task of it runs (issue A, TEST-021). With a
// second node the worker finishes the same attempt there; if the worker is gone too, the
// lease ends and the task goes on by the rules: an effect that nobody knows is a
// person's matter, unless the handler is idempotent.
func TestKilledNodeLosesNothing(t *testing.T) {
	file := build(t)
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds, err := server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
			Application: "failover", Namespace: "default", Environment: "test", Queue: "work", WorkerAccess: true, Actor: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		front := startFront(t)
		a := startNode(t, file, db.Address, "node-a")
		front.point(a.addr)
		client, err := orbit.NewClient("http://"+front.addr, creds.Token, orbit.ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		h := newHeldHandler()
		stop := startWorker(t, "http://"+front.addr, creds, h)

		first := submit(t, client, creds.QueueID, "first", orbit.RecoveryReconcileOnly)
		h.awaitStart(t, first)
		a.kill(t)
		b := startNode(t, file, db.Address, "node-b")
		front.point(b.addr)
		h.finish()
		task := awaitState(t, client, first, orbit.StateSucceeded)
		if task.AttemptCount != 1 || h.runs.Load() != 1 || task.EffectUncertain {
			t.Fatalf("task has %d attempts, the handler ran %d times, uncertain %v; want 1, 1, false", task.AttemptCount, h.runs.Load(), task.EffectUncertain)
		}

		// Now the worker is cut off as well while both tasks run.
		unknown := submit(t, client, creds.QueueID, "second", orbit.RecoveryReconcileOnly)
		h.awaitStart(t, unknown)
		again := submit(t, client, creds.QueueID, "third", orbit.RecoveryIdempotent)
		h.awaitStart(t, again)
		front.point("") // nobody reaches anybody
		b.kill(t)
		c := startNode(t, file, db.Address, "node-c")
		direct, err := orbit.NewClient("http://"+c.addr, creds.Token, orbit.ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if task := awaitState(t, direct, unknown, orbit.StateNeedsReview); !task.EffectUncertain || task.CompletedAt != nil {
			t.Fatalf("task in review: uncertain %v, completed %v; want true and none", task.EffectUncertain, task.CompletedAt)
		}
		if task := awaitState(t, direct, again, orbit.StateWaiting); !task.EffectUncertain || task.AttemptCount != 1 {
			t.Fatalf("task that may run again: uncertain %v after %d attempts; want true after 1", task.EffectUncertain, task.AttemptCount)
		}
		h.finish()
		stop()
		second := newHeldHandler()
		second.finish()
		startWorker(t, "http://"+c.addr, creds, second)
		if task := awaitState(t, direct, again, orbit.StateSucceeded); task.AttemptCount != 2 || task.EffectUncertain {
			t.Fatalf("task ended after %d attempts, uncertain %v; want 2, false", task.AttemptCount, task.EffectUncertain)
		}
	}, migrations.Server)
}

// A killable is a node as a process of its own.
type killable struct {
	*exec.Cmd
	addr string
	log  *strings.Builder
	mu   sync.Mutex
}

func startNode(t *testing.T, file, address, id string) *killable {
	t.Helper()
	addr := freeport.Address(t)
	n := &killable{Cmd: exec.Command(file, "--lease", "5s", "--node-id", id), addr: addr, log: &strings.Builder{}}
	n.Env = append(os.Environ(), "ORBIT_MYSQL_DSN=", "ORBIT_DATABASE="+address, "ORBIT_HTTP_ADDR="+addr)
	n.Stderr = n
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Process.Kill(); n.Wait() })
	poll(t, id+" to be ready", func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return n
}

// Write takes the node's log.
func (n *killable) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(p)
}

func (n *killable) kill(t *testing.T) {
	t.Helper()
	if err := n.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(); err == nil || n.ProcessState.ExitCode() != -1 {
		t.Fatalf("node ended with %v, not by the kill\n%s", err, n.log)
	}
}

// A front forwards connections to the node of the hour, as a load balancer does.
type front struct {
	addr string

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
}

func startFront(t *testing.T) *front {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{addr: ln.Addr().String(), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { ln.Close(); f.point("") })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go f.forward(conn)
		}
	}()
	return f
}

// point drops what is connected and forwards to target from now on.
func (f *front) point(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = target
	for c := range f.conns {
		c.Close()
	}
	clear(f.conns)
}

func (f *front) forward(client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	target := f.target
	f.conns[client] = true
	f.mu.Unlock()
	if target == "" {
		return
	}
	node, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer node.Close()
	go func() { io.Copy(client, node); client.Close() }()
	io.Copy(node, client)
}

// A heldHandler runs until it is told to finish.
type heldHandler struct {
	runs    atomic.Int64
	started chan string
	let     chan struct{}
	mu      sync.Mutex
}

func newHeldHandler() *heldHandler {
	return &heldHandler{started: make(chan string, 16), let: make(chan struct{})}
}

func (h *heldHandler) run(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	h.runs.Add(1)
	h.mu.Lock()
	let := h.let
	h.mu.Unlock()
	h.started <- e.Task.ID
	<-let
	return json.RawMessage(`{"done":true}`), nil
}

// finish lets those that run go on, and holds the next ones if the handler goes on.
func (h *heldHandler) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.let)
	if h.runs.Load() > 0 {
		h.let = make(chan struct{})
	}
}

func (h *heldHandler) awaitStart(t *testing.T, id string) {
	t.Helper()
	select {
	case got := <-h.started:
		if got != id {
			t.Fatalf("handler runs task %s, want %s", got, id)
		}
	case <-time.After(time.Minute):
		t.Fatalf("handler of task %s did not start", id)
	}
}

func startWorker(t *testing.T, url string, creds orbit.Credentials, h *heldHandler) (stop func()) {
	t.Helper()
	w, err := worker.NewWorker(url, creds.Token, worker.Config{
		Queues:   []string{creds.QueueID},
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "work", Version: "v1"}: h.run},
		Log:      slog.New(slog.DiscardHandler), DrainTimeout: time.Second, StopTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func submit(t *testing.T, c *orbit.Client, queue, key, safety string) (id string) {
	t.Helper()
	accepted, err := c.SubmitTask(t.Context(), key, orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "work", HandlerVersion: "v1", PayloadVersion: "v1", Payload: json.RawMessage(`{}`),
		RecoverySafety: safety, Retry: orbit.RetryPolicy{MaxAttempts: 3, InitialDelayMS: 10, MaxDelayMS: 10, AttemptTimeoutMS: 300_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	return accepted.Task.ID
}

func awaitState(t *testing.T, c *orbit.Client, id, state string) (task orbit.Task) {
	t.Helper()
	poll(t, fmt.Sprintf("task %s to be %s", id, state), func() bool {
		got, err := c.GetTask(t.Context(), id)
		task = got
		return err == nil && got.State == state
	})
	return task
}

// poll waits for what another process does; the bound only ends a test that hangs.
func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

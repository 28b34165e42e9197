package reconcile_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardworker"
	"github.com/orbitkit/orbit/resourceguard/reconcile"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

var (
	guarded   = reconcile.Handler{Name: "stock.take", Version: "v1"}
	forgotten = reconcile.Handler{Name: "stock.forgotten", Version: "v1"} // has no rule
)

// A scene is a task server, a worker and a guarded table, each real.
type scene struct {
	*testing.T
	engine string
	url    string
	creds  orbit.Credentials
	client *orbit.Client
	table  *dbtest.DB
	guard  *resourceguard.Guard

	held *heldWrites
}

// heldWrites are the writes that wait for a test to let them go.
type heldWrites struct {
	mu     sync.Mutex
	became map[string]chan string // by task: what became of it
	let    map[string]chan struct{}
}

// try runs a subtest on the scene, with keys of its own.
func (s *scene) try(name string, f func(s *scene)) {
	s.Run(name, func(t *testing.T) {
		part := *s
		part.T = t
		f(&part)
	})
}

func newScene(t *testing.T, engine string) *scene {
	t.Helper()
	s := &scene{T: t, engine: engine, held: &heldWrites{became: map[string]chan string{}, let: map[string]chan struct{}{}}}
	db := dbtest.Open(t, engine, migrations.Server)
	s.openTable()
	s.serve(db)
	s.work()
	return s
}

// openTable makes the resource: a row for each write that it took.
func (s *scene) openTable() {
	s.table = dbtest.Open(s.T, s.engine, migrations.Guard)
	_, err := s.table.Write().ExecContext(s.Context(), "CREATE TABLE taken (operation VARCHAR(100) NOT NULL, attempt VARCHAR(100) NOT NULL)")
	if err != nil {
		s.Fatal(err)
	}
	s.guard = newGuard(s.T, s.table)
}

func newGuard(t testing.TB, db *dbtest.DB) *resourceguard.Guard {
	authorise := func(_ context.Context, _, key string) error {
		if key == "forbidden" {
			return errors.New("not ours")
		}
		return nil
	}
	guard, err := resourceguard.New(db.Dialect(), authorise, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func (s *scene) serve(db *dbtest.DB) {
	var err error
	s.creds, err = server.Bootstrap(s.Context(), db.DB, server.BootstrapRequest{
		Application: "app", Namespace: "default", Environment: "test", Queue: "q", WorkerAccess: true, Actor: "test",
	})
	if err != nil {
		s.Fatal(err)
	}
	node, err := server.New(db.DB, server.Config{StopTimeout: 5 * time.Second})
	if err != nil {
		s.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	s.during(func(ctx context.Context) error { return node.Run(ctx, listener) })
	s.client = s.connect(nil)
}

// during runs f until the test ends.
func (s *scene) during(f func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("run: %v", err)
		}
	})
}

func (s *scene) connect(transport http.RoundTripper) *orbit.Client {
	s.Helper()
	c, err := orbit.NewClient(s.url, s.creds.Token, orbit.ClientConfig{Transport: transport})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(c.CloseIdleConnections)
	return c
}

// A work is a payload: what the handler does with the first task of a chain. A manual
// retry writes and succeeds.
type work struct {
	Write bool   `json:"write,omitempty"` // writes, before it loses sight of what it did
	Again bool   `json:"again,omitempty"` // a manual retry does the same
	Hold  bool   `json:"hold,omitempty"`  // ends at its timeout, and writes when it is let
	As    string `json:"as,omitempty"`    // writes other content than the payload
}

func (s *scene) work() {
	resource, err := guardworker.New(s.guard, s.table.Write())
	if err != nil {
		s.Fatal(err)
	}
	take := func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		return s.take(ctx, resource, e)
	}
	w, err := worker.NewWorker(s.url, s.creds.Token, worker.Config{
		Queues: []string{s.creds.QueueID}, Capacity: 16, Log: slog.New(slog.DiscardHandler), OnError: func(error) {},
		Handlers: map[worker.Handler]worker.HandlerFunc{
			worker.Handler(guarded): take, worker.Handler(forgotten): take,
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.during(w.Run)
}

func (s *scene) take(ctx context.Context, resource *guardworker.Resource, e worker.Execution) (json.RawMessage, error) {
	var do work
	if err := json.Unmarshal(e.Task.Payload, &do); err != nil {
		return nil, worker.Failed(err)
	}
	if do.As != "" {
		e.Task.Payload = json.RawMessage(do.As)
	}
	write := func(ctx context.Context) (json.RawMessage, error) {
		return resource.Apply(ctx, e, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO taken (operation, attempt) VALUES (?, ?)", e.OperationRoot, e.AttemptID)
			return []byte(`{"taken":1}`), err
		})
	}
	switch {
	case e.Task.RetryOf != "" && !do.Again:
		return write(ctx)
	case do.Hold:
		became, let := s.hold(e.Task.ID)
		go func() { // the part of a program that goes on after the attempt is over
			<-let
			_, err := write(context.WithoutCancel(ctx))
			became <- fmt.Sprint(err)
		}()
	case do.Write:
		if _, err := write(ctx); err != nil {
			return nil, err
		}
	}
	return nil, worker.Unknown(errors.New("connection lost"))
}

// hold returns the channels by which a write is let go, and tells what became of it.
func (s *scene) hold(task string) (became chan string, let chan struct{}) {
	h := s.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.became[task] == nil {
		h.became[task], h.let[task] = make(chan string, 1), make(chan struct{})
	}
	return h.became[task], h.let[task]
}

// submit submits a task with this key and waits until it is in NEEDS_REVIEW.
func (s *scene) submit(key string, do work, h reconcile.Handler) orbit.Task {
	s.Helper()
	payload, err := json.Marshal(do)
	if err != nil {
		s.Fatal(err)
	}
	accepted, err := s.client.SubmitTask(s.Context(), rand.Text(), orbit.SubmitTaskRequest{
		QueueID: s.creds.QueueID, Handler: h.Name, HandlerVersion: h.Version, PayloadVersion: "v1", Payload: payload, ConcurrencyKey: key,
	})
	if err != nil {
		s.Fatal(err)
	}
	return s.awaitReview(accepted.Task.ID)
}

func (s *scene) await(id, state string) orbit.Task {
	s.Helper()
	task, err := s.client.WaitTask(s.Context(), id)
	if err != nil || task.State != state {
		s.Fatalf("task is %s, %v; want %s", task.State, err, state)
	}
	return task
}

func (s *scene) awaitReview(id string) orbit.Task { return s.await(id, orbit.StateNeedsReview) }

// state holds a task to its state now.
func (s *scene) state(id, want string) orbit.Task {
	s.Helper()
	task, err := s.client.GetTask(s.Context(), id)
	if err != nil || task.State != want {
		s.Fatalf("task is %s, %v; want %s", task.State, err, want)
	}
	return task
}

// reconciler returns one with this store for every key but "elsewhere".
func (s *scene) reconciler(client *orbit.Client, store reconcile.Store, absent reconcile.Absent, cfg reconcile.Config) *reconcile.Reconciler {
	s.Helper()
	rules := map[reconcile.Handler]reconcile.Rule{guarded: {Absent: absent, Store: func(key string) reconcile.Store {
		if key == "elsewhere" {
			return nil
		}
		return store
	}}}
	r, err := reconcile.New(client, []string{s.creds.QueueID}, rules, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func (s *scene) store() reconcile.Store { return reconcile.NewStore(s.guard, s.table.Write()) }

// once makes a pass and returns its findings by task.
func (s *scene) once(client *orbit.Client, store reconcile.Store, absent reconcile.Absent, cfg reconcile.Config) (map[string]reconcile.Finding, error) {
	s.Helper()
	found := map[string]reconcile.Finding{}
	cfg.Observer = func(f reconcile.Finding) { found[f.TaskID] = f }
	_, err := s.reconciler(client, store, absent, cfg).Once(s.Context())
	return found, err
}

// taken counts the writes of an operation.
func (s *scene) taken(operation string) (n int) {
	s.Helper()
	err := s.table.Read().QueryRowContext(s.Context(), "SELECT COUNT(*) FROM taken WHERE operation = ?", operation).Scan(&n)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// retriesOf returns the tasks that repeat a task by hand.
func (s *scene) retriesOf(task orbit.Task) (ids []string) {
	s.Helper()
	for t, err := range s.client.Tasks(s.Context(), orbit.ListTasksRequest{QueueID: s.creds.QueueID, Limit: 100}) {
		if err != nil {
			s.Fatal(err)
		}
		if t.ConcurrencyKey != task.ConcurrencyKey {
			continue
		}
		if full, err := s.client.GetTask(s.Context(), t.ID); err != nil {
			s.Fatal(err)
		} else if full.RetryOf == task.ID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// review returns the evidence of the one review of a task.
func (s *scene) review(id string) (body struct {
	Decision, Source string
	Evidence         map[string]any
}) {
	s.Helper()
	page, err := s.client.ListEvidence(s.Context(), id, orbit.PageRequest{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Kind != orbit.EvidenceReview {
		s.Fatalf("evidence = %+v, %v; want one review", page.Items, err)
	}
	if err := json.Unmarshal(page.Items[0].Body, &body); err != nil {
		s.Fatal(err)
	}
	return body
}

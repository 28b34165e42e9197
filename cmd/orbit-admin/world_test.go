package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// A world is a database with a bootstrapped namespace "n" of application "a" with queue
// "q", on which the program runs.
type world struct {
	*testing.T
	db    *dbtest.DB
	env   map[string]string
	creds orbit.Credentials
	said  strings.Builder // all that the program has written
}

func newWorld(t *testing.T, db *dbtest.DB) *world {
	t.Helper()
	w := &world{T: t, db: db, env: map[string]string{"ORBIT_DATABASE": db.Address}}
	file := filepath.Join(t.TempDir(), "c.json")
	w.must("bootstrap --application a --namespace n --environment e --queue q --worker-access --output " + file)
	w.creds = w.load(file)
	return w
}

// environment is what the program gets, with nobody who reads what it writes.
func (w *world) environment() cli.Environment {
	return cli.Environment{Get: func(name string) string { return w.env[name] }, Out: io.Discard, Err: io.Discard}
}

func (w *world) load(file string) orbit.Credentials {
	w.Helper()
	creds, err := orbit.LoadCredentials(file)
	if err != nil {
		w.Fatal(err)
	}
	return creds
}

// run runs the program with words for arguments, or with the arguments themselves if there
// are several.
func (w *world) run(args ...string) (code int, out, errs string) {
	w.Helper()
	if len(args) == 1 {
		args = strings.Fields(args[0])
	}
	code, out, errs = invoke(w.Context(), w.env, args...)
	w.said.WriteString(out + errs)
	return code, out, errs
}

func (w *world) must(args ...string) string {
	w.Helper()
	code, out, errs := w.run(args...)
	if code != 0 || errs != "" {
		w.Fatalf("%q: exit %d, %s", args, code, errs)
	}
	return out
}

// read runs the program with --json and reads what it prints.
func (w *world) read(into any, args ...string) {
	w.Helper()
	if len(args) == 1 {
		args = strings.Fields(args[0])
	}
	reflect.ValueOf(into).Elem().SetZero()
	if err := json.Unmarshal([]byte(w.must(append(args, "--json")...)), into); err != nil {
		w.Fatalf("%q: %v", args, err)
	}
}

// refuse wants an exit code and a line that says something, and nothing else.
func (w *world) refuse(code int, says string, args ...string) {
	w.Helper()
	got, out, errs := w.run(args...)
	if got != code || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, says) {
		w.Errorf("%q: exit %d, %q, %q; want %d and one line with %q", args, got, out, errs, code, says)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.Helper()
	if err := w.db.Read().QueryRowContext(w.Context(), "SELECT COUNT(*) FROM "+query, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// serve runs a node until the test ends and returns a client of it.
func (w *world) serve() *orbit.Client {
	w.Helper()
	node, err := server.New(w.db.DB, server.Config{})
	if err != nil {
		w.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.until(func(ctx context.Context) { node.Run(ctx, listener) })
	w.creds.URL = "http://" + listener.Addr().String()
	client, err := orbit.NewClient(w.creds.URL, w.creds.Token, orbit.ClientConfig{})
	if err != nil {
		w.Fatal(err)
	}
	return client
}

// until runs f until the test ends.
func (w *world) until(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { f(ctx); close(done) }()
	w.Cleanup(func() { cancel(); <-done })
}

// work runs a worker whose handler "unsure" ends unknown and "hold" waits for its end.
func (w *world) work() {
	w.Helper()
	unsure := func(context.Context, worker.Execution) (json.RawMessage, error) {
		return nil, worker.Unknown(errors.New("the line went dead"))
	}
	hold := func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	wk, err := worker.NewWorker(w.creds.URL, w.creds.Token, worker.Config{
		Queues: []string{w.creds.QueueID}, DrainTimeout: 10 * time.Millisecond, StopTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "unsure", Version: "v1"}: unsure, {Name: "hold", Version: "v1"}: hold},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.until(func(ctx context.Context) { wk.Run(ctx) })
}

// submit submits a task under a key, with payload {"iban":"canary-7"} and a resource key
// if one is given.
func (w *world) submit(c *orbit.Client, key, handler, resource string) orbit.Task {
	w.Helper()
	accepted, err := c.SubmitTask(w.Context(), key, orbit.SubmitTaskRequest{
		QueueID: w.creds.QueueID, Handler: handler, HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"iban":"canary-7"}`), BusinessKey: "order/" + key, ConcurrencyKey: resource,
	})
	if err != nil {
		w.Fatal(err)
	}
	return accepted.Task
}

package relay_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

const (
	queueA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	queueB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// A world is a business database with its outbox, and a task server.
type world struct {
	t     *testing.T
	db    *dbtest.DB
	box   *outbox.Outbox
	store *outbox.Store
	fake  *orbitFake
	hook  outbox.Hook
}

func newWorld(t *testing.T, db *dbtest.DB) *world {
	t.Helper()
	box, err := outbox.New(db.Dialect(), outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, db: db, box: box, store: store, fake: newFake(t)}
}

// everywhere runs f on each engine, side by side: most of a test is waiting. It returns
// before they have ended.
func everywhere(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f(t, newWorld(t, dbtest.Borrow(t, engine, migrations.Outbox)))
		})
	}
}

// onSQLite runs f on SQLite: for what does not depend on the engine.
func onSQLite(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	f(t, newWorld(t, dbtest.Open(t, dbtest.SQLite, migrations.Outbox)))
}

func message(key string) outbox.Message {
	return outbox.Message{
		Key:    key,
		Target: "main",
		Request: orbit.SubmitTaskRequest{
			QueueID:        queueA,
			Handler:        "orders.ship",
			HandlerVersion: "1",
			PayloadVersion: "1",
			Payload:        json.RawMessage(fmt.Sprintf(`{"key": %q, "exact": 9007199254740993.10}`, key)),
		},
	}
}

// enqueue commits messages, each with its key, in one transaction.
func (w *world) enqueue(messages ...outbox.Message) (seqs []int64) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(tx *sqldb.Tx) error {
		seqs = nil
		for _, m := range messages {
			r, err := w.box.Enqueue(w.t.Context(), tx.Tx, m)
			if err != nil {
				return err
			}
			seqs = append(seqs, r.Seq)
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("enqueue: %v", err)
	}
	return seqs
}

func (w *world) enqueueKeys(keys ...string) []int64 {
	w.t.Helper()
	messages := make([]outbox.Message, len(keys))
	for i, key := range keys {
		messages[i] = message(key)
	}
	return w.enqueue(messages...)
}

func (w *world) target() relay.Target {
	w.t.Helper()
	c, err := orbit.NewClient(w.fake.URL, "secret-token", orbit.ClientConfig{MinimalBatchAnswers: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return relay.Target{Name: "main", Client: c, NamespaceID: namespace}
}

// quick is a configuration for tests: back-offs are short. Leases and timeouts keep
// their defaults, since a busy machine may be slow.
func quick() relay.Config {
	return relay.Config{
		RetryFirst: 50 * time.Millisecond,
		RetryMost:  200 * time.Millisecond,
		PauseFirst: 50 * time.Millisecond,
		PauseMost:  200 * time.Millisecond,
	}
}

func (w *world) relay(cfg relay.Config) *relay.Relay {
	w.t.Helper()
	if cfg.Hook == nil {
		cfg.Hook = &w.hook
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(testWriter{w.t}, nil))
	}
	r, err := relay.New(w.store, []relay.Target{w.target()}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// start runs a relay until the returned function is called, which fails the test if the
// stop was not clean.
func (w *world) start(r *relay.Relay) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run = %v, want nil", err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) row(seq int64) outbox.Row {
	w.t.Helper()
	r, err := w.store.Get(w.t.Context(), seq)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) count(s outbox.State) int64 {
	w.t.Helper()
	st, err := w.store.Status(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return st.Count[s]
}

// eventually waits until ok, or fails the test.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	eventually(w.t, what, ok)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // a bound for hanging, not a measure
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) untilState(seq int64, want outbox.State) outbox.Row {
	w.t.Helper()
	var r outbox.Row
	w.eventually(fmt.Sprintf("row %d is %v", seq, want), func() bool {
		r = w.row(seq)
		return r.State == want
	})
	return r
}

// stored returns the frozen bytes of every row by key.
func (w *world) stored() map[string][]byte {
	w.t.Helper()
	rows, err := w.db.Read().QueryContext(w.t.Context(), "SELECT idempotency_key, request FROM orbit_outbox")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	all := map[string][]byte{}
	for rows.Next() {
		var key, request []byte
		if err := rows.Scan(&key, &request); err != nil {
			w.t.Fatal(err)
		}
		all[string(key)] = request
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) exec(query string, args ...any) sql.Result {
	w.t.Helper()
	res, err := w.db.Write().ExecContext(w.t.Context(), query, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// Package dispatchtest fills a server database for the tests of whatever dispatches: an
// application with its namespaces and queues, and tasks put there by plain SQL under the
// rules that acceptance follows.
package dispatchtest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A World is an application with one namespace, in which tests make queues and tasks.
type World struct {
	DB          *sqldb.DB
	Application sqldb.ID
	Namespace   sqldb.ID
	Credential  sqldb.ID

	t testing.TB
}

// New makes a world in db. When the test ends, every invariant must hold.
func New(t testing.TB, db *sqldb.DB) *World {
	t.Helper()
	w := newWorld(t, db, "app")
	t.Cleanup(w.Verify)
	return w
}

// Another makes a world for another application in the same database.
func (w *World) Another(name string) *World {
	w.t.Helper()
	return newWorld(w.t, w.DB, name)
}

func newWorld(t testing.TB, db *sqldb.DB, name string) *World {
	t.Helper()
	w := &World{DB: db, t: t, Application: sqldb.NewID(), Credential: sqldb.NewID()}
	now := w.Now()
	w.Exec("INSERT INTO application (id, name, state, created_at, updated_at) VALUES (?, ?, 1, ?, ?)",
		w.Application, []byte(name), now, now)
	w.Exec("INSERT INTO application_quota (application_id, updated_at) VALUES (?, ?)", w.Application, now)
	w.Namespace = w.NewNamespace("default")
	w.Exec("INSERT INTO credential (id, namespace_id, name, secret_digest, permissions, all_queues, created_at) VALUES (?, ?, ?, ?, ?, 1, ?)",
		w.Credential, w.Namespace, []byte("world"), make([]byte, 32), []byte("tasks:submit"), now)
	return w
}

// Verify fails the test for each invariant that does not hold.
func (w *World) Verify() {
	w.t.Helper()
	found, err := dispatch.Verify(context.WithoutCancel(w.t.Context()), w.DB)
	if err != nil {
		w.t.Errorf("Verify = %v", err)
	}
	for _, violation := range found {
		w.t.Errorf("verify: %s", violation)
	}
}

// Now returns the database's time.
func (w *World) Now() int64 {
	w.t.Helper()
	now, err := w.DB.Now(w.t.Context())
	if err != nil {
		w.t.Fatalf("read clock: %v", err)
	}
	return now
}

// Exec runs a statement and returns nothing: it fails the test instead.
func (w *World) Exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.DB.Write().ExecContext(w.t.Context(), query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

// Int returns the one number that a query gives; NULL is 0.
func (w *World) Int(query string, args ...any) int64 {
	w.t.Helper()
	var n sql.NullInt64
	if err := w.DB.Read().QueryRowContext(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return n.Int64
}

// NewNamespace adds a namespace to the application.
func (w *World) NewNamespace(name string) sqldb.ID {
	w.t.Helper()
	id, now := sqldb.NewID(), w.Now()
	w.Exec("INSERT INTO namespace (id, application_id, name, environment, state, created_at, updated_at) VALUES (?, ?, ?, ?, 1, ?, ?)",
		id, w.Application, []byte(name), []byte("test"), now, now)
	return id
}

// NewQueue adds a queue to the world's namespace.
func (w *World) NewQueue(name string) sqldb.ID { return w.NewQueueIn(w.Namespace, name) }

// NewQueueIn adds a queue to a namespace of the application.
func (w *World) NewQueueIn(namespace sqldb.ID, name string) sqldb.ID {
	w.t.Helper()
	id, now := sqldb.NewID(), w.Now()
	w.Exec("INSERT INTO queue (id, namespace_id, name, created_at, updated_at) VALUES (?, ?, ?, ?, ?)", id, namespace, []byte(name), now, now)
	return id
}

// A Task is one to submit. Zero values mean: the world's namespace, handler "h" version
// "v1", payload {}, one attempt of 30 s, a deadline in a day, available at once.
type Task struct {
	Namespace      sqldb.ID
	Queue          sqldb.ID
	Handler        string
	Payload        string
	Key            string
	Priority       int
	Delay          time.Duration // of available_at; negative for one that waits already
	StartWithin    time.Duration
	Timeout        time.Duration
	Idempotent     bool
	MaxAttempts    int
	AttemptTimeout time.Duration
	InitialDelay   time.Duration
	MaxDelay       time.Duration
	Unstarted      int // un-started claims in a row so far
	Uncertain      bool
}

// Version is the handler version of every task.
const Version = "v1"

func (task *Task) fill(w *World) {
	if task.Namespace.IsZero() {
		task.Namespace = w.Namespace
	}
	if task.Handler == "" {
		task.Handler = "h"
	}
	if task.Payload == "" {
		task.Payload = "{}"
	}
	if task.Timeout == 0 {
		task.Timeout = 24 * time.Hour
	}
	task.MaxAttempts = max(task.MaxAttempts, 1)
	if task.AttemptTimeout == 0 {
		task.AttemptTimeout = 30 * time.Second
	}
}

// Lane returns the lane of the task.
func (task Task) Lane() dispatch.Lane {
	handler := task.Handler
	if handler == "" {
		handler = "h"
	}
	return dispatch.Lane{Queue: task.Queue, Handler: handler, Version: Version, Keyed: task.Key != ""}
}

// Submit accepts a task and returns its id.
func (w *World) Submit(x Task) sqldb.ID {
	w.t.Helper()
	id, err := w.TrySubmit(w.t.Context(), x)
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	return id
}

// TrySubmit is Submit for other goroutines than the test's.
func (w *World) TrySubmit(ctx context.Context, x Task) (sqldb.ID, error) {
	x.fill(w)
	id := sqldb.NewID()
	if x.Key != "" {
		if err := w.makeKey(ctx, x); err != nil {
			return id, err
		}
	}
	return id, w.DB.Tx(ctx, func(tx *sqldb.Tx) error { return w.insert(ctx, tx, id, x) })
}

// Flood accepts n tasks like x, which has no delay ahead, in few statements. If it has a
// key, the key has a row, and all are READY, as submits that do not see each other make them.
func (w *World) Flood(n int, x Task) {
	w.t.Helper()
	const most = 200
	x.fill(w)
	for ; n > 0; n -= most {
		err := w.DB.Tx(w.t.Context(), func(tx *sqldb.Tx) error { return w.insertMany(w.t.Context(), tx, min(n, most), x) })
		if err != nil {
			w.t.Fatalf("flood: %v", err)
		}
	}
}

func (w *World) insertMany(ctx context.Context, tx *sqldb.Tx, n int, x Task) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	var (
		args   []any
		events []task.Event
		at     = now + x.Delay.Microseconds()
	)
	for range n {
		id := sqldb.NewID()
		args = append(args, w.row(id, x, now, task.DispatchReady, x.Lane().ID(), task.OrderValue(at, x.Priority))...)
		events = append(events, task.Event{Task: id, Revision: 1, Kind: task.EventAccepted, Credential: w.Credential, At: now})
	}
	writes := tx.Writes()
	writes.Add("insert tasks", insertTasks+sqldb.Rows(n, len(args)/n), args...)
	task.AddEvents(writes, events)
	return writes.Run(ctx)
}

func (w *World) makeKey(ctx context.Context, x Task) error {
	digest := task.KeyDigest(x.Namespace, x.Key)
	return keyrow.Make(ctx, w.DB, map[[32]byte]keyrow.Key{digest: {Namespace: x.Namespace, Text: x.Key}})
}

const insertTasks = `
INSERT INTO task (id, namespace_id, queue_id, state, revision, handler, handler_version, payload_version, payload, business_key,
    available_at, start_deadline_at, deadline_at, task_timeout_ms, credential_id, created_at, updated_at,
    recovery_safety, max_attempts, attempt_timeout_ms, initial_delay_ms, max_delay_ms, unstarted_count, effect_uncertain,
    expire_at, concurrency_key, concurrency_key_digest, priority, lane, dispatch_state, dispatch_lane, order_value)
VALUES `

func (w *World) insert(ctx context.Context, tx *sqldb.Tx, id sqldb.ID, x Task) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	dispatch, dispatchLane, order, err := place(ctx, tx, x, x.Lane().ID(), now+x.Delay.Microseconds(), now)
	if err != nil {
		return err
	}
	row := w.row(id, x, now, dispatch, dispatchLane, order)
	writes := tx.Writes()
	writes.Add("insert task", insertTasks+sqldb.Rows(1, len(row)), row...)
	task.AddEvents(writes, []task.Event{{Task: id, Revision: 1, Kind: task.EventAccepted, Credential: w.Credential, At: now}})
	return writes.Run(ctx)
}

// row is what is stored of a new task.
func (w *World) row(id sqldb.ID, x Task, now int64, dispatch task.DispatchState, dispatchLane any, order int64) []any {
	deadline, expire := now+x.Timeout.Microseconds(), now+x.Timeout.Microseconds()
	var startBy any
	if x.StartWithin != 0 {
		startBy = now + x.StartWithin.Microseconds()
		expire = min(expire, now+x.StartWithin.Microseconds())
	}
	safety := task.SafetyReconcileOnly
	if x.Idempotent {
		safety = task.SafetyIdempotent
	}
	digest := []byte{}
	if x.Key != "" {
		sum := task.KeyDigest(x.Namespace, x.Key)
		digest = sum[:]
	}
	return []any{id, x.Namespace, x.Queue, task.Waiting, 1, []byte(x.Handler), []byte(Version), []byte("p1"), []byte(x.Payload), []byte{},
		now + x.Delay.Microseconds(), startBy, deadline, x.Timeout.Milliseconds(), w.Credential, now, now,
		safety, x.MaxAttempts, x.AttemptTimeout.Milliseconds(), x.InitialDelay.Milliseconds(), x.MaxDelay.Milliseconds(), x.Unstarted, x.Uncertain,
		expire, []byte(x.Key), digest, x.Priority, x.Lane().ID(), dispatch, dispatchLane, order}
}

// place tells how a new task waits. It parks only under the lock of the key.
func place(ctx context.Context, tx *sqldb.Tx, x Task, lane, available, now int64) (task.DispatchState, any, int64, error) {
	order := task.OrderValue(available, x.Priority)
	switch {
	case available > now:
		return task.DispatchDelayed, task.TimerLane, available, nil
	case x.Key == "":
		return task.DispatchReady, lane, order, nil
	}
	digest := settle.Digest(task.KeyDigest(x.Namespace, x.Key))
	keys, err := settle.LockKeys(ctx, tx, []settle.Digest{digest}, tx.Dialect().Share)
	if err != nil {
		return 0, nil, 0, err
	}
	ready, err := settle.ReadyLanes(ctx, tx, []settle.Digest{digest})
	if err != nil {
		return 0, nil, 0, err
	}
	first, taken := ready[settle.KeyLane{Key: digest, Lane: lane}]
	if k := keys[digest]; !k.Free() || k.Exhausted() || taken && first <= order {
		return task.DispatchKeyBlocked, nil, order, nil
	}
	return task.DispatchReady, lane, order, nil
}

// A Snapshot is what tests ask of a task.
type Snapshot struct {
	State     string
	Revision  int64
	Attempts  int64
	Started   int64
	Uncertain bool
	Dispatch  task.DispatchState
	Available int64
	Reason    string // of the newest event
	Event     string // its kind
}

// Task reads a task.
func (w *World) Task(id sqldb.ID) Snapshot {
	w.t.Helper()
	var (
		s     Snapshot
		state task.State
	)
	err := w.DB.Read().QueryRowContext(w.t.Context(), `
SELECT t.state, t.revision, t.attempt_count, t.started_count, t.effect_uncertain, t.dispatch_state, t.available_at, e.reason, e.kind
FROM task t JOIN task_event e ON e.task_id = t.id AND e.revision = t.revision WHERE t.id = ?`, id).
		Scan(&state, &s.Revision, &s.Attempts, &s.Started, &s.Uncertain, &s.Dispatch, &s.Available, &s.Reason, &s.Event)
	if err != nil {
		w.t.Fatalf("read task %v: %v", id, err)
	}
	s.State = state.String()
	return s
}

// Key reads a key's row: its version, and the task that holds it.
func (w *World) Key(namespace sqldb.ID, key string) (version uint64, holder sqldb.ID) {
	w.t.Helper()
	digest := task.KeyDigest(namespace, key)
	err := w.DB.Read().QueryRowContext(w.t.Context(), "SELECT version, holder_task_id FROM resource WHERE digest = ?", digest[:]).
		Scan(w.DB.Dialect().ScanUint64(&version), &holder)
	if err != nil {
		w.t.Fatalf("read key %q: %v", key, err)
	}
	return version, holder
}

// SetKeyVersion sets a key's version, making its row if there is none.
func (w *World) SetKeyVersion(namespace sqldb.ID, key string, version uint64) {
	w.t.Helper()
	if err := w.makeKey(w.t.Context(), Task{Namespace: namespace, Key: key}); err != nil {
		w.t.Fatalf("make key: %v", err)
	}
	digest := task.KeyDigest(namespace, key)
	w.Exec("UPDATE resource SET version = ? WHERE digest = ?", w.DB.Dialect().Uint64(version), digest[:])
}

// Taker returns a worker process that takes slots tasks of lanes.
func (w *World) Taker(slots int, lanes ...dispatch.Lane) dispatch.Taker {
	t := dispatch.Taker{Process: sqldb.NewID(), Namespace: w.Namespace, Credential: w.Credential, Slots: slots, Bytes: 1 << 20}
	for _, l := range lanes {
		t.Lanes = append(t.Lanes, l.ID())
	}
	return t
}

package dispatch_test

import (
	"database/sql"
	"math"
	"slices"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Every batch has its fixed price in round trips, the COMMIT among them: what a task on an
// idle system waits for. More of them are to be added knowingly, and to
// docs/architecture.md. SQLite has no round trips: its calls are statements and BEGIN.
func TestBatchesCostTheirRoundTripsAndNoMore(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		queue := w.NewQueue("q")
		plain, keyed := spec{Queue: queue}, spec{Queue: queue, Key: "k"}
		taker := w.Taker(3, plain.Lane(), keyed.Lane())
		taker.ConnectedAt = 6
		w.Exec(`INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id, connected_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, 6, 6)`, w.Namespace, taker.Process, w.Credential, make([]byte, 32), []byte("{}"), []byte("node-a"))
		faults := dbfault.Open(t, db)
		node := newNode(t, faults.DB, "node-a", dispatch.Config{})
		trips := func(f func()) int {
			before := faults.Calls()
			f()
			return faults.Calls() - before
		}
		type price struct{ none, claim, start, finish int }
		for i, c := range []struct {
			name          string
			tasks         []spec
			forget        int // of so many the node remembers nothing
			server, calls price
		}{
			{name: "first, which learns limits and owners", tasks: []spec{plain}},
			{"one task", []spec{plain}, 0, price{3, 4, 3, 3}, price{4, 7, 6, 6}},
			{"three tasks", []spec{plain, plain, plain}, 0, price{3, 4, 3, 3}, price{4, 7, 6, 6}},
			// The key's row is locked, when it is taken and when it is given back; and what waits
			// for it is looked up.
			{"a task with a key", []spec{keyed}, 0, price{4, 6, 3, 5}, price{5, 10, 6, 9}},
			{"one task whose node does not remember it", []spec{plain}, 1, price{3, 4, 6, 7}, price{4, 7, 9, 10}},
			// All wait for the answers of all: two transactions, one for each kind, would be slower.
			{"three tasks, one not remembered", []spec{plain, plain, plain}, 1, price{3, 4, 6, 7}, price{4, 7, 9, 10}},
		} {
			t.Run(c.name, func(t *testing.T) {
				lane := c.tasks[0].Lane()
				none := trips(func() { claim(t, node, taker, lane) })
				for _, x := range c.tasks {
					w.Submit(x)
				}
				var grants []dispatch.Grant
				claimed := trips(func() { grants = claim(t, node, taker, lane) })
				if len(grants) != len(c.tasks) {
					t.Fatalf("Claim gave %d tasks, want %d", len(grants), len(c.tasks))
				}
				var refs []dispatch.Ref
				var list []dispatch.Finish
				for i, g := range grants {
					ref := refOf(taker, g)
					if i < c.forget {
						ref.Hint = dispatch.Hint{}
					}
					refs = append(refs, ref)
				}
				started := trips(func() {
					got, err := node.Start(t.Context(), refs)
					if err != nil || slices.ContainsFunc(got, func(s dispatch.Started) bool { return s.Refusal != nil }) {
						t.Fatalf("Start = %+v, %v", got, err)
					}
					for i, ref := range refs {
						if i >= c.forget {
							ref.Hint = got[i].Hint
						}
						list = append(list, success(ref))
					}
				})
				finished := trips(func() {
					got, err := node.Finish(t.Context(), list)
					if err != nil || slices.ContainsFunc(got, func(f dispatch.Finished) bool { return f.Status != "recorded" }) {
						t.Fatalf("Finish = %+v, %v", got, err)
					}
				})
				want := c.server
				if db.Engine == dbtest.SQLite {
					want = c.calls
				}
				if got := (price{none, claimed, started, finished}); i > 0 && got != want {
					t.Errorf("a claim of nothing, a claim, a start and a finish took %+v round trips, want %+v", got, want)
				}
			})
		}
		w.Verify()
	}, migrations.Server)
}

// What a node remembers decides about nothing: where it is wrong, the rows do.
func TestAWrongHintChangesNothing(t *testing.T) { // LIC-006, LIC-015
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		queue, key := w.NewQueue("q"), "k"
		keyed, other := spec{Queue: queue, Key: key}, spec{Queue: w.NewQueue("other"), Key: "l"}
		foreign := claimOne(t, n, w.Taker(1, other.Lane()), submitted(w, other))
		for name, wrong := range map[string]func(*dispatch.Hint){
			"task":  func(h *dispatch.Hint) { h.Task = foreign.Task },
			"queue": func(h *dispatch.Hint) { h.Queue = other.Queue },
			"key":   func(h *dispatch.Hint) { h.Key = foreign.Hint.Key },
			"none":  func(h *dispatch.Hint) { h.Keyed, h.Key = false, [32]byte{} },
			"all":   func(h *dispatch.Hint) { *h = foreign.Hint },
			"rows":  func(h *dispatch.Hint) { h.Rows = foreign.Hint.Rows },
			"lease": func(h *dispatch.Hint) { wrongRows(h).Attempt.LeaseUntil = 1 },
			"state": func(h *dispatch.Hint) {
				r := wrongRows(h)
				r.Task.State, r.Attempt.State, r.Attempt.TimeoutAt = task.Running, task.AttemptRunning, sql.NullInt64{Int64: math.MaxInt64, Valid: true}
			},
			"revision": func(h *dispatch.Hint) { wrongRows(h).Task.Revision = 7 },
			"process":  func(h *dispatch.Hint) { wrongRows(h).Attempt.Process = sqldb.NewID() },
			"cancel":   func(h *dispatch.Hint) { wrongRows(h).Task.CancelAt = sql.NullInt64{Int64: 1, Valid: true} },
		} {
			taker := w.Taker(1, keyed.Lane())
			g := claimOne(t, n, taker, submitted(w, keyed))
			ref := refOf(taker, g)
			wrong(&ref.Hint)
			mustStart(t, n, ref)
			if got := w.Task(g.Task); got.State != "RUNNING" || got.Revision != 3 {
				t.Errorf("wrong %s: task = %+v, want it started", name, got)
			}
			if got := finish(t, n, success(ref)); got.Status != "recorded" {
				t.Errorf("wrong %s: Finish = %+v, want it recorded", name, got)
			}
			if _, holder := w.Key(w.Namespace, key); !holder.IsZero() {
				t.Errorf("wrong %s: the key is still held", name)
			}
		}
		if _, holder := w.Key(w.Namespace, "l"); holder != foreign.Task {
			t.Errorf("the other key is held by %v, want %v", holder, foreign.Task)
		}
		w.Verify()
	})
}

// wrongRows replaces remembered rows by a copy that may be changed.
func wrongRows(h *dispatch.Hint) *settle.Rows {
	rows := *h.Rows
	h.Rows = &rows
	return h.Rows
}

// submitted submits a task and returns its lane.
func submitted(w world, x spec) dispatch.Lane {
	w.Submit(x)
	return x.Lane()
}

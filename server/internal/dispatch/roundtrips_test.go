package dispatch_test

import (
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
)

// Every batch has its fixed price in round trips, BEGIN and COMMIT among them: what a task
// on an idle system waits for. More of them are to be added knowingly, and to
// docs/architecture.md.
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
		for i, c := range []struct {
			name                       string
			tasks                      []spec
			forget                     bool
			none, claim, start, finish int
		}{
			{name: "first, which learns limits and owners", tasks: []spec{plain}},
			{"one task", []spec{plain}, false, 5, 8, 8, 9},
			{"three tasks", []spec{plain, plain, plain}, false, 5, 8, 8, 9},
			// The key's row is locked and written, when it is taken and when it is given back; and
			// what waits for it is looked up.
			{"a task with a key", []spec{keyed}, false, 5, 10, 8, 12},
			{"one task whose node does not remember it", []spec{plain}, true, 5, 8, 9, 10},
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
				for _, g := range grants {
					ref := refOf(taker, g)
					if ref.Hint = g.Hint; c.forget {
						ref.Hint = dispatch.Hint{}
					}
					refs, list = append(refs, ref), append(list, success(ref))
				}
				started := trips(func() {
					if got, err := node.Start(t.Context(), refs); err != nil || got[len(got)-1].Refusal != nil {
						t.Fatalf("Start = %+v, %v", got, err)
					}
				})
				finished := trips(func() {
					if got, err := node.Finish(t.Context(), list); err != nil || got[len(got)-1].Status != "recorded" {
						t.Fatalf("Finish = %+v, %v", got, err)
					}
				})
				if i > 0 && (none != c.none || claimed != c.claim || started != c.start || finished != c.finish) {
					t.Errorf("a claim of nothing, a claim, a start and a finish took %d, %d, %d and %d round trips, want %d, %d, %d and %d",
						none, claimed, started, finished, c.none, c.claim, c.start, c.finish)
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
		} {
			taker := w.Taker(1, keyed.Lane())
			g := claimOne(t, n, taker, submitted(w, keyed))
			ref := refOf(taker, g)
			ref.Hint = g.Hint
			wrong(&ref.Hint)
			mustStart(t, n, ref)
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

// submitted submits a task and returns its lane.
func submitted(w world, x spec) dispatch.Lane {
	w.Submit(x)
	return x.Lane()
}

package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Every call of the relay to its database fails once in each way: its answer is lost, the
// connection is cut before it arrives, the engine refuses it as a deadlock or a lock wait,
// COMMIT included. Rows are accepted, refused, blocked, unknown and not accepted meanwhile,
// after a take-over: each ends as its answer says, as one task or none.
func TestEveryCallMayFailInEachWay(t *testing.T) { // REL-007, REL-016, REL-017, OUT-012, OUT-013, TEST-053
	for _, engine := range dbtest.Engines() {
		for i, way := range dbfault.Ways(engine) {
			t.Run(fmt.Sprintf("%s, way %d", engine, i), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, dbtest.Open(t, engine, migrations.Outbox))
				w.fake.answer = w.onceThenWell()
				faults := dbfault.Open(t, w.db)
				store, err := outbox.Open(w.db.Dialect(), faults.DB.Write(), faults.DB.Read())
				if err != nil {
					t.Fatal(err)
				}
				var hits [4]int
				n := 1
				for w.relayWithFault(faults, store, n, way(n), &hits) {
					n++
				}
				if hits[dbfault.Inside] == 0 || hits[dbfault.Outside] == 0 || hits[dbfault.Commit] == 0 {
					t.Errorf("%d calls failed outside and %d inside of transactions, and %d ends: want all", hits[dbfault.Outside], hits[dbfault.Inside], hits[dbfault.Commit])
				}
			})
		}
	}
}

// onceThenWell answers each row as its key says, the first time; what may be accepted later
// is, from the second time on.
func (w *world) onceThenWell() func(send) reply {
	seen := map[string]bool{}
	return func(s send) reply {
		first := !seen[s.key]
		seen[s.key] = true
		switch kind, _, _ := strings.Cut(s.key, "-"); {
		case kind == "refused":
			return reply{status: 400, code: orbit.CodeInvalidArgument}
		case kind == "blocked":
			return reply{status: 404, code: orbit.CodeNotFound}
		case kind == "unknown" && first:
			return reply{status: 503, code: orbit.CodeUnavailable, accept: true}
		case kind == "full" && first:
			return reply{status: 429, code: orbit.CodeQueueFull}
		}
		return reply{}
	}
}

// relayWithFault takes over from a dead relay while the nth call fails, and reports whether
// there were so many.
func (w *world) relayWithFault(faults *dbfault.Faults, store *outbox.Store, n int, how dbfault.Verdict, hits *[4]int) bool {
	w.t.Helper()
	w.exec("DELETE FROM orbit_outbox_lease")
	early := []string{fmt.Sprintf("well-early-%d", n), fmt.Sprintf("refused-early-%d", n)}
	var late []string
	for _, kind := range []string{"well", "refused", "blocked", "unknown", "full"} {
		late = append(late, fmt.Sprintf("%s-late-%d", kind, n))
	}
	seqs := w.enqueueKeys(early...)
	w.crash()
	cfg := quick()
	cfg.Lease, cfg.SendTimeout, cfg.StopTimeout = time.Second, 500*time.Millisecond, 2*time.Second
	cfg.RetryFirst, cfg.RetryMost, cfg.PauseFirst, cfg.PauseMost = time.Millisecond, 10*time.Millisecond, time.Millisecond, 10*time.Millisecond
	cfg.Hook = &w.hook
	r, err := relay.New(store, []relay.Target{w.target()}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	faults.Arm(n, how)
	ctx, cancel := contextWithCancel(w.t)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.eventually("the relay leads", func() bool { return len(r.Stats().Shards) == 1 })
	seqs = append(seqs, w.enqueueKeys(late...)...)
	w.hook.Notify()
	w.eventually(fmt.Sprintf("all is settled though call %d %v", n, how), func() bool { return w.count(outbox.Pending) == 0 })
	cancel()
	err = <-done
	hit, fired := faults.Disarm()
	if fired {
		hits[hit]++
	} else if err != nil {
		w.t.Errorf("Run = %v though no call failed", err)
	}
	for i, key := range append(early, late...) {
		w.wantEnd(seqs[i], key, fmt.Sprintf("call %d %v", n, how))
	}
	return fired && !w.t.Failed()
}

// wantEnd holds a row to the answers that onceThenWell gives. A refusal answers for its own
// send only: after a take-over it blocks.
func (w *world) wantEnd(seq int64, key, when string) {
	w.t.Helper()
	row := w.row(seq)
	kind, _, _ := strings.Cut(key, "-")
	ok, tasks := row.State == outbox.Delivered, 1
	switch kind {
	case "refused":
		ok, tasks = row.State == outbox.Rejected && !row.Last.Unknown || row.State == outbox.Blocked && row.Last.Unknown, 0
	case "blocked":
		ok, tasks = row.State == outbox.Blocked, 0
	case "unknown":
		ok = ok && row.Deduplicated
	}
	if !ok {
		w.t.Errorf("%s: row %s ended %v, unknown %t, deduplicated %t", when, key, row.State, row.Last.Unknown, row.Deduplicated)
	}
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	if _, is := w.fake.tasks[key]; is != (tasks == 1) {
		w.t.Errorf("%s: a task of row %s: %t", when, key, is)
	}
	for _, s := range w.fake.sends {
		if s.key == key && s.body != string(row.Request) {
			w.t.Errorf("%s: row %s was sent with other bytes than are stored", when, key)
		}
	}
}

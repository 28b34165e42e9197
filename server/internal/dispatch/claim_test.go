package dispatch_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/task"
)

type (
	world = *dispatchtest.World
	node  = *dispatch.Dispatcher
	spec  = dispatchtest.Task
)

func TestClaimGrantsTheTaskWithEverythingThatItsWorkerNeeds(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		small := spec{Queue: q, Payload: `{"a":1.0}`, Key: "object/42", Priority: 3, Idempotent: true, MaxAttempts: 2}
		large := spec{Queue: q, Payload: `"` + strings.Repeat("x", 200<<10) + `"`}
		ids := []sqldb.ID{w.Submit(small), w.Submit(large)}
		taker := w.Taker(4, small.Lane(), large.Lane())
		got := claim(t, n, taker, small.Lane(), large.Lane())
		if len(got) != 2 {
			t.Fatalf("claimed %d tasks, want 2", len(got))
		}
		g := got[0]
		if g.Task != ids[0] || string(g.Payload) != small.Payload || g.ConcurrencyKey != "object/42" || g.Token != 1 ||
			g.Priority != 3 || !g.Idempotent || g.Epoch != 1 || g.Number != 1 || g.OperationRoot != g.Task ||
			g.Namespace != w.Namespace || g.Queue != q || g.Handler != "h" || g.HandlerVersion != "v1" || g.PayloadVersion != "p1" {
			t.Errorf("grant = %+v", g)
		}
		if g.Lease != dispatch.DefaultLease || g.Deadline <= 23*time.Hour || g.Deadline > 24*time.Hour {
			t.Errorf("lease %v, deadline in %v; want 15s and 24h", g.Lease, g.Deadline)
		}
		if string(got[1].Payload) != large.Payload || got[1].Token != 0 {
			t.Errorf("large payload has %d bytes and token %d, want %d and none", len(got[1].Payload), got[1].Token, len(large.Payload))
		}
		if s := w.Task(ids[0]); s.State != "LEASED" || s.Revision != 2 || s.Attempts != 1 || s.Started != 0 || s.Event != task.EventClaimed {
			t.Errorf("task = %+v", s)
		}
		if version, holder := w.Key(w.Namespace, "object/42"); version != 1 || holder != ids[0] {
			t.Errorf("key has version %d and holder %v, want 1 and %v", version, holder, ids[0])
		}
	})
}

func TestClaimTakesTheLowestOrderValueOfAllLanesFirst(t *testing.T) { // REF-PRI-002, TEST-062
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q, r := w.NewQueue("q"), w.NewQueue("r")
		old := spec{Queue: q, Delay: -20 * time.Second}
		urgent := spec{Queue: r, Priority: 1}
		older := spec{Queue: r, Delay: -40 * time.Second}
		want := []sqldb.ID{w.Submit(older), w.Submit(urgent), w.Submit(old)}
		taker := w.Taker(1, old.Lane(), urgent.Lane())
		for i := range want {
			if g := claimOne(t, n, taker, old.Lane(), urgent.Lane()); g.Task != want[i] {
				t.Errorf("claim %d took the wrong task", i)
			}
		}
	})
}

func TestClaimTakesTheBestOfAllLanesNotTheFirstOfEach(t *testing.T) { // REF-PRI-002
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		a, b := spec{Queue: w.NewQueue("a"), Delay: -time.Hour}, spec{Queue: w.NewQueue("b")}
		want := []sqldb.ID{w.Submit(a), w.Submit(a)}
		w.Submit(b)
		got := claim(t, n, w.Taker(2, b.Lane(), a.Lane()), b.Lane(), a.Lane())
		if len(got) != 2 || got[0].Task != want[0] || got[1].Task != want[1] {
			t.Errorf("Claim = %+v, want the two old tasks of one lane", got)
		}
		// A limit that both lanes share goes to the better of them.
		q := w.NewQueue("limited")
		w.Exec("UPDATE queue SET max_concurrency = 1 WHERE id = ?", q)
		later, sooner := spec{Queue: q, Handler: "x"}, spec{Queue: q, Handler: "y", Delay: -time.Hour}
		w.Submit(later)
		best := w.Submit(sooner)
		if g := claimOne(t, n, w.Taker(2, later.Lane(), sooner.Lane()), later.Lane(), sooner.Lane()); g.Task != best {
			t.Error("the limit went to the task that waits shorter")
		}
	})
}

func TestClaimGivesNoMoreThanTheTakersAsk(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		a, b := spec{Queue: q, Handler: "a"}, spec{Queue: q, Handler: "b"}
		for range 10 {
			w.Submit(a)
			w.Submit(b)
		}
		takers := []dispatch.Taker{w.Taker(3, a.Lane()), w.Taker(2, b.Lane()), w.Taker(4, a.Lane(), b.Lane()), w.Taker(0, a.Lane())}
		got, err := n.Claim(t.Context(), []dispatch.Lane{a.Lane(), b.Lane()}, takers)
		if err != nil {
			t.Fatalf("Claim = %v", err)
		}
		count := map[int]int{}
		for _, g := range got.Grants {
			count[g.Taker]++
			if !slices.Contains(takers[g.Taker].Lanes, (dispatch.Lane{Queue: g.Queue, Handler: g.Handler, Version: g.HandlerVersion}).ID()) {
				t.Errorf("taker %d got a task of handler %s that it cannot run", g.Taker, g.Handler)
			}
		}
		if count[0] != 3 || count[1] != 2 || count[2] != 4 || count[3] != 0 {
			t.Errorf("takers got %v, want 3, 2, 4 and none", count)
		}
	})
}

func TestClaimStopsAtTheBytesThatATakerTakes(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Payload: `"` + strings.Repeat("x", 100<<10) + `"`}
		for range 5 {
			w.Submit(x)
		}
		taker := w.Taker(5, x.Lane())
		taker.Bytes = 250 << 10
		got, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
		if err != nil || len(got.Grants) != 2 || got.Lanes[x.Lane().ID()] != dispatch.LaneMore {
			t.Errorf("Claim gave %d tasks, lane end %v, %v; want 2 and more to come", len(got.Grants), got.Lanes, err)
		}
	})
}

// The scenarios of resource keys on real databases are one group (TEST-028): from here to
// TestTokensEndBeforeTheyWrap, of which TestKeysAreComparedByExactBytes is that of collations.

func TestTwoNodesAndTwoQueuesCompeteForOneKey(t *testing.T) { // TEST-004, LIC-020, ID-003
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		a, b := spec{Queue: w.NewQueue("a"), Key: "object"}, spec{Queue: w.NewQueue("b"), Key: "object"}
		nodes := []node{n, newNode(t, db.Reopen(t).DB, "node-b", dispatch.Config{})}
		for round := range 10 {
			// Both are READY, as two submits that do not see each other make them.
			first, second := w.Submit(a), w.Submit(b)
			w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane WHERE id IN (?, ?)", first, second)
			got := together(t, 2, func(i int) ([]dispatch.Grant, error) {
				x := []spec{a, b}[i]
				c, err := nodes[i].Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{w.Taker(4, x.Lane())})
				return c.Grants, err
			})
			grants := slices.Concat(got...)
			if len(grants) != 1 {
				t.Fatalf("round %d: %d claims of one key, want exactly 1", round, len(grants))
			}
			checkOnePermit(t, w, grants[0])
			w.Verify()
			if t.Failed() {
				return
			}
			drain(t, w, n, a.Lane(), b.Lane())
		}
	})
}

// checkOnePermit holds a keyed grant to LIC-002: a queue permit and a key permit, one
// attempt of the application.
func checkOnePermit(t *testing.T, w world, g dispatch.Grant) {
	t.Helper()
	if n := w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1 AND application_id = ?", w.Application); n != 1 {
		t.Errorf("application has %d live attempts, want 1", n)
	}
	if n := w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1 AND queue_id = ?", g.Queue); n != 1 {
		t.Errorf("queue has %d live attempts, want 1", n)
	}
	if _, holder := w.Key(w.Namespace, "object"); holder != g.Task {
		t.Errorf("key is held by %v, want %v", holder, g.Task)
	}
}

// drain ends whatever is live and claims and ends whatever waits, until nothing is left.
func drain(t *testing.T, w world, n node, lanes ...dispatch.Lane) {
	t.Helper()
	for {
		w.Exec("UPDATE attempt SET process_id = ? WHERE live = 1", w.Credential)
		endLive(t, w, n)
		taker := w.Taker(100, lanes...)
		taker.Process = w.Credential
		if len(claim(t, n, taker, lanes...)) == 0 {
			return
		}
	}
}

// endLive starts and finishes all live attempts of the process that drain uses.
func endLive(t *testing.T, w world, n node) {
	t.Helper()
	rows, err := w.DB.Read().QueryContext(t.Context(), "SELECT id, epoch FROM attempt WHERE live = 1")
	if err != nil {
		t.Fatal(err)
	}
	var refs []dispatch.Ref
	for rows.Next() {
		r := dispatch.Ref{Process: w.Credential, Namespace: w.Namespace}
		if err := rows.Scan(&r.Attempt, &r.Epoch); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, r)
	}
	rows.Close()
	for _, r := range refs {
		mustStart(t, n, r)
		if got := finish(t, n, success(r)); got.Status != "recorded" {
			t.Fatalf("finish = %+v", got)
		}
	}
}

// together runs f for 0 to n-1 at once and returns what each returned.
func together[A any](t *testing.T, n int, f func(i int) (A, error)) []A {
	t.Helper()
	var (
		wg      sync.WaitGroup
		results = make([]A, n)
		errs    = make([]error, n)
		ready   = make(chan struct{})
	)
	for i := range n {
		wg.Go(func() {
			<-ready
			results[i], errs[i] = f(i)
		})
	}
	close(ready)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("call %d = %v", i, err)
		}
	}
	return results
}

func TestBlockedTasksDoNotHideOthers(t *testing.T) { // TEST-006, KEY-011, KEY-013
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		busy := spec{Queue: q, Key: "busy", Delay: -time.Hour}
		lane := busy.Lane()
		holder := w.Submit(busy)
		taker := w.Taker(1, lane)
		if g := claimOne(t, n, taker, lane); g.Task != holder {
			t.Fatal("the first task was not claimed")
		}
		var blocked []sqldb.ID
		for range 20 {
			blocked = append(blocked, w.Submit(busy))
		}
		// As if all of them had been accepted before the key was taken.
		w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane WHERE state = 1")
		other := w.Submit(spec{Queue: q, Key: "free"})
		if g := claimOne(t, n, taker, lane); g.Task != other {
			t.Error("a task of another key was hidden by 20 blocked ones")
		}
		for _, id := range blocked {
			if s := w.Task(id); s.Attempts != 0 || s.Dispatch != task.DispatchKeyBlocked || s.Revision != 1 {
				t.Fatalf("blocked task = %+v, want it parked, not attempted, revision 1 (STATE-027)", s)
			}
		}
		if got := claim(t, n, taker, lane); len(got) != 0 {
			t.Errorf("a blocked task was claimed")
		}
	})
}

func TestBlockedTasksBeyondOneBatchDoNotHideOthers(t *testing.T) { // KEY-011
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		busy := spec{Queue: q, Key: "busy", Delay: -time.Hour}
		w.Submit(busy)
		claimOne(t, n, w.Taker(1, busy.Lane()), busy.Lane())
		for range 250 {
			w.Submit(busy)
		}
		w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane WHERE state = 1")
		other := w.Submit(spec{Queue: q, Key: "free"})
		if g := claimOne(t, n, w.Taker(100, busy.Lane()), busy.Lane()); g.Task != other {
			t.Error("a task of another key was hidden by 250 blocked ones")
		}
	})
}

func TestOneBatchTakesOneTaskOfAKey(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object"}
		for range 3 {
			w.Submit(x)
		}
		w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane WHERE state = 1")
		claimOne(t, n, w.Taker(10, x.Lane()), x.Lane())
	})
}

func TestSameKeyInAnotherNamespaceIsIndependent(t *testing.T) { // TEST-007, KEY-014, ID-006
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		other := w.NewNamespace("other")
		a := spec{Queue: w.NewQueue("a"), Key: "object"}
		b := spec{Namespace: other, Queue: w.NewQueueIn(other, "b"), Key: "object"}
		first, second := w.Submit(a), w.Submit(b)
		takers := []dispatch.Taker{w.Taker(1, a.Lane()), w.Taker(1, b.Lane())}
		takers[1].Namespace = other
		got, err := n.Claim(t.Context(), []dispatch.Lane{a.Lane(), b.Lane()}, takers)
		if err != nil || len(got.Grants) != 2 {
			t.Fatalf("Claim gave %d tasks, %v; want both", len(got.Grants), err)
		}
		for _, g := range got.Grants {
			if g.Token != 1 || g.Task != first && g.Task != second {
				t.Errorf("grant %+v, want token 1", g)
			}
		}
	})
}

func TestKeysAreComparedByExactBytes(t *testing.T) { // TEST-011, TEST-012, KEY-005…007, TEST-032
	keys := []string{"object/a", "object/A", "object/\u00e9", "object/e\u0301", "\u0301\u0302", "\u0302\u0301", "\u200b", "\u200d\u200b"}
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		for _, key := range keys {
			w.Submit(spec{Queue: q, Key: key})
		}
		lane := spec{Queue: q, Key: "k"}.Lane()
		got := claim(t, n, w.Taker(100, lane), lane)
		if len(got) != len(keys) {
			t.Fatalf("claimed %d tasks of %d different keys at once", len(got), len(keys))
		}
		for _, g := range got {
			if g.Token != 1 || !slices.Contains(keys, g.ConcurrencyKey) {
				t.Errorf("key %q came with token %d, want 1", g.ConcurrencyKey, g.Token)
			}
		}
		w.Submit(spec{Queue: q, Key: "\u200b"})
		if got := claim(t, n, w.Taker(100, lane), lane); len(got) != 0 {
			t.Errorf("a key of zero-width characters was taken for no key")
		}
	})
}

func TestClaimEventFailureRollsEverythingBack(t *testing.T) { // TEST-010, LIC-001, LIC-012, TEST-032
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object"}
		plain := spec{Queue: x.Queue}
		ids := []sqldb.ID{w.Submit(x), w.Submit(plain)}
		w.Exec("ALTER TABLE task_event RENAME TO task_event_away")
		_, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane(), plain.Lane()}, []dispatch.Taker{w.Taker(4, x.Lane(), plain.Lane())})
		w.Exec("ALTER TABLE task_event_away RENAME TO task_event")
		if err == nil {
			t.Fatal("Claim succeeded although its event could not be written")
		}
		if n := w.Int("SELECT COUNT(*) FROM attempt"); n != 0 {
			t.Errorf("%d attempts are left of a claim that failed", n)
		}
		if version, holder := w.Key(w.Namespace, "object"); version != 0 || !holder.IsZero() {
			t.Errorf("key has version %d and holder %v, want it untouched", version, holder)
		}
		for _, id := range ids {
			if s := w.Task(id); s.State != "WAITING" || s.Attempts != 0 || s.Revision != 1 {
				t.Errorf("task = %+v, want it untouched", s)
			}
		}
		if got := claim(t, n, w.Taker(4, x.Lane(), plain.Lane()), x.Lane(), plain.Lane()); len(got) != 2 || got[0].Token > 1 {
			t.Errorf("after the failure %d tasks were claimed, want 2 with token 1", len(got))
		}
	})
}

func TestTokensEndBeforeTheyWrap(t *testing.T) { // TEST-013, TEST-058, TOK-007, TOK-008, AMB-009, AMB-010, LIMIT-014
	const last = math.MaxUint64 - 1 // the largest token, 2^64-2
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		x := spec{Queue: q, Key: "worn", Delay: -time.Hour}
		lane := x.Lane()
		w.SetKeyVersion(w.Namespace, "worn", last-1) // 2^64-3: one claim and its release fit
		first, second := w.Submit(x), w.Submit(x)
		taker := w.Taker(2, lane)
		g := claimOne(t, n, taker, lane)
		if g.Task != first || g.Token != last {
			t.Fatalf("token %d, want %d", g.Token, uint64(last))
		}
		ref := refOf(taker, g)
		mustStart(t, n, ref)
		if got := finish(t, n, success(ref)); got.Status != "recorded" {
			t.Fatalf("the last release = %+v, want it recorded", got)
		}
		if version, holder := w.Key(w.Namespace, "worn"); version != math.MaxUint64 || !holder.IsZero() {
			t.Errorf("key has version %d and holder %v, want 2^64-1 and none", version, holder)
		}
		w.SetKeyVersion(w.Namespace, "edge", last) // a claim would fit, its release would not
		edge := spec{Queue: q, Key: "edge", Delay: -time.Hour}
		third, fourth, other := w.Submit(x), w.Submit(edge), w.Submit(spec{Queue: q, Key: "new"})
		w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane WHERE state = 1") // as if nobody knew
		if g := claimOne(t, n, taker, lane); g.Task != other {
			t.Error("an exhausted key hid the task of another key")
		}
		for _, id := range []sqldb.ID{second, third, fourth} {
			if s := w.Task(id); s.State != "WAITING" || s.Attempts != 0 || s.Dispatch != task.DispatchKeyBlocked {
				t.Errorf("task of an exhausted key = %+v, want it parked and not attempted", s)
			}
		}
	})
}

func TestClaimChecksEveryCondition(t *testing.T) {
	cases := []struct {
		name string
		end  dispatch.LaneEnd
		make func(w world, x *spec)
	}{
		{"paused queue", dispatch.LaneClosed, func(w world, x *spec) { w.Exec("UPDATE queue SET paused = 1") }},
		{"stopped dispatch", dispatch.LaneClosed, func(w world, x *spec) { w.Exec("UPDATE application SET dispatch_stopped = 1") }},
		{"disabled application", dispatch.LaneClosed, func(w world, x *spec) { w.Exec("UPDATE application SET state = 2") }},
		{"disabled namespace", dispatch.LaneClosed, func(w world, x *spec) { w.Exec("UPDATE namespace SET state = 2") }},
		{"passed deadline", dispatch.LaneEmpty, func(w world, x *spec) { x.Timeout = -time.Second }},
		{"passed start deadline", dispatch.LaneEmpty, func(w world, x *spec) { x.StartWithin = -time.Second }},
		{"delayed", dispatch.LaneEmpty, func(w world, x *spec) { x.Delay, x.Priority = time.Hour, 9 }},
	}
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		for _, c := range cases {
			x := spec{Queue: w.NewQueue(c.name)}
			c.make(w, &x)
			id := w.Submit(x)
			got, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{w.Taker(1, x.Lane())})
			if err != nil || len(got.Grants) != 0 || got.Lanes[x.Lane().ID()] != c.end {
				t.Errorf("%s: Claim gave %d tasks and lane end %v, %v; want none and %v", c.name, len(got.Grants), got.Lanes, err, c.end)
			}
			if s := w.Task(id); s.State != "WAITING" || s.Attempts != 0 {
				t.Errorf("%s: task = %+v", c.name, s)
			}
			w.Exec("UPDATE queue SET paused = 0")
			w.Exec("UPDATE application SET dispatch_stopped = 0, state = 1")
			w.Exec("UPDATE namespace SET state = 1")
		}
	})
}

// Lanes that a claim has read to their ends are empty, not held by somebody: nobody has to
// look again soon.
func TestClaimKnowsALaneThatItHasEmptied(t *testing.T) { // cost law 2
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x, y := spec{Queue: w.NewQueue("q")}, spec{Queue: w.NewQueue("r")}
		for _, one := range []spec{x, x, x, y} {
			w.Submit(one)
		}
		lanes := []dispatch.Lane{x.Lane(), y.Lane()}
		got, err := n.Claim(t.Context(), lanes, []dispatch.Taker{w.Taker(50, lanes...)})
		if err != nil || len(got.Grants) != 4 {
			t.Fatalf("Claim gave %d, %v; want all 4", len(got.Grants), err)
		}
		for _, l := range lanes {
			if end := got.Lanes[l.ID()]; end != dispatch.LaneEmpty {
				t.Errorf("lane end %v, want %v", end, dispatch.LaneEmpty)
			}
		}
	})
}

func TestClaimTellsTwoKindsOfTaskWithOneHashApart(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x, y := spec{Queue: w.NewQueue("q")}, spec{Queue: w.NewQueue("r")}
		id := w.Submit(x)
		w.Exec("UPDATE task SET lane = ?, dispatch_lane = ? WHERE id = ?", y.Lane().ID(), y.Lane().ID(), id)
		if got := claim(t, n, w.Taker(1, y.Lane()), y.Lane()); len(got) != 0 {
			t.Error("a worker of another queue got the task")
		}
		w.Exec("UPDATE task SET lane = ?, dispatch_lane = ? WHERE id = ?", x.Lane().ID(), x.Lane().ID(), id)
	})
}

func TestClaimGivesNothingToAReplacedSession(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		for range 4 {
			w.Submit(x)
		}
		old, current, elsewhere := w.Taker(1, x.Lane()), w.Taker(1, x.Lane()), w.Taker(1, x.Lane())
		old.ConnectedAt, current.ConnectedAt, elsewhere.ConnectedAt = 5, 6, 6
		for i, p := range []sqldb.ID{old.Process, current.Process, elsewhere.Process} {
			w.Exec(`INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id, connected_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, 6, 6)`, w.Namespace, p, w.Credential, make([]byte, 32), []byte("{}"), []byte([]string{"node-a", "node-a", "node-b"}[i]))
		}
		got, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{old, current, elsewhere})
		slices.Sort(got.Replaced)
		if err != nil || len(got.Grants) != 1 || got.Grants[0].Taker != 1 || !slices.Equal(got.Replaced, []int{0, 2}) {
			t.Errorf("Claim = %+v, %v; want one grant for taker 1, takers 0 and 2 replaced", got, err)
		}
	})
}

func TestNothingBeginsForAnEndedCredential(t *testing.T) { // ERR-002
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		w.Submit(x)
		w.Submit(x)
		taker := w.Taker(1, x.Lane())
		taker.ConnectedAt = 6
		w.Exec(`INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id, connected_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, 6, 6)`, w.Namespace, taker.Process, w.Credential, make([]byte, 32), []byte("{}"), []byte("node-a"))
		claim := func() dispatch.Claimed {
			got, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		first := claim()
		if len(first.Grants) != 1 {
			t.Fatalf("Claim = %+v, want a grant", first)
		}
		for _, change := range []string{"UPDATE credential SET revoked_at = 1", "UPDATE credential SET revoked_at = NULL, expires_at = 1"} {
			w.Exec(change)
			if got := claim(); len(got.Grants) != 0 || !slices.Equal(got.Barred, []int{0}) || len(got.Replaced) != 0 {
				t.Errorf("after %s: Claim = %+v, want nothing and the taker barred", change, got)
			}
			g := first.Grants[0]
			got, err := n.Start(t.Context(), []dispatch.Ref{{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: w.Namespace}})
			if err != nil || got[0].Refusal == nil || got[0].Refusal.Code != orbit.CodeUnauthenticated {
				t.Errorf("after %s: Start = %+v, %v, want it refused", change, got, err)
			}
		}
	})
}

func TestQueueLimitHoldsExactly(t *testing.T) { // LIC-013, LIC-018
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		limited, free := spec{Queue: w.NewQueue("limited")}, spec{Queue: w.NewQueue("free")}
		lanes := []dispatch.Lane{limited.Lane(), free.Lane()}
		for range 30 {
			w.Submit(limited)
			w.Submit(free)
		}
		w.Exec("UPDATE queue SET max_concurrency = 5 WHERE id = ?", limited.Queue)
		nodes := []node{n, newNode(t, db.Reopen(t).DB, "node-b", dispatch.Config{}), newNode(t, db.Reopen(t).DB, "node-c", dispatch.Config{})}
		got := together(t, 6, func(i int) (dispatch.Claimed, error) {
			return nodes[i%3].Claim(t.Context(), lanes, []dispatch.Taker{w.Taker(9, lanes...)})
		})
		count := map[sqldb.ID]int{}
		for _, c := range got {
			for _, g := range c.Grants {
				count[g.Queue]++
			}
		}
		if count[limited.Queue] != 5 || count[free.Queue] < 20 {
			t.Errorf("claimed %d of the limited queue and %d of the other, want 5 and many", count[limited.Queue], count[free.Queue])
		}
		c, err := n.Claim(t.Context(), lanes[:1], []dispatch.Taker{w.Taker(1, lanes[0])})
		if err != nil || len(c.Grants) != 0 || c.Lanes[lanes[0].ID()] != dispatch.LaneFull {
			t.Errorf("Claim of a full queue = %+v, %v", c, err)
		}
		w.Exec("UPDATE application_quota SET max_active_attempts = ?", w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1")+2)
		c, err = n.Claim(t.Context(), lanes, []dispatch.Taker{w.Taker(50, lanes...)})
		if err != nil || len(c.Grants) > 2 {
			t.Errorf("Claim under the limit of the application gave %d, %v; want at most 2", len(c.Grants), err)
		}
		w.Exec("UPDATE application_quota SET max_active_attempts = ?", w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"))
		c, err = n.Claim(t.Context(), lanes[1:], []dispatch.Taker{w.Taker(1, lanes[1])})
		if err != nil || len(c.Grants) != 0 || c.Lanes[lanes[1].ID()] != dispatch.LaneAppFull {
			t.Errorf("Claim of a full application = %+v, %v", c, err)
		}
	})
}

func TestManyClaimersTakeEachTaskOnce(t *testing.T) {
	const tasks, claimers = 300, 8
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		for range tasks {
			w.Submit(x)
		}
		nodes := []node{n, newNode(t, db.Reopen(t).DB, "node-b", dispatch.Config{})}
		got := together(t, claimers, func(i int) ([]dispatch.Grant, error) {
			var mine []dispatch.Grant
			for misses := 0; misses < 3; {
				c, err := nodes[i%2].Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{w.Taker(7, x.Lane())})
				if err != nil {
					return nil, err
				}
				if len(c.Grants) == 0 {
					misses++
				}
				mine = append(mine, c.Grants...)
			}
			return mine, nil
		})
		seen := map[sqldb.ID]bool{}
		for _, g := range slices.Concat(got...) {
			if seen[g.Task] {
				t.Errorf("task %v was claimed twice", g.Task)
			}
			seen[g.Task] = true
		}
		if len(seen) != tasks {
			t.Errorf("%d of %d tasks were claimed", len(seen), tasks)
		}
	})
}

// The exclusion that the whole project rests on: submitters, claimers and finishers at
// once, on few keys, over several lanes and nodes.
// ID-004, TOK-004.
func TestOneHolderPerKeyWhateverHappens(t *testing.T) {
	const tasks, keys, workers = 240, 6, 6
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		queues := []sqldb.ID{w.NewQueue("a"), w.NewQueue("b")}
		lanes := []dispatch.Lane{{Queue: queues[0], Handler: "h", Version: "v1", Keyed: true}, {Queue: queues[1], Handler: "h", Version: "v1", Keyed: true}}
		nodes := []node{n, newNode(t, db.Reopen(t).DB, "node-b", dispatch.Config{})}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var held sync.Map // key to attempt
		together(t, workers+2, func(i int) (int, error) {
			if i >= workers {
				for j := range tasks / 2 {
					x := spec{Queue: queues[j%2], Key: fmt.Sprintf("key-%d", j%keys), Priority: j % 3, Idempotent: true, MaxAttempts: 3}
					if _, err := w.TrySubmit(ctx, x); err != nil {
						return 0, err
					}
				}
				return 0, nil
			}
			k := worker{w: w, node: nodes[i%2], lanes: lanes, held: &held, total: tasks}
			return k.run(ctx, i)
		})
		if n := w.Int("SELECT COUNT(*) FROM task WHERE state = 5"); n != tasks {
			t.Errorf("%d of %d tasks succeeded", n, tasks)
		}
	})
}

// A worker claims, starts and ends tasks, now and then handing one back or failing it,
// until all tasks have succeeded.
type worker struct {
	w     world
	node  node
	lanes []dispatch.Lane
	held  *sync.Map
	total int64
}

func (k worker) run(ctx context.Context, seed int) (int, error) {
	for step := seed; ; step++ {
		taker := k.w.Taker(5, k.lanes...)
		c, err := k.node.Claim(ctx, k.lanes, []dispatch.Taker{taker})
		if err != nil {
			return 0, err
		}
		if len(c.Grants) == 0 {
			if done, err := k.allDone(ctx); done || err != nil {
				return 0, err
			}
		}
		for _, g := range c.Grants {
			if other, busy := k.held.LoadOrStore(g.ConcurrencyKey, g.Attempt); busy {
				return 0, fmt.Errorf("attempt %v holds key %s that %v holds", g.Attempt, g.ConcurrencyKey, other)
			}
		}
		for i, g := range c.Grants {
			k.held.Delete(g.ConcurrencyKey) // before the permit can pass to somebody else
			if err := k.end(ctx, refOf(taker, g), g, (step+i)%7); err != nil {
				return 0, err
			}
		}
	}
}

func (k worker) allDone(ctx context.Context) (bool, error) {
	var n int64
	err := k.w.DB.Read().QueryRowContext(ctx, "SELECT COUNT(*) FROM task WHERE state = 5").Scan(&n)
	return n == k.total, err
}

func (k worker) end(ctx context.Context, ref dispatch.Ref, g dispatch.Grant, how int) error {
	if how == 0 {
		got, err := k.node.Return(ctx, []dispatch.Ref{ref})
		if err == nil && got[0].Refusal != nil {
			err = fmt.Errorf("return refused: %+v", *got[0].Refusal)
		}
		return err
	}
	started, err := k.node.Start(ctx, []dispatch.Ref{ref})
	if err != nil || started[0].Refusal != nil {
		return fmt.Errorf("start = %+v, %w", started, err)
	}
	got, err := k.node.Finish(ctx, []dispatch.Finish{success(ref)})
	if err != nil || got[0].Status != "recorded" {
		return fmt.Errorf("finish = %+v, %w", got, err)
	}
	return nil
}

package admin_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/task"
)

// makeKeys makes the rows of keys as a submit does.
func makeKeys(t *testing.T, db *sqldb.DB, namespace sqldb.ID, names ...string) {
	t.Helper()
	keys := map[[32]byte]keyrow.Key{}
	for _, name := range names {
		keys[task.KeyDigest(namespace, name)] = keyrow.Key{Namespace: namespace, Text: name}
	}
	if err := keyrow.Make(t.Context(), db, keys); err != nil {
		t.Fatal(err)
	}
}

func wantVersions(t *testing.T, w *dispatchtest.World, namespace sqldb.ID, want map[string]uint64) {
	t.Helper()
	for key, version := range want {
		if got, _ := w.Key(namespace, key); got != version {
			t.Errorf("key %q is at %d, want %d", key, got, version)
		}
	}
}

func raise(t *testing.T, db *sqldb.DB, r admin.TokenRaise) admin.TokensRaised {
	t.Helper()
	r.Reason = "restored"
	done, err := admin.NewOperator(db, "who").RaiseTokens(t.Context(), r)
	if err != nil {
		t.Fatalf("RaiseTokens(%+v) = %v", r, err)
	}
	return done
}

func raiseNotes(t *testing.T, db *dbtest.DB) (notes []string) {
	t.Helper()
	err := sqldb.EachRow(t.Context(), db.Write(), "SELECT note FROM audit WHERE action = ? AND actor = ? ORDER BY seq", []any{[]byte("tokens.raise"), []byte("who")},
		func(scan func(...any) error) error {
			var note string
			err := scan(&note)
			notes = append(notes, note)
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

func TestRaiseLiftsWhatIsBelowAndLowersNothing(t *testing.T) { // TOK-018, TOK-006
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		other := w.NewNamespace("other")
		makeKeys(t, db.DB, w.Namespace, "low", "exact", "high", "top", "worn")
		makeKeys(t, db.DB, other, "low")
		for key, version := range map[string]uint64{"exact": 1 << 63, "high": 1<<63 + 1, "top": admin.MaxRaise, "worn": math.MaxUint64} {
			w.SetKeyVersion(w.Namespace, key, version)
		}
		const least uint64 = 1 << 63 // beyond what is signed
		plan := raise(t, db.DB, admin.TokenRaise{Min: least, DryRun: true})
		if want := (admin.TokensRaised{Min: least, FloorAfter: least, Keys: 6, Raised: 2}); plan != want {
			t.Errorf("dry run = %+v, want %+v", plan, want)
		}
		wantVersions(t, w, w.Namespace, map[string]uint64{"low": 0})
		if notes := raiseNotes(t, db); len(notes) != 0 {
			t.Errorf("a dry run left %q in the audit", notes)
		}
		done := raise(t, db.DB, admin.TokenRaise{Min: least})
		if done != plan {
			t.Errorf("raise = %+v, want what the dry run said: %+v", done, plan)
		}
		want := map[string]uint64{"low": least, "exact": least, "high": least + 1, "top": admin.MaxRaise, "worn": math.MaxUint64}
		wantVersions(t, w, w.Namespace, want)
		wantVersions(t, w, other, map[string]uint64{"low": least})

		done = raise(t, db.DB, admin.TokenRaise{Min: 7})
		if want := (admin.TokensRaised{Min: 7, FloorBefore: least, FloorAfter: least, Keys: 6}); done != want {
			t.Errorf("a lower raise = %+v, want %+v", done, want)
		}
		wantVersions(t, w, w.Namespace, want)
		makeKeys(t, db.DB, w.Namespace, "later", "low")
		wantVersions(t, w, w.Namespace, map[string]uint64{"later": least, "low": least})

		wantNotes := []string{
			"all namespaces to 9223372036854775808; floor 0 -> 9223372036854775808; keys raised 2 (finished, of 6 keys); restored",
			"all namespaces to 7; floor 9223372036854775808 -> 9223372036854775808; keys raised 0 (finished, of 6 keys); restored",
		}
		if notes := raiseNotes(t, db); strings.Join(notes, "\n") != strings.Join(wantNotes, "\n") {
			t.Errorf("audit tells %q, want %q", notes, wantNotes)
		}
	})
}

func TestRaiseInANamespaceLeavesTheOthers(t *testing.T) { // TOK-018
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		other := w.NewNamespace("other")
		makeKeys(t, db.DB, w.Namespace, "k")
		makeKeys(t, db.DB, other, "k")
		place := admin.Place{Application: "app", Namespace: "other"}
		done := raise(t, db.DB, admin.TokenRaise{Place: place, Min: 50})
		if want := (admin.TokensRaised{Min: 50, FloorAfter: 50, Keys: 1, Raised: 1}); done != want {
			t.Errorf("raise = %+v, want %+v", done, want)
		}
		if done = raise(t, db.DB, admin.TokenRaise{Min: 20}); done.FloorBefore != 0 || done.Raised != 1 {
			t.Errorf("raise of all = %+v", done)
		}
		makeKeys(t, db.DB, w.Namespace, "new")
		makeKeys(t, db.DB, other, "new")
		wantVersions(t, w, w.Namespace, map[string]uint64{"k": 20, "new": 20})
		wantVersions(t, w, other, map[string]uint64{"k": 50, "new": 50})
		// Where all are above a namespace's own floor, theirs counts.
		if done = raise(t, db.DB, admin.TokenRaise{Min: 60}); done.FloorBefore != 20 {
			t.Errorf("raise of all = %+v", done)
		}
		if done = raise(t, db.DB, admin.TokenRaise{Place: place, Min: 55}); done.FloorBefore != 60 || done.FloorAfter != 60 {
			t.Errorf("a lower raise = %+v", done)
		}
		makeKeys(t, db.DB, other, "newer")
		wantVersions(t, w, other, map[string]uint64{"newer": 60})
	})
}

func TestRaiseByCountsFromTheHighestThatIsNotUsedUp(t *testing.T) { // TOK-018, TOK-007
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		makeKeys(t, db.DB, w.Namespace, "a", "b", "worn")
		w.SetKeyVersion(w.Namespace, "b", 1<<40)
		w.SetKeyVersion(w.Namespace, "worn", admin.MaxRaise+1)
		if done := raise(t, db.DB, admin.TokenRaise{By: 1000}); done.Min != 1<<40+1000 || done.Raised != 2 {
			t.Errorf("raise = %+v", done)
		}
		wantVersions(t, w, w.Namespace, map[string]uint64{"a": 1<<40 + 1000, "b": 1<<40 + 1000, "worn": admin.MaxRaise + 1})
		_, err := admin.NewOperator(db.DB, "who").RaiseTokens(t.Context(), admin.TokenRaise{By: admin.MaxRaise - 1<<40 - 999, Reason: "r"})
		var invalid *admin.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "by" {
			t.Errorf("raise beyond the last number = %v, want an InvalidError of by", err)
		}
		if done := raise(t, db.DB, admin.TokenRaise{By: admin.MaxRaise - 1<<40 - 1000}); done.Min != admin.MaxRaise {
			t.Errorf("raise to the last number = %+v", done)
		}
	})
}

func TestRaiseRefusesWhatMakesNoSense(t *testing.T) { // TOK-018
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		dispatchtest.New(t, db.DB)
		for field, r := range map[string]admin.TokenRaise{
			"min":         {Min: admin.MaxRaise + 1, Reason: "r"},
			"by":          {Min: 1, By: 1, Reason: "r"},
			"reason":      {Min: 1},
			"namespace":   {Min: 1, Reason: "r", Place: admin.Place{Application: "app"}},
			"application": {Min: 1, Reason: "r", Place: admin.Place{Namespace: "default"}},
		} {
			_, err := admin.NewOperator(db.DB, "who").RaiseTokens(t.Context(), r)
			var invalid *admin.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%+v = %v, want an InvalidError of %s", r, err, field)
			}
		}
		_, err := admin.NewOperator(db.DB, "who").RaiseTokens(t.Context(), admin.TokenRaise{Reason: "r"})
		if err == nil {
			t.Error("raise to nothing succeeded")
		}
		_, err = admin.NewOperator(db.DB, "who").RaiseTokens(t.Context(), admin.TokenRaise{Min: 1, Reason: "r", Place: admin.Place{Application: "app", Namespace: "none"}})
		if !errors.Is(err, admin.ErrMissing) {
			t.Errorf("raise in no namespace = %v, want ErrMissing", err)
		}
		if n := count(t, db, "audit"); n != 0 {
			t.Errorf("refusals left %d audit rows", n)
		}
	})
}

// A rig is a world with a node and a taker of keyed tasks.
type rig struct {
	*dispatchtest.World
	t     *testing.T
	node  *dispatch.Dispatcher
	queue sqldb.ID
	taker dispatch.Taker
}

func newRig(t *testing.T, db *dbtest.DB) *rig {
	t.Helper()
	w := dispatchtest.New(t, db.DB)
	node, err := dispatch.New(db.DB, "node", dispatch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{World: w, t: t, node: node, queue: w.NewQueue("q")}
	r.taker = w.Taker(10, r.lane())
	return r
}

func (r *rig) lane() dispatch.Lane { return dispatchtest.Task{Queue: r.queue, Key: "k"}.Lane() }

func (r *rig) submit(key string) { r.Submit(dispatchtest.Task{Queue: r.queue, Key: key}) }

// claim returns the one grant there is.
func (r *rig) claim() dispatch.Grant {
	r.t.Helper()
	got, err := r.node.Claim(r.t.Context(), []dispatch.Lane{r.lane()}, []dispatch.Taker{r.taker})
	if err != nil || len(got.Grants) != 1 {
		r.t.Fatalf("Claim = %d grants, %v; want 1", len(got.Grants), err)
	}
	return got.Grants[0]
}

// execute starts what was claimed and finishes it.
func (r *rig) execute(ctx context.Context, g dispatch.Grant) error {
	ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: r.taker.Process, Namespace: r.taker.Namespace}
	started, err := r.node.Start(ctx, []dispatch.Ref{ref})
	if err != nil || started[0].Refusal != nil {
		return fmt.Errorf("start: %+v, %w", started, err)
	}
	finished, err := r.node.Finish(ctx, []dispatch.Finish{{
		Ref: ref, Receipt: []byte("r-" + ref.Attempt.String()), Outcome: task.OutcomeSucceeded, Result: []byte(`{}`),
	}})
	if err != nil || finished[0].Refusal != nil {
		return fmt.Errorf("finish: %+v, %w", finished, err)
	}
	return nil
}

func TestRaiseLeavesAHolderItsKeyAndToken(t *testing.T) { // TOK-018, TOK-010, TOK-004
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		r := newRig(t, db)
		r.submit("k")
		r.submit("k")
		g := r.claim()
		if done := raise(t, db.DB, admin.TokenRaise{Min: 1000}); done.Raised != 1 {
			t.Errorf("raise = %+v", done)
		}
		r.Verify()
		if version, holder := r.Key(r.Namespace, "k"); version != 1000 || holder != g.Task {
			t.Errorf("key is at %d, held by %v; want 1000, %v", version, holder, g.Task)
		}
		if n := count(t, db, "attempt WHERE id = ? AND concurrency_token = ?", g.Attempt, db.Dialect().Uint64(g.Token)); n != 1 {
			t.Error("the holder's token has changed")
		}
		if err := r.execute(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		wantVersions(t, r.World, r.Namespace, map[string]uint64{"k": 1001}) // TOK-005
		if next := r.claim(); next.Token != 1002 {
			t.Errorf("next token %d, want 1002", next.Token)
		}
	})
}

func TestAKeyAtTheHighestRaiseIsGivenOnceMore(t *testing.T) { // TOK-018, TOK-008, TEST-013
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		r := newRig(t, db)
		r.submit("k")
		r.submit("k")
		raise(t, db.DB, admin.TokenRaise{Min: admin.MaxRaise})
		g := r.claim()
		if g.Token != math.MaxUint64-1 {
			t.Errorf("token %d, want 2^64-2", g.Token)
		}
		if err := r.execute(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		wantVersions(t, r.World, r.Namespace, map[string]uint64{"k": math.MaxUint64})
		got, err := r.node.Claim(t.Context(), []dispatch.Lane{r.lane()}, []dispatch.Taker{r.taker})
		if err != nil || len(got.Grants) != 0 {
			t.Errorf("Claim of a key that is used up = %d grants, %v", len(got.Grants), err)
		}
	})
}

// Claims, releases, raises and new keys all at once: each key's tokens go up in the order
// in which they were issued, and no key stays below what was raised to.
func TestTokensGoUpWhileTheyAreRaised(t *testing.T) { // TOK-018, TOK-004, TOK-011
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		r := newRig(t, db)
		const tasks, keys, raises = 60, 3, 12
		for i := range tasks {
			r.submit(fmt.Sprint("k", i%keys))
		}
		var (
			mu     sync.Mutex
			last   = map[string]uint64{}
			left   atomic.Int64
			others sync.WaitGroup
		)
		left.Store(tasks)
		for range 2 {
			others.Go(func() {
				for left.Load() > 0 && t.Context().Err() == nil && !t.Failed() {
					got, err := r.node.Claim(t.Context(), []dispatch.Lane{r.lane()}, []dispatch.Taker{r.taker})
					if err != nil {
						t.Errorf("Claim = %v", err)
					}
					for _, g := range got.Grants {
						mu.Lock()
						if g.Token <= last[g.ConcurrencyKey] {
							t.Errorf("key %s: token %d after %d", g.ConcurrencyKey, g.Token, last[g.ConcurrencyKey])
						}
						last[g.ConcurrencyKey] = g.Token
						mu.Unlock()
						if err := r.execute(t.Context(), g); err != nil {
							t.Error(err)
						}
						left.Add(-1)
					}
				}
			})
		}
		var made atomic.Int64
		others.Go(func() {
			for i := 0; left.Load() > 0 && !t.Failed(); i++ {
				makeKeys(t, db.DB, r.Namespace, fmt.Sprint("new", i))
				made.Add(1)
			}
		})
		var least uint64
		for i := range raises {
			least = uint64(1000 * (i + 1))
			raise(t, db.DB, admin.TokenRaise{Min: least})
			if n := count(t, db, "resource WHERE version < ?", db.Dialect().Uint64(least)); n != 0 {
				t.Errorf("%d keys are below %d after a raise to it", n, least)
			}
		}
		others.Wait()
		if made.Load() == 0 || len(last) != keys {
			t.Errorf("made %d keys, saw tokens of %d", made.Load(), len(last))
		}
		if n := count(t, db, "resource WHERE version < ?", db.Dialect().Uint64(least)); n != 0 {
			t.Errorf("%d keys are below %d", n, least)
		}
	})
}

func manyKeys(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("k", i))
	}
	return names
}

// The answer to each commit in turn is lost, or the commit itself: the work is done, and
// counted, once.
func TestRaiseResolvesEachUnknownCommit(t *testing.T) { // TOK-018
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		const rows, commits = 250, 5 // floor, three batches, the end
		makeKeys(t, db.DB, w.Namespace, manyKeys(rows)...)
		faults := dbfault.Open(t, db)
		least := uint64(0)
		for at := 1; at <= commits; at++ {
			for _, verdict := range []dbfault.Verdict{dbfault.LoseAnswer, dbfault.CutBefore} {
				least += 10
				fired := false
				faults.OnCommit(func(n int) dbfault.Verdict {
					if n == at {
						fired = true
						return verdict
					}
					return dbfault.Pass
				})
				done := raise(t, faults.DB, admin.TokenRaise{Min: least})
				if !fired || done.Raised != rows || done.Keys != rows || done.FloorBefore != least-10 || done.FloorAfter != least {
					t.Errorf("commit %d, verdict %d, fired %v: %+v", at, verdict, fired, done)
				}
				if n := count(t, db, "resource WHERE version <> ?", db.Dialect().Uint64(least)); n != 0 {
					t.Errorf("commit %d, verdict %d: %d keys are not at %d", at, verdict, n, least)
				}
			}
		}
		if notes := raiseNotes(t, db); len(notes) != 2*commits {
			t.Errorf("%d audit rows, want %d", len(notes), 2*commits)
		}
	})
}

func TestARaiseThatWasCutOffGoesOn(t *testing.T) { // TOK-018
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		const rows = 250
		makeKeys(t, db.DB, w.Namespace, manyKeys(rows)...)
		faults := dbfault.Open(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		faults.OnCommit(func(n int) dbfault.Verdict {
			if n == 3 { // the second batch
				cancel()
				return dbfault.CutBefore
			}
			return dbfault.Pass
		})
		r := admin.TokenRaise{Min: 500, Reason: "restored"}
		done, err := admin.NewOperator(faults.DB, "who").RaiseTokens(ctx, r)
		if err == nil || done.FloorAfter != 500 {
			t.Fatalf("cut off = %+v, %v", done, err)
		}
		if low := count(t, db, "resource WHERE version < ?", db.Dialect().Uint64(500)); low != rows-100 {
			t.Errorf("%d keys are low after the first batch, want %d", low, rows-100)
		}
		makeKeys(t, db.DB, w.Namespace, "meanwhile")
		wantVersions(t, w, w.Namespace, map[string]uint64{"meanwhile": 500})
		if done = raise(t, db.DB, r); done.Raised != rows-100 || done.FloorBefore != 500 {
			t.Errorf("run again = %+v", done)
		}
		if low := count(t, db, "resource WHERE version <> ?", db.Dialect().Uint64(500)); low != 0 {
			t.Errorf("%d keys are not at 500", low)
		}
		notes := raiseNotes(t, db)
		if len(notes) != 2 || !strings.Contains(notes[0], "keys raised 100 (not finished)") || !strings.Contains(notes[1], "keys raised 150 (finished, of 251 keys)") {
			t.Errorf("audit tells %q", notes)
		}
	})
}

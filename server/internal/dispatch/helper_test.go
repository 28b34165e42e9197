package dispatch_test

import (
	"context"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// run runs f on each engine with a world and a node of its own.
func run(t *testing.T, f func(t *testing.T, w *dispatchtest.World, node *dispatch.Dispatcher, db *dbtest.DB)) {
	t.Helper()
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		f(t, w, newNode(t, db.DB, "node-a", dispatch.Config{}), db)
	}, migrations.Server)
}

func newNode(t testing.TB, db *sqldb.DB, name string, cfg dispatch.Config) *dispatch.Dispatcher {
	t.Helper()
	node, err := dispatch.New(db, name, cfg)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	return node
}

// claim claims for one taker and returns what it got.
func claim(t testing.TB, node *dispatch.Dispatcher, taker dispatch.Taker, lanes ...dispatch.Lane) []dispatch.Grant {
	t.Helper()
	got, err := node.Claim(t.Context(), lanes, []dispatch.Taker{taker})
	if err != nil {
		t.Fatalf("Claim = %v", err)
	}
	return got.Grants
}

// claimOne claims the one task that there is to claim.
func claimOne(t testing.TB, node *dispatch.Dispatcher, taker dispatch.Taker, lanes ...dispatch.Lane) dispatch.Grant {
	t.Helper()
	got := claim(t, node, taker, lanes...)
	if len(got) != 1 {
		t.Fatalf("Claim gave %d tasks, want 1", len(got))
	}
	return got[0]
}

// refOf speaks of an attempt with what a node remembers of it, as sessions do.
func refOf(taker dispatch.Taker, g dispatch.Grant) dispatch.Ref {
	return dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: taker.Namespace, Hint: g.Hint}
}

// started is what the helpers remember of attempts that they have started.
var started sync.Map

func remember(ref dispatch.Ref) dispatch.Ref {
	if hint, known := started.Load(ref.Attempt); known && ref.Hint.Rows != nil {
		ref.Hint = hint.(dispatch.Hint)
	}
	return ref
}

func start(t testing.TB, node *dispatch.Dispatcher, ref dispatch.Ref) dispatch.Started {
	t.Helper()
	got, err := node.Start(t.Context(), []dispatch.Ref{remember(ref)})
	if err != nil {
		t.Fatalf("Start = %v", err)
	}
	if got[0].Refusal == nil {
		started.Store(ref.Attempt, got[0].Hint)
	}
	return got[0]
}

// mustStart starts an attempt that may be started.
func mustStart(t testing.TB, node *dispatch.Dispatcher, ref dispatch.Ref) {
	t.Helper()
	if got := start(t, node, ref); got.Refusal != nil {
		t.Fatalf("Start refused: %+v", *got.Refusal)
	}
}

func finish(t testing.TB, node *dispatch.Dispatcher, f dispatch.Finish) dispatch.Finished {
	t.Helper()
	f.Ref = remember(f.Ref)
	got, err := node.Finish(t.Context(), []dispatch.Finish{f})
	if err != nil {
		t.Fatalf("Finish = %v", err)
	}
	return got[0]
}

// success reports a success of an attempt.
func success(ref dispatch.Ref) dispatch.Finish {
	return dispatch.Finish{Ref: ref, Receipt: []byte("r-" + ref.Attempt.String()), Outcome: task.OutcomeSucceeded, Result: []byte(`{"ok":true}`)}
}

func giveBack(t testing.TB, node *dispatch.Dispatcher, ref dispatch.Ref) {
	t.Helper()
	got, err := node.Return(t.Context(), []dispatch.Ref{ref})
	if err != nil || got[0].Refusal != nil {
		t.Fatalf("Return = %+v, %v", got, err)
	}
}

// expireLease moves the end of an attempt's lease into the past.
func expireLease(w *dispatchtest.World, attempt sqldb.ID) {
	w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", w.Now()-1, attempt)
}

// expireTimeout moves the end of an attempt's lease and timeout into the past.
func expireTimeout(w *dispatchtest.World, attempt sqldb.ID) {
	at := w.Now() - 1
	w.Exec("UPDATE attempt SET lease_until = ?, timeout_at = ? WHERE id = ?", at, at, attempt)
}

// endByCancel is what a cancel does to a leased attempt.
func endByCancel(ctx context.Context, tx *sqldb.Tx, attempt sqldb.ID) error {
	s, err := settle.OpenAttempts(ctx, tx, &quota.Modes{}, []sqldb.ID{attempt}, nil)
	if err != nil {
		return err
	}
	if _, err := s.EndAttempt(s.Attempt(attempt), settle.Ending{Act: task.ActCancel, Outcome: task.OutcomeCancelled}); err != nil {
		return err
	}
	_, err = s.Flush(ctx)
	return err
}

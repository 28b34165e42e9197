package accept

import (
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A submit is often the first to miss a row that a restore has lost. It must not make it at
// the floor, free, while an attempt with a token above that still lives.
func TestARowThatASubmitMissesIsMadeWithItsHolderAndTokens(t *testing.T) { // TOK-004, TOK-011, TOK-018, LIC-019
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		node, err := dispatch.New(db.DB, "node", dispatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		x := dispatchtest.Task{Queue: w.NewQueue("q"), Key: "k"}
		submitted := &member{}
		submitted.Namespace, submitted.Submission.Request.ConcurrencyKey = w.Namespace, "k"
		fresh := &member{}
		fresh.Namespace, fresh.Submission.Request.ConcurrencyKey = w.Namespace, "new"
		for i, want := range []uint64{1, 3} {
			w.Submit(x)
			taker := w.Taker(1, x.Lane())
			got, err := node.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
			if err != nil || len(got.Grants) != 1 || got.Grants[0].Token != want {
				t.Fatalf("Claim = %+v, %v; want the token %d", got, err, want)
			}
			g := got.Grants[0]
			digest := task.KeyDigest(w.Namespace, "k")
			w.Exec("DELETE FROM resource WHERE digest = ?", digest[:])
			if err := newKeyBook(db.DB).ensure(t.Context(), []*member{submitted, fresh}); err != nil {
				t.Fatal(err)
			}
			if version, holder := w.Key(w.Namespace, "k"); version != want || holder != g.Task {
				t.Errorf("round %d: key is at %d, held by %v; want %d, %v", i, version, holder, want, g.Task)
			}
			if version, holder := w.Key(w.Namespace, "new"); version != 0 || !holder.IsZero() {
				t.Errorf("a new key is at %d, held by %v", version, holder)
			}
			ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: w.Namespace}
			if _, err := node.Start(t.Context(), []dispatch.Ref{ref}); err != nil {
				t.Fatal(err)
			}
			if _, err := node.Finish(t.Context(), []dispatch.Finish{{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded}}); err != nil {
				t.Fatal(err)
			}
		}
		// Nothing lives any more: the row is made above the last token.
		w.Exec("DELETE FROM resource")
		if err := newKeyBook(db.DB).ensure(t.Context(), []*member{submitted}); err != nil {
			t.Fatal(err)
		}
		if version, holder := w.Key(w.Namespace, "k"); version != 4 || !holder.IsZero() {
			t.Errorf("key is at %d, held by %v; want 4, free", version, holder)
		}
	}, migrations.Server)
}

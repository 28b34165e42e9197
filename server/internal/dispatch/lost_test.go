package dispatch_test

import (
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/task"
)

// loseKey deletes the row of a key, as a restore of parts of a database may.
func loseKey(w world, key string) {
	digest := task.KeyDigest(w.Namespace, key)
	w.Exec("DELETE FROM resource WHERE digest = ?", digest[:])
}

// claimNothing claims twice in vain: the first claim takes the row for locked, the second
// makes it again.
func claimNothing(t *testing.T, n node, taker dispatch.Taker, lane dispatch.Lane) {
	t.Helper()
	for i := range 2 {
		if got := claim(t, n, taker, lane); len(got) != 0 {
			t.Fatalf("claim %d gave %d tasks of a key without a row", i+1, len(got))
		}
	}
}

func TestALostKeyIsMadeAgainAboveItsTokens(t *testing.T) { // TOK-004, TOK-011, TOK-018
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "k"}
		taker := w.Taker(1, x.Lane())
		for i, want := range []uint64{1, 3, 1001} {
			w.Submit(x)
			if i == 2 {
				err := w.DB.Tx(t.Context(), func(tx *sqldb.Tx) error {
					_, _, err := keyrow.RaiseFloor(t.Context(), tx, w.Namespace, 1000)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			loseKey(w, "k")
			n := newNode(t, w.DB, "node-b", dispatch.Config{}) // nobody loses rows under a node
			claimNothing(t, n, taker, x.Lane())
			g := claimOne(t, n, taker, x.Lane())
			if g.Token != want {
				t.Errorf("token %d, want %d", g.Token, want)
			}
			mustStart(t, n, refOf(taker, g))
			finish(t, n, success(refOf(taker, g)))
		}
	})
}

func TestALostKeyIsMadeAgainWithItsHolder(t *testing.T) { // KEY-001, TOK-004
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x, y := spec{Queue: w.NewQueue("q"), Key: "k"}, spec{Queue: w.NewQueue("r"), Key: "k"}
		w.Submit(x)
		w.Submit(y) // READY too: it is in another lane
		tx, ty := w.Taker(1, x.Lane()), w.Taker(1, y.Lane())
		g := claimOne(t, n, tx, x.Lane())
		loseKey(w, "k")
		claimNothing(t, n, ty, y.Lane())
		if version, holder := w.Key(w.Namespace, "k"); version != g.Token || holder != g.Task {
			t.Errorf("key is at %d, held by %v; want %d, %v", version, holder, g.Token, g.Task)
		}
		w.Verify()
		if got := claim(t, n, ty, y.Lane()); len(got) != 0 {
			t.Fatal("a key was given away while it was held")
		}
		mustStart(t, n, refOf(tx, g))
		finish(t, n, success(refOf(tx, g)))
		if next := claimOne(t, n, ty, y.Lane()); next.Token != 3 {
			t.Errorf("next token %d, want 3", next.Token)
		}
	})
}

// A key that somebody else holds locked is no lost one.
func TestAKeyThatIsLockedIsNotMadeAgain(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		if db.Engine == dbtest.SQLite {
			t.Skip("needs an engine that locks rows: SQLite locks the file")
		}
		x := spec{Queue: w.NewQueue("q"), Key: "k"}
		w.Submit(x)
		taker := w.Taker(1, x.Lane())
		digest := task.KeyDigest(w.Namespace, "k")
		err := w.DB.Tx(t.Context(), func(tx *sqldb.Tx) error {
			var version uint64
			query := "SELECT version FROM resource WHERE digest = ?" + tx.Dialect().ForUpdate
			if err := tx.QueryRowContext(t.Context(), query, digest[:]).Scan(tx.Dialect().ScanUint64(&version)); err != nil {
				return err
			}
			claimNothing(t, n, taker, x.Lane()) // would wait for the lock if it inserted
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if g := claimOne(t, n, taker, x.Lane()); g.Token != 1 {
			t.Errorf("token %d, want 1", g.Token)
		}
	})
}

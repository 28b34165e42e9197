package recovery

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
)

// What a sweep has read may be outdated when it gets its locks: a worker that was heard of
// in between wins.
func TestSweepsLookAgainUnderTheLock(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		node, err := dispatch.New(db.DB, "node", dispatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		x := dispatchtest.Task{Queue: w.NewQueue("q"), StartWithin: time.Hour}
		w.Submit(x)
		taker := w.Taker(1, x.Lane())
		c, err := node.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
		if err != nil || len(c.Grants) != 1 {
			t.Fatalf("Claim = %+v, %v", c, err)
		}
		g, waiting := c.Grants[0], w.Submit(x)
		r := New(db.DB, Config{})
		if err := r.expireLeases(t.Context(), []sqldb.ID{g.Attempt, sqldb.NewID()}); err != nil {
			t.Errorf("expireLeases = %v", err)
		}
		w.Exec("UPDATE task SET deadline_at = 1 WHERE id = ?", g.Task) // its lease ends it, not its deadline
		if err := r.expireWaiting(t.Context(), []sqldb.ID{g.Task, waiting, sqldb.NewID()}); err != nil {
			t.Errorf("expireWaiting = %v", err)
		}
		if got := w.Task(g.Task); got.State != "LEASED" {
			t.Errorf("task with a lease that lasts = %+v", got)
		}
		if got := w.Task(waiting); got.State != "WAITING" {
			t.Errorf("task that waits in time = %+v", got)
		}
	}, migrations.Server)
}

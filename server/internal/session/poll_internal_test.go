package session

import (
	"slices"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
)

// A poll finds what another node accepted in every lane, however much some of them hold.
func TestAPollFindsLanesBesideDeepOnes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		hub, err := New(db.DB, noAuth{}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		var want []int64
		tasks := make(map[int64]dispatchtest.Task)
		for _, name := range []string{"a", "b", "c"} {
			x := dispatchtest.Task{Queue: w.NewQueue(name)}
			want, tasks[x.Lane().ID()] = append(want, x.Lane().ID()), x
		}
		slices.Sort(want) // an index gives them out so
		for _, id := range want[:2] {
			for range pollRows + 1 {
				w.Submit(tasks[id])
			}
		}
		w.Submit(tasks[want[2]])
		empty := dispatchtest.Task{Queue: sqldb.NewID()}.Lane().ID()
		got, err := hub.lookInto(t.Context(), append([]int64{empty}, want...))
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("lookInto = %v, %v; want %v", got, err, want)
		}
	}, migrations.Server)
}

package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
)

// BenchmarkDrain takes waiting tasks to their success in batches of 100: one operation is
// one task through claim, start and finish, each committed.
func BenchmarkDrain(b *testing.B) {
	for _, engine := range dbtest.Engines() {
		for _, keys := range []int{0, 1000} {
			b.Run(fmt.Sprintf("%s/keys=%d", engine, keys), func(b *testing.B) {
				db := dbtest.Open(b, engine, migrations.Server)
				w := dispatchtest.New(b, db.DB)
				n := newNode(b, db.DB, "node", dispatch.Config{})
				plain := spec{Queue: w.NewQueue("q")}
				keyed := plain
				keyed.Key = "k"
				for i := range b.N {
					x := plain
					if keys > 0 {
						x.Key = fmt.Sprintf("key-%d", i%keys)
					}
					w.Submit(x)
				}
				taker := w.Taker(dispatch.MaxBatch, plain.Lane(), keyed.Lane())
				b.ResetTimer()
				for done := 0; done < b.N; {
					done += drainBatch(b, n, taker, plain.Lane(), keyed.Lane())
				}
			})
		}
	}
}

func drainBatch(b *testing.B, n *dispatch.Dispatcher, taker dispatch.Taker, lanes ...dispatch.Lane) int {
	b.Helper()
	var refs []dispatch.Ref
	for _, g := range claim(b, n, taker, lanes...) {
		refs = append(refs, refOf(taker, g))
	}
	if _, err := n.Start(b.Context(), refs); err != nil {
		b.Fatal(err)
	}
	var list []dispatch.Finish
	for _, r := range refs {
		list = append(list, success(r))
	}
	got, err := n.Finish(b.Context(), list)
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range got {
		if f.Status != "recorded" {
			b.Fatalf("finish = %+v", f)
		}
	}
	return len(refs)
}

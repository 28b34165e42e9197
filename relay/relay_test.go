package relay_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/outbox"
)

// Engines run side by side, however few processors there are.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := dbtest.DropBorrowed(); err != nil {
			fmt.Println(err)
			code = 1
		}
		os.Exit(code)
	}))
}

// OUT-001, OUT-010, OUT-011, REL-001, REL-002, REL-024, REF-OUTBOX-001.
func TestACommittedRowBecomesOneAcceptedTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.start(w.relay(quick()))
		var seqs []int64
		for i := range 250 {
			seqs = append(seqs, w.enqueueKeys(fmt.Sprintf("order-%d", i))...)
			w.hook.Notify()
		}
		w.eventually("all rows are delivered", func() bool { return w.count(outbox.Delivered) == 250 })
		if n := w.fake.taskCount(); n != 250 {
			t.Fatalf("server has %d tasks, want 250", n)
		}
		r := w.row(seqs[0])
		if r.TaskID == "" || r.Last.Status != 201 || r.Last.RequestID == "" || r.AcceptedAt.IsZero() || r.Deduplicated {
			t.Fatalf("delivered row lacks its receipt: %+v", r)
		}
		w.fake.checkIdentity(t, w.stored())
	})
}

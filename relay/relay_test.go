package relay_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/orbitkit/orbit/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

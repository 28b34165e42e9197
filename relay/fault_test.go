package relay_test

import (
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/outbox"
)

// Requests fail one after the other, before and after the server's effect.
func TestEveryRequestMayFailOnce(t *testing.T) {
	for _, accept := range []bool{false, true} {
		t.Run(fmt.Sprintf("after the effect %t", accept), func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				failed := map[string]bool{}
				w.fake.answer = func(s send) reply {
					if failed[s.key] {
						return reply{}
					}
					failed[s.key] = true
					return reply{cut: true, accept: accept}
				}
				keys := make([]string, 10)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", i)
				}
				seqs := w.enqueueKeys(keys...)
				w.start(w.relay(quick()))
				for i, seq := range seqs {
					r := w.untilState(seq, outbox.Delivered)
					if len(w.fake.sendsOf(keys[i])) < 2 {
						t.Errorf("key %q: the fault did not fire", keys[i])
					}
					if accept && !r.Deduplicated {
						t.Errorf("row %d is not known to have been accepted before", seq)
					}
				}
				if n := w.fake.taskCount(); n != len(keys) {
					t.Errorf("%d tasks, want %d", n, len(keys))
				}
				w.fake.checkIdentity(t, w.stored())
			})
		})
	}
}

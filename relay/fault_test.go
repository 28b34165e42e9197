package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Every statement of the relay fails once, before and after its effect: each row still
// becomes one task, and is known to be.
func TestEveryStatementMayFailOnce(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after the effect %t", engine, after), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, dbtest.Open(t, engine, migrations.Outbox))
				for n := int64(1); w.runWithFault(t, n, after); n++ {
				}
			})
		}
	}
}

// runWithFault relays a few rows while statement n fails. It returns false if there
// were not so many statements.
func (w *world) runWithFault(t *testing.T, n int64, after bool) bool {
	t.Helper()
	w.exec("DELETE FROM orbit_outbox")
	w.exec("DELETE FROM orbit_outbox_lease")
	keys := make([]string, 5)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d-%d-%t", i, n, after)
	}
	w.enqueueKeys(keys...)
	fault := tap{failAt: n, after: after}
	cfg := quick()
	cfg.Lease, cfg.SendTimeout = 500*time.Millisecond, 200*time.Millisecond
	r, err := relay.New(fault.open(t, w.db), []relay.Target{w.target()}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithCancel(t)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.eventually(fmt.Sprintf("all is delivered though statement %d fails", n), func() bool { return w.count(outbox.Delivered) == int64(len(keys)) })
	cancel()
	if err := <-done; err != nil && !fault.fired.Load() {
		t.Fatalf("Run = %v", err)
	}
	for _, key := range keys {
		for _, s := range w.fake.sendsOf(key) {
			if s.body != string(w.stored()[key]) {
				t.Errorf("key %q was sent with other bytes", key)
			}
		}
	}
	if tasks, want := w.fake.taskCount(), int(n)*len(keys); tasks != want {
		t.Errorf("%d tasks after %d rounds, want %d", tasks, n, want)
	}
	return fault.fired.Load()
}

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

package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// REL-023.
func TestDrainSendsWhatIsDueAndReturns(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		box, err := outbox.New(w.db.Dialect(), outbox.Config{Shards: 3})
		if err != nil {
			t.Fatal(err)
		}
		w.box = box
		keys := make([]string, 350)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		w.enqueueKeys(keys...)
		later := message("later")
		later.NotBefore = time.Now().Add(time.Hour)
		w.enqueue(later)
		r := w.relay(quick())
		left, err := r.Drain(t.Context())
		if err != nil || len(left) != 0 {
			t.Fatalf("Drain = %v, %v", left, err)
		}
		if n := w.count(outbox.Delivered); n != 350 {
			t.Errorf("%d rows delivered, want 350", n)
		}
		if left, err := r.Drain(t.Context()); err != nil || len(left) != 0 || r.Stats().Sent != 350 {
			t.Errorf("second Drain = %v, %v after %d sends", left, err, r.Stats().Sent)
		}
	})
}

func TestDrainSaysWhatItLeavesAndWhy(t *testing.T) {
	tests := []struct {
		name  string
		world func(w *world)
		want  string
	}{
		{"server down", func(w *world) { w.fake.Close() }, "connection refused"},
		{"credential refused", func(w *world) {
			w.fake.caps = func() reply { return reply{status: 401, code: orbit.CodeUnauthenticated} }
		}, orbit.CodeUnauthenticated},
		{"application full", func(w *world) {
			w.fake.answer = func(send) reply {
				return reply{status: 429, code: orbit.CodeApplicationFull, retryAfter: "60"}
			}
		}, orbit.CodeApplicationFull},
		{"queue full", func(w *world) {
			w.fake.answer = func(s send) reply { return reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "60"} }
		}, "queue is full"},
		{"held", func(w *world) {
			if err := w.store.Hold(w.t.Context(), "main", "", outbox.Act{Operator: "me", Reason: "test"}); err != nil {
				w.t.Fatal(err)
			}
		}, "held by an operator"},
		{"no credential", func(w *world) {
			m := message("other")
			m.Target = "elsewhere"
			w.enqueue(m)
		}, "no credential"},
		{"led by another relay", func(w *world) {
			r := w.relay(quick())
			w.start(r)
			w.eventually("it leads", func() bool { return len(r.Stats().Shards) == 1 })
			w.fake.set(func(f *orbitFake) { f.answer = func(send) reply { return reply{status: 503} } })
		}, "led by another relay"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			onSQLite(t, func(t *testing.T, w *world) {
				w.enqueueKeys("a", "b", "c")
				test.world(w)
				left, err := w.relay(quick()).Drain(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if len(left) != 1 || !strings.Contains(left[0].Reason, test.want) {
					t.Errorf("left %+v, want one with %q", left, test.want)
				}
			})
		})
	}
}

func TestDrainTakesOverFromADeadRelay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		seq := w.enqueueKeys("subject")[0]
		if _, err := w.store.Lead(t.Context(), 0, "dead", 500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if left, err := w.relay(quick()).Drain(t.Context()); err != nil || len(left) != 0 {
			t.Fatalf("Drain = %v, %v", left, err)
		}
		if r := w.row(seq); r.State != outbox.Delivered {
			t.Errorf("row is %v", r.State)
		}
	})
}

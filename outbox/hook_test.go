package outbox_test

import (
	"sync"
	"testing"

	"github.com/orbitkit/orbit/outbox"
)

func TestHookWakesEverySubscriberOnce(t *testing.T) {
	var h outbox.Hook
	h.Notify() // nobody listens
	a, cancelA := h.Subscribe()
	b, cancelB := h.Subscribe()
	defer cancelB()
	for range 3 {
		h.Notify()
	}
	for _, c := range []<-chan struct{}{a, b} {
		select {
		case <-c:
		default:
			t.Fatal("a subscriber was not woken")
		}
		select {
		case <-c:
			t.Fatal("a subscriber was woken twice")
		default:
		}
	}
	cancelA()
	cancelA()
	h.Notify()
	if len(a) != 0 || len(b) != 1 {
		t.Fatalf("after cancel %d and %d wake-ups wait, want 0 and 1", len(a), len(b))
	}
	var none *outbox.Hook
	none.Notify()
}

func TestHookIsSafeForConcurrentUse(t *testing.T) {
	var h outbox.Hook
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				wake, cancel := h.Subscribe()
				h.Notify()
				<-wake // whoever notified
				cancel()
			}
		})
	}
	group.Wait()
}

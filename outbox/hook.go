package outbox

import "sync"

// A Hook wakes relays in the same process, so that a row is sent at once and not at
// the next poll. It carries no data and promises nothing: a call that is lost, comes
// too early or for a transaction that was rolled back costs a look at the table, no
// more. The zero value is ready to use; a Hook is safe for concurrent use and must not
// be copied.
//
//	if err := tx.Commit(); err != nil {
//		return err
//	}
//	hook.Notify()
type Hook struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Notify wakes every subscriber. Call it after COMMIT. It never blocks, and calls that
// come faster than a subscriber looks become one. On a nil Hook it does nothing.
func (h *Hook) Notify() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subs {
		select {
		case c <- struct{}{}:
		default: // a wake-up is waiting already
		}
	}
}

// Subscribe returns a channel that gets a value after one or more calls of Notify. A
// call that came since the last receive is not lost. Cancel ends the subscription; it
// may be called more than once.
func (h *Hook) Subscribe() (wake <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[chan struct{}]struct{}{}
	}
	h.subs[c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, c)
	}
}

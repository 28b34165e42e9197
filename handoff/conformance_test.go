package handoff_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
	"github.com/orbitkit/orbit/handoff/handofftest"
)

// A virtualClock stands still until it is turned.
type virtualClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *virtualClock {
	return &virtualClock{now: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)}
}

func (c *virtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *virtualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// openDesk opens a LocalDesk for the suite. A second process cannot open it, but another
// user of the same desk can.
func openDesk(context.Context) (handofftest.Host, error) {
	clock := newClock()
	desk := handoff.NewLocalDesk(handoff.WithClock(clock.Now))
	return handofftest.Host{
		Store:   desk,
		Advance: func(_ context.Context, d time.Duration) error { clock.Advance(d); return nil },
		Reopen:  func(context.Context) (handoff.Store, error) { return desk, nil },
		Receipt: func(_ context.Context, key handoff.Key) (handoff.Receipt, string, error) {
			r, replyTo, ok := desk.Receipt(key)
			if !ok {
				return r, replyTo, errors.New("no receipt")
			}
			return r, replyTo, nil
		},
	}, nil
}

// HAND-018, HAND-019, HAND-090, HAND-091, HAND-092, HAND-093, HAND-096; what each clause
// proves stands at it in package handofftest.
func TestLocalDeskKeepsTheContract(t *testing.T) { // TEST-061
	handofftest.Run(t, openDesk)
	problems, skipped := handofftest.Check(t.Context(), openDesk)
	if len(problems) > 0 || len(skipped) > 0 {
		t.Errorf("problems %v, skipped %v", problems, skipped)
	}
}

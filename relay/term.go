package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// A term is the time in which a shard is led: a lease that is renewed.
type term struct {
	store  *outbox.Store
	length time.Duration

	mu      sync.Mutex
	lease   outbox.Lease
	renewed chan struct{} // closed at the next renewal
}

func newTerm(store *outbox.Store, lease outbox.Lease, length time.Duration) *term {
	return &term{store: store, length: length, lease: lease, renewed: make(chan struct{})}
}

func (t *term) now() outbox.Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease
}

// wait returns true once the lease has at least need left, by the monotonic clock of
// this process. It returns false when ctx ends first.
func (t *term) wait(ctx context.Context, need time.Duration) bool {
	for {
		t.mu.Lock()
		left, renewed := time.Until(t.lease.Deadline), t.renewed
		t.mu.Unlock()
		if ctx.Err() != nil {
			return false
		}
		if left >= need {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-renewed:
		}
	}
}

// keep renews the lease whenever 0.3 of it has passed, and after a failure more often.
// It returns outbox.ErrLeaseLost, or nil when ctx ends.
func (t *term) keep(ctx context.Context, failed func(error)) error {
	every := t.length * 3 / 10
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		err := t.renew(ctx, every)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, outbox.ErrLeaseLost):
			return err
		case err != nil:
			failed(err)
			timer.Reset(every / 3)
		default:
			failed(nil)
			timer.Reset(every)
		}
	}
}

func (t *term) renew(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lease, err := t.store.Renew(ctx, t.now(), t.length)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease = lease
	close(t.renewed)
	t.renewed = make(chan struct{})
	return nil
}

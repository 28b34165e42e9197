package handofftest

import (
	"context"
	"errors"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// A Host is a store under test, with what the suite needs to know about it.
type Host struct {
	// Store is empty. It is used by several goroutines at once.
	Store handoff.Store

	// Advance moves the clock by which the store judges, by whole microseconds. The clock
	// stands still otherwise, so that deadlines are exact. Mandatory.
	Advance func(ctx context.Context, d time.Duration) error

	// Reopen opens the same tickets once more, as another process would, which shares
	// nothing else with Store. Nil if the store cannot: those clauses are skipped.
	Reopen func(ctx context.Context) (handoff.Store, error)

	// Receipt returns the receipt of a closed ticket and the address that it is delivered
	// to. Nil if the host has no way to ask: those clauses are skipped.
	Receipt func(ctx context.Context, key handoff.Key) (r handoff.Receipt, replyTo string, err error)

	// Close is called after use, unless it is nil.
	Close func() error
}

// Open returns a host. It is called once for each clause.
type Open func(ctx context.Context) (Host, error)

// errUnsupported is returned by clauses that a host does not allow to be judged.
var errUnsupported = errors.New("handofftest: not supported by the host")

func (h Host) check() error {
	switch {
	case h.Store == nil:
		return errors.New("handofftest: Host.Store must not be nil")
	case h.Advance == nil:
		return errors.New("handofftest: Host.Advance must not be nil")
	}
	return nil
}

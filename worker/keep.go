package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// keep renews the lease until ctx ends, which is when the end of the attempt is
// confirmed, or until the right is lost. It goes on while a report waits for its
// confirmation: the attempt runs until then.
func (a *attempt) keep(ctx context.Context) {
	for {
		due, more := a.nextRenewal()
		if !more {
			return
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-timer.C:
			a.renew(ctx)
		case <-a.changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// keepLater begins to keep the lease once that is due: most attempts have ended before. What
// it returns ends the keeping.
func (a *attempt) keepLater(ctx context.Context) (stop func()) {
	keeping, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	a.set(func() {
		a.keeper = time.AfterFunc(time.Until(a.lease.due), func() {
			defer close(ended)
			a.keep(keeping)
		})
	})
	return func() {
		began := false
		a.set(func() { began, a.keeper = !a.keeper.Stop(), nil })
		if cancel(); began {
			<-ended
		}
	}
}

// nextRenewal returns when the next renewal is due. It reports false if there is
// none: the right is lost, or the attempt's end is reached.
func (a *attempt) nextRenewal() (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lease.due, !a.lost && a.lease.confirmed && a.lease.due.Before(a.lease.end)
}

// renew asks once. A connection that answers nothing for a third of the lease is
// given up, so that another third is left to resume elsewhere.
func (a *attempt) renew(ctx context.Context) {
	c, err := a.w.link.wait(ctx)
	if due, more := a.nextRenewal(); err != nil || !more || time.Until(due) > 0 {
		return // a Resume on the new connection has done it
	}
	progress, patience := a.renewal()
	var g Grant
	asked := time.Now()
	err = a.w.try(ctx, c, patience, func(ctx context.Context, c *Conn) (err error) {
		g, err = c.Renew(ctx, a.id, progress)
		return err
	})
	a.w.stats.answered(wire.TypeRenew, asked, err)
	switch {
	case err == nil:
		a.renewed(asked, g)
		a.shown(progress)
	case rightIsOver(err):
		a.lose(ErrLeaseLost)
	default:
		a.set(func() { a.lease.postpone(time.Now()) })
	}
}

func (a *attempt) renewal() (progress string, patience time.Duration) {
	a.set(func() { progress, patience = a.progress, a.lease.third })
	return progress, patience
}

// shown forgets the progress that was sent, unless a newer one has come.
func (a *attempt) shown(progress string) {
	a.set(func() {
		if a.progress == progress {
			a.progress = ""
		}
	})
}

// granted takes the answer to a Start, or to a Resume of a running attempt.
func (a *attempt) granted(asked time.Time, g Grant) {
	a.set(func() {
		a.doubt = false
		if !a.lost {
			a.lease.confirm(asked, g, a.offer.Task.Deadline)
		}
	})
	a.follow(g)
}

// renewed takes the answer to a Renew.
func (a *attempt) renewed(asked time.Time, g Grant) {
	a.set(func() {
		if !a.lost {
			a.lease.extend(asked, g)
		}
	})
	a.follow(g)
}

// follow puts into effect what a new grant says.
func (a *attempt) follow(g Grant) {
	a.set(func() {
		if a.handling && !a.lost {
			a.alarm.Reset(a.lease.left(time.Now()))
		}
		if a.keeper != nil && a.keeper.Stop() { // it has not begun
			a.keeper.Reset(time.Until(a.lease.due))
		}
	})
	if g.CancelRequested {
		a.cancelAsked("")
	}
	select {
	case a.changed <- struct{}{}:
	default: // the keeper will look anyway
	}
}

// checkLease runs when the lease should be over.
func (a *attempt) checkLease() {
	a.mu.Lock()
	now := time.Now()
	left := a.lease.left(now)
	if left > 0 { // a renewal came in between
		a.alarm.Reset(left)
		a.mu.Unlock()
		return
	}
	cause := a.lease.lossAt(now)
	a.mu.Unlock()
	a.lose(cause)
}

// lose ends the right to execute for good.
func (a *attempt) lose(cause error) {
	lost := false
	a.set(func() {
		lost = !a.lost && a.lease.confirmed && errors.Is(cause, ErrLeaseLost)
		a.lost = true
	})
	if lost {
		a.w.stats.leaseLost()
		a.log().Warn("lease lost")
	}
	a.halt(cause)
}

// cancelAsked tells the handler of a cancel intent; its right lasts.
func (a *attempt) cancelAsked(reason string) {
	cause := ErrCancelRequested
	if reason != "" {
		cause = fmt.Errorf("%w: %s", ErrCancelRequested, printable(reason))
	}
	a.set(func() { a.asked = true })
	a.halt(cause)
}

// halt ends the handler's context, or keeps a handler from being called. The first
// cause counts.
func (a *attempt) halt(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop == nil {
		a.stop = cause
	}
	a.cancel(cause)
}

// resume takes the attempt up on a new connection. An error means that the
// connection is of no use.
func (a *attempt) resume(ctx context.Context, c *Conn) error {
	var r Resumption
	asked := time.Now()
	err := a.w.try(ctx, c, answerTimeout, func(ctx context.Context, c *Conn) (err error) {
		r, err = c.Resume(ctx, a.id)
		return err
	})
	switch {
	case exact(err), err == nil && !r.Kept:
		a.lose(ErrLeaseLost)
	case err != nil:
		return fmt.Errorf("worker: resume: %w", err)
	case r.Running:
		a.granted(asked, r.Grant)
	default:
		a.set(func() { a.doubt = false }) // the server knows of no Start
	}
	return nil
}

// repeatable reports whether a message that ended so may have another answer.
func repeatable(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Code == orbit.CodeUnavailable
	}
	var protocol *ProtocolError
	return errors.Is(err, ErrClosed) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &protocol)
}

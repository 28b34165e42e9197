package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

var (
	errDrains  = errors.New("worker: drains before the start")
	errNotOurs = errors.New("worker: the server has given the attempt up")
	errStale   = fmt.Errorf("worker: the answer came later than the lease lasts: %w", context.DeadlineExceeded)
)

// An attempt is one held attempt, from its assignment until the server has
// confirmed its end. It lives through reconnects in a goroutine of its own.
type attempt struct {
	w       *Worker
	id      Attempt
	offer   *Assignment // nil if the assignment itself never arrived
	changed chan struct{}
	// unwanted tells that it is handed back without a start.
	unwanted bool
	since    time.Time

	mu        sync.Mutex
	doubt     bool                    // a Start was sent that has had no exact answer: it may be running
	lease     lease                   // the right to execute
	lost      bool                    // the right is gone for good
	asked     bool                    // a cancel intent exists
	stop      error                   // first cause to stop
	handling  bool                    // the handler runs
	reporting bool                    // the end is being told
	cancel    context.CancelCauseFunc // ends the handler's context
	alarm     *time.Timer             // end of the lease while the handler runs
	keeper    *time.Timer             // begins to keep the lease when that is first due; nil before and afterwards
	progress  string                  // to go with the next renewal
	stuck     bool                    // the handler has ignored the end of its context for too long
	span      trace.SpanContext       // of the execution, once it has begun
}

func newAttempt(w *Worker, id Attempt, offer *Assignment) *attempt {
	return &attempt{
		w: w, id: id, offer: offer, unwanted: offer == nil, since: time.Now(),
		changed: make(chan struct{}, 1), cancel: func(error) {},
	}
}

// run takes the attempt to its end.
func (a *attempt) run(ctx context.Context) {
	defer a.w.release(a)
	if !a.start(ctx) {
		return
	}
	defer a.keepLater(ctx)()
	if report, ended := a.execute(ctx); ended {
		a.finish(ctx, report)
	}
}

// discard hands back an attempt that this process does not want.
func (a *attempt) discard(ctx context.Context) {
	defer a.w.release(a)
	a.giveBack(ctx)
}

// start gets the right to execute. It reports false if the attempt is over for
// this process without anything to tell.
func (a *attempt) start(ctx context.Context) bool {
	err := a.w.persist(ctx, a.tryStart)
	if err == nil && !a.fresh() {
		err = a.w.persist(ctx, a.tryFresh)
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, errDrains):
		a.giveBack(ctx)
		return false
	case ctx.Err() != nil:
		return false
	}
	a.log().Debug("attempt is not started", "err", err)
	a.lose(ErrLeaseLost)
	return a.inDoubt()
}

// tryStart asks for the right to execute, unless there is no need or no sense.
func (a *attempt) tryStart(ctx context.Context, c *Conn) error {
	ask, before, err := a.aboutToStart()
	if !ask {
		return err
	}
	asked := time.Now()
	g, err := c.Start(ctx, a.id)
	a.w.stats.answered(wire.TypeStart, asked, err)
	switch {
	case err == nil:
		a.granted(asked, g)
	case exact(err):
		a.set(func() { a.doubt = before })
	}
	return err
}

// aboutToStart decides whether to send a Start, and notes it: from here on the
// attempt may be running, and is no longer handed back. It returns whether that
// had been so before.
func (a *attempt) aboutToStart() (ask, before bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.lease.confirmed: // by Resume
		return false, false, nil
	case a.lost:
		return false, false, errNotOurs
	case !a.doubt && a.w.draining():
		return false, false, errDrains
	}
	before, a.doubt = a.doubt, true
	return true, before, nil
}

func (a *attempt) inDoubt() (doubt bool) {
	a.set(func() { doubt = a.doubt })
	return doubt
}

// tryFresh makes sure that a confirmed right still lasts: the confirmation may have
// been under way for longer than the lease.
func (a *attempt) tryFresh(ctx context.Context, c *Conn) error {
	if a.fresh() {
		return nil
	}
	asked := time.Now()
	g, err := c.Renew(ctx, a.id, "")
	switch {
	case err == nil:
		a.renewed(asked, g)
		if !a.fresh() {
			return errStale
		}
	case exact(err):
		a.lose(ErrLeaseLost)
		return nil
	}
	return err
}

// fresh reports whether nothing is to be gained by a renewal before the handler
// runs.
func (a *attempt) fresh() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	return a.stop != nil || a.lease.left(now) > 0 || !now.Before(a.lease.end)
}

// execute calls the handler and returns how the attempt ended. It reports false if
// the worker gave up before the handler returned.
func (a *attempt) execute(ctx context.Context) (Report, bool) {
	running, end, refusal := a.begin(ctx)
	if refusal != nil {
		return a.unexecuted(refusal), true
	}
	defer end()
	running, span := a.trace(running)
	began, done := time.Now(), make(chan answer, 1)
	go call(running, a.w.cfg.Handlers[a.handler()], a.execution(), done)
	got, returned := a.await(ctx, running, done)
	if !returned {
		concludeSpan(span, outcomeAbandoned, false, false)
		return Report{}, false
	}
	took := time.Since(began)
	if got.panicked != nil {
		a.w.report(got.panicked)
	}
	report, err := newReport(got.result, got.err, a.ended())
	concludeSpan(span, report.Outcome, report.Retryable, got.panicked != nil)
	a.w.stats.executed(a.handler(), report.Outcome, got.panicked != nil, took)
	if err != nil {
		a.w.report(fmt.Errorf("worker: attempt %s of task %s: %w", a.id.ID, a.offer.Task.ID, err))
	}
	return report, true
}

// begin makes the handler's context, or tells why the handler must not run.
func (a *attempt) begin(ctx context.Context) (context.Context, func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.lease.left(time.Now())
	if a.stop == nil && left <= 0 {
		a.lost, a.stop = true, a.lease.lossAt(time.Now())
		if errors.Is(a.stop, ErrLeaseLost) {
			a.w.stats.leaseLost()
		}
	}
	if a.stop != nil {
		return nil, nil, a.stop
	}
	running, cancel := context.WithCancelCause(ctx)
	running, release := context.WithDeadlineCause(running, a.lease.end, ErrAttemptTimeout)
	a.handling, a.cancel = true, cancel
	a.alarm = time.AfterFunc(left, a.checkLease)
	return running, func() { release(); cancel(nil) }, nil
}

// unexecuted is the report of an attempt whose handler was not called: nothing
// happened, and that is known.
func (a *attempt) unexecuted(cause error) Report {
	r := Report{Receipt: NewProcessID(), Outcome: orbit.OutcomeFailed, Retryable: true}
	if errors.Is(cause, ErrCancelRequested) {
		r.Outcome, r.Retryable = orbit.OutcomeCancelled, false
	}
	r, _ = r.explained("the handler did not run: " + cause.Error())
	return r
}

// await waits for the handler, reports it once if it ignores the end of its
// context, and gives up at the end of ctx.
func (a *attempt) await(ctx, running context.Context, done <-chan answer) (answer, bool) {
	select {
	case got := <-done:
		return got, true
	case <-running.Done():
	}
	stuck := time.NewTimer(a.w.cfg.StopTimeout)
	defer stuck.Stop()
	for {
		select {
		case got := <-done:
			return got, true
		case <-stuck.C:
			a.set(func() { a.stuck = true })
			a.w.report(&StuckError{TaskID: a.offer.Task.ID, AttemptID: a.id.ID, Handler: a.handler(), Cause: context.Cause(running)})
		case <-ctx.Done():
			return answer{}, false
		}
	}
}

// ended notes that the handler has returned and reports whether a cancel had been
// asked for.
func (a *attempt) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handling = false
	a.alarm.Stop()
	a.offer.Task.Payload = nil // the largest part of what is kept until the end is confirmed
	return a.asked
}

// finish repeats the report until the server has answered it exactly.
func (a *attempt) finish(ctx context.Context, r Report) {
	a.w.reports(a)
	var got Confirmation
	err := a.w.persist(ctx, func(ctx context.Context, c *Conn) (err error) {
		asked := time.Now()
		got, err = c.Finish(ctx, a.id, r)
		a.w.stats.answered(wire.TypeFinish, asked, err)
		return err
	})
	switch {
	case err == nil && got.Recorded, ctx.Err() != nil:
	case err == nil:
		a.log().Warn("report came too late, it is kept as evidence", "status", got.Status)
	case rightIsOver(err):
		a.log().Warn("report came too late", "err", err)
	case a.inDoubt():
		// The Start that had no answer was never committed: there is nothing to end.
		a.log().Debug("attempt was not started", "err", err)
	default:
		// Nothing is lost silently: the lease ends and the server treats the
		// outcome as unknown.
		a.w.report(fmt.Errorf("worker: attempt %s of task %s ended %s, but: %w", a.id.ID, a.offer.Task.ID, r.Outcome, err))
	}
}

// giveBack returns an attempt that was not started. It does not insist: the lease
// ends by itself.
func (a *attempt) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	err := a.w.persist(ctx, func(ctx context.Context, c *Conn) error { return c.Return(ctx, a.id) })
	if err != nil {
		a.log().Debug("assignment is not handed back", "err", err)
	}
}

func (a *attempt) handler() Handler {
	return Handler{Name: a.offer.Task.Handler, Version: a.offer.Task.HandlerVersion}
}

func (a *attempt) execution() Execution {
	o := a.offer
	return Execution{
		Task: o.Task, AttemptID: a.id.ID, Epoch: a.id.Epoch, ConcurrencyToken: o.ConcurrencyToken,
		OperationRoot: o.OperationRoot, Traceparent: o.Traceparent,
		progress: func(text string) { a.set(func() { a.progress = text }) },
	}
}

// sameAs holds a repeated dispatch to the first one (WRK-007): what the handler was
// given cannot be replaced.
func (a *attempt) sameAs(again *Assignment) error {
	switch first := a.offer; {
	case first == nil:
		return nil // being handed back
	case first.Attempt != again.Attempt:
		return broken("task.assign: a repeated dispatch changed epoch")
	case first.Task.ID != again.Task.ID:
		return broken("task.assign: a repeated dispatch changed task.id")
	case first.Task.ConcurrencyKey != again.Task.ConcurrencyKey:
		return broken("task.assign: a repeated dispatch changed task.concurrency_key")
	case first.ConcurrencyToken != again.ConcurrencyToken:
		return broken("task.assign: a repeated dispatch changed concurrency_token")
	}
	return nil
}

// state tells whether the handler runs, and whether the server may think so.
func (a *attempt) state() (handling, started bool) {
	a.set(func() { handling, started = a.handling, a.doubt || a.lease.confirmed })
	return handling, started
}

// set runs f under the attempt's lock.
func (a *attempt) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// exact reports whether err is the server's own and final word on a message.
func exact(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code != orbit.CodeUnavailable
}

// rightIsOver reports whether the server says that the attempt has ended.
func rightIsOver(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) &&
		(refused.Code == wire.CodeLeaseExpired || refused.Code == wire.CodeSuperseded || refused.Code == wire.CodeEnded)
}

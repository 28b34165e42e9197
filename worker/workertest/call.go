package workertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orbitkit/orbit/worker"
)

// Run calls f for one attempt as a worker would, waits for it and returns what a worker
// would report. An Execution that no server would assign fails the test, and so does a
// handler that ignores the end of its context.
func Run(t TB, f worker.HandlerFunc, e Execution) Result {
	t.Helper()
	return Start(t, f, e).Wait()
}

// A Call is a running call of a handler, in which the test takes part. Every Call must be
// waited for. Its methods may be called by several goroutines at once, but Wait and
// AwaitProgress by that of the test only.
type Call struct {
	t      TB
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	stop   time.Duration
	stuck  worker.StuckError

	mu       sync.Mutex
	progress []string
	told     chan struct{} // closed and replaced with each progress
	result   Result        // valid once done is closed
}

// Start begins to call f for one attempt and returns at once.
func Start(t TB, f worker.HandlerFunc, e Execution) *Call {
	t.Helper()
	execution, err := e.execution()
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, release := context.WithTimeoutCause(ctx, e.Timeout, worker.ErrAttemptTimeout)
	c := &Call{
		t: t, ctx: ctx, cancel: cancel, stop: e.StopTimeout, done: make(chan struct{}), told: make(chan struct{}),
		stuck: worker.StuckError{
			TaskID: e.Task.ID, AttemptID: e.AttemptID,
			Handler: worker.Handler{Name: e.Task.Handler, Version: e.Task.HandlerVersion},
		},
	}
	go func() {
		defer close(c.done)
		defer release()
		defer cancel(nil)
		report, problem := worker.Execute(ctx, f, execution.WithProgress(c.note))
		c.result = Result{
			Outcome: report.Outcome, Retryable: report.Retryable, Result: report.Result, Error: report.Error,
			Problem: problem, Cause: context.Cause(ctx), Progress: c.Progress(),
		}
	}()
	return c
}

func (c *Call) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = append(c.progress, text)
	close(c.told)
	c.told = make(chan struct{})
}

// Progress returns what the handler has reported so far, oldest first.
func (c *Call) Progress() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.progress)
}

// AwaitProgress waits until the handler reports this progress. It fails the test if the
// handler returns before.
func (c *Call) AwaitProgress(text string) {
	c.t.Helper()
	for {
		c.mu.Lock()
		found, told := slices.Contains(c.progress, text), c.told
		c.mu.Unlock()
		if found {
			return
		}
		select {
		case <-told:
		case <-c.done:
			if !slices.Contains(c.Progress(), text) {
				c.t.Fatalf("workertest: the handler has returned without the progress %q, it reported %q", text, c.Progress())
			}
			return
		}
	}
}

// RequestCancel ends the handler's context as a cancel intent does: its cause is
// worker.ErrCancelRequested, with the reason if there is one. The right to execute lasts.
func (c *Call) RequestCancel(reason string) {
	cause := worker.ErrCancelRequested
	if reason != "" {
		cause = fmt.Errorf("%w: %s", worker.ErrCancelRequested, reason)
	}
	c.cancel(cause)
}

// LoseLease ends the handler's context as a lost lease does: its cause is
// worker.ErrLeaseLost, and another attempt may be running.
func (c *Call) LoseLease() { c.cancel(worker.ErrLeaseLost) }

// PassTimeout ends the handler's context as the attempt's timeout does, without waiting
// for it: its cause is worker.ErrAttemptTimeout.
func (c *Call) PassTimeout() { c.cancel(worker.ErrAttemptTimeout) }

// Drain ends the handler's context as a worker does that stops and cannot wait any
// longer: its cause is worker.ErrDraining.
func (c *Call) Drain() { c.cancel(worker.ErrDraining) }

// Done is closed when the handler has returned.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait waits for the handler and returns what a worker would report. It fails the test if
// the handler does not return within Execution.StopTimeout after the end of its context.
func (c *Call) Wait() Result {
	c.t.Helper()
	select {
	case <-c.done:
		return c.result
	case <-c.ctx.Done():
	}
	stuck := time.NewTimer(c.stop)
	defer stuck.Stop()
	select {
	case <-c.done:
		return c.result
	case <-stuck.C:
		c.stuck.Cause = context.Cause(c.ctx)
		c.t.Fatalf("workertest: %v", &c.stuck)
		return Result{}
	}
}

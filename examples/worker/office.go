package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/worker"
)

// An office is what the handlers share.
type office struct {
	calls          atomic.Int32  // of handlers
	scanning, most atomic.Int32  // scans at one time
	started        chan struct{} // the archive is at work
	release        chan struct{} // it may end
	once           sync.Once
}

// counted is middleware: it surrounds every handler.
func (o *office) counted(next worker.HandlerFunc) worker.HandlerFunc {
	return func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		o.calls.Add(1)
		return next(ctx, e)
	}
}

// scan uses the one scanner, which takes no second file meanwhile.
func (o *office) scan(context.Context, worker.Execution) (json.RawMessage, error) {
	defer o.scanning.Add(-1)
	if n := o.scanning.Add(1); n > o.most.Load() {
		o.most.Store(n)
	}
	time.Sleep(10 * time.Millisecond) // the work
	return nil, nil
}

// oneAtATime submits several scans at once. A handler with a capacity of its own waits for
// nobody and keeps nobody waiting.
func oneAtATime(ctx context.Context, d *demo.Demo, queue string, o *office) error {
	before := o.calls.Load()
	var tasks []orbit.Task
	for i := range 4 {
		task, err := submit(ctx, d, queue, fmt.Sprintf("scan-%d", i), "file.scan")
		if err != nil {
			return err
		}
		tasks = append(tasks, task)
	}
	succeeded := 0
	for _, task := range tasks {
		ended, err := d.Client.WaitTask(ctx, task.ID)
		if err != nil {
			return err
		}
		if ended.State == orbit.StateSucceeded {
			succeeded++
		}
	}
	fmt.Printf("capacity: scans=%d succeeded=%d most_at_once=%d\n", o.calls.Load()-before, succeeded, o.most.Load())
	return errors.Join(demo.Same("succeeded", succeeded, len(tasks)), demo.Same("most scans at once", o.most.Load(), 1))
}

// archive takes a while.
func (o *office) archive(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
	close(o.started)
	select {
	case <-o.release:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (o *office) finish() { o.once.Do(func() { close(o.release) }) }

// draining stops the worker while a handler runs: the handler ends in peace and its end is
// reported, and what comes later is left to other workers.
func draining(ctx context.Context, d *demo.Demo, queue string, o *office, drain func() error) error {
	running, err := submit(ctx, d, queue, "archive", "file.archive")
	if err != nil {
		return err
	}
	select {
	case <-o.started:
	case <-ctx.Done():
		return fmt.Errorf("no worker took the task: %w", context.Cause(ctx))
	}
	time.AfterFunc(100*time.Millisecond, o.finish)
	drained := drain()
	later, err := submit(ctx, d, queue, "too-late", "file.convert")
	if err != nil {
		return err
	}
	if running, err = d.Client.GetTask(ctx, running.ID); err != nil {
		return err
	}
	if later, err = d.Client.GetTask(ctx, later.ID); err != nil {
		return err
	}
	fmt.Printf("drain: running_task=%s later_task=%s worker_drained=%t\n", running.State, later.State, drained == nil)
	return errors.Join(
		drained,
		demo.Same("running task", running.State, orbit.StateSucceeded),
		demo.Same("later task", later.State, orbit.StateWaiting),
	)
}

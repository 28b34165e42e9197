package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// parts splits a configuration into one for the handlers that share Capacity and one for
// each handler that has a capacity of its own. The server knows them as processes of
// their own, so that it never assigns more to a handler than it has room for: nothing
// waits here for a slot, and nothing has to be handed back.
func (c Config) parts() ([]Config, error) {
	shared := c
	shared.Handlers, shared.HandlerCapacity = maps.Clone(c.Handlers), nil
	var parts []Config
	for _, h := range slices.SortedFunc(maps.Keys(c.HandlerCapacity), byName) {
		f, known := c.Handlers[h]
		n := c.HandlerCapacity[h]
		switch {
		case !known:
			return nil, refuse("HandlerCapacity", "%q %q must be one of Handlers", h.Name, h.Version)
		case n < 1 || n > maxCapacity:
			return nil, refuse("HandlerCapacity", "%q: %d must be 1 to %d", h.Name, n, maxCapacity)
		}
		delete(shared.Handlers, h)
		part := shared
		part.Handlers, part.Capacity = map[Handler]HandlerFunc{h: f}, n
		parts = append(parts, part)
	}
	if len(shared.Handlers) > 0 || len(parts) == 0 {
		parts = slices.Insert(parts, 0, shared)
	}
	return parts, nil
}

// all are the worker's parts, itself first.
func (w *Worker) all() []*Worker { return append([]*Worker{w}, w.beside...) }

// runAll runs the parts together: the first to end stops the others.
func (w *Worker) runAll(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	parts := w.all()
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() {
			defer stop()
			errs[i] = part.run(ctx)
		})
	}
	running.Wait()
	return joinDrains(errs)
}

// joinDrains makes one error of those of the parts: what is not drained stands in one
// DrainError.
func joinDrains(errs []error) error {
	var drain DrainError
	var others []error
	for _, err := range errs {
		if one := (*DrainError)(nil); errors.As(err, &one) {
			drain.Running = append(drain.Running, one.Running...)
			drain.Unacknowledged = append(drain.Unacknowledged, one.Unacknowledged...)
			continue
		}
		others = append(others, err)
	}
	err := errors.Join(others...)
	if len(drain.Running)+len(drain.Unacknowledged) == 0 {
		return err
	}
	slices.Sort(drain.Running)
	slices.Sort(drain.Unacknowledged)
	if err == nil {
		return &drain
	}
	return fmt.Errorf("%w; %w", err, &drain)
}

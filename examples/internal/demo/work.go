package demo

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/orbitkit/orbit/worker"
)

// Work runs a worker for handlers of version v1, by name, on queues. The function that it
// returns drains the worker and waits for it; it may be called twice. If the server does
// not take the worker, the run ends with that error.
func (d *Demo) Work(ctx context.Context, handlers map[string]worker.HandlerFunc, queues ...string) (drain func() error, err error) {
	for _, needed := range []string{"workers:connect", "workers:consume"} {
		if !slices.Contains(d.may, needed) {
			return nil, fmt.Errorf("the credential lacks %s: orbit-admin bootstrap --worker-access makes one that has it", needed)
		}
	}
	byVersion := make(map[worker.Handler]worker.HandlerFunc)
	for name, f := range handlers {
		byVersion[worker.Handler{Name: name, Version: "v1"}] = f
	}
	w, err := worker.NewWorker(d.URL, d.Credentials.Token, worker.Config{
		Queues: queues, Handlers: byVersion, Log: slog.New(slog.DiscardHandler),
		OnError: func(err error) { fmt.Fprintf(os.Stderr, "%s: worker: %v\n", d.name, err) },
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		if err != nil {
			d.fail(fmt.Errorf("worker ended: %w", err))
		}
		ended <- err
	}()
	return sync.OnceValue(func() error {
		stop()
		return <-ended
	}), nil
}

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

// Start runs a worker with cfg, to which it adds where its errors go. The function that it
// returns drains the worker and waits for it; it may be called twice. If the server does not
// take the worker, the run ends with that error.
func (d *Demo) Start(ctx context.Context, cfg worker.Config) (drain func() error, err error) {
	for _, needed := range []string{"workers:connect", "workers:consume"} {
		if !slices.Contains(d.may, needed) {
			return nil, fmt.Errorf("the credential lacks %s: orbit-admin bootstrap --worker-access makes one that has it", needed)
		}
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.OnError = func(err error) { fmt.Fprintf(os.Stderr, "%s: worker: %v\n", d.name, err) }
	w, err := worker.NewWorker(d.URL, d.Credentials.Token, cfg)
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

package demo

import (
	"context"

	"github.com/orbitkit/orbit/worker"
)

// Work is Start for handlers of version v1, by name, on queues.
func (d *Demo) Work(ctx context.Context, handlers map[string]worker.HandlerFunc, queues ...string) (drain func() error, err error) {
	byVersion := make(map[worker.Handler]worker.HandlerFunc)
	for name, f := range handlers {
		byVersion[worker.Handler{Name: name, Version: "v1"}] = f
	}
	return d.Start(ctx, worker.Config{Queues: queues, Handlers: byVersion})
}

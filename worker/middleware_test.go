package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// A notebook is middleware that writes down who is entered and left.
type notebook struct {
	mu    sync.Mutex
	lines []string
}

func (n *notebook) write(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

func (n *notebook) around(name string) worker.Middleware {
	return func(next worker.HandlerFunc) worker.HandlerFunc {
		return func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
			n.write(name + " in " + e.Task.Handler)
			result, err := next(ctx, e)
			n.write(name + " out")
			return result, err
		}
	}
}

// REF-WRK-001: middleware surrounds every handler, the first outermost, and errors keep
// their meaning through it.
func TestMiddlewareSurroundsHandlers(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	var n notebook
	wrapping := func(next worker.HandlerFunc) worker.HandlerFunc {
		return func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
			if _, err := next(ctx, e); err != nil {
				return nil, fmt.Errorf("seen: %w", err)
			}
			panic("in middleware")
		}
	}
	cfg := quiet(func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		n.write("handler")
		if e.Task.AttemptNumber == 1 {
			return nil, worker.Retryable(errors.New("not yet"))
		}
		return nil, nil
	})
	cfg.Middleware = []worker.Middleware{n.around("a"), wrapping, n.around("b")}
	drain := s.Work(cfg)
	r := orbit.SubmitTaskRequest{Handler: update.Name, Retry: orbit.RetryPolicy{MaxAttempts: 2}}
	got := s.Want(s.Submit(r), orbit.StateNeedsReview)
	drain()
	if want := "NEEDS_REVIEW after 2 attempts [FAILED (seen: not yet) UNKNOWN (handler panicked: in middleware)]"; got.String() != want {
		t.Errorf("%v, want %s", got, want)
	}
	want := []string{
		"a in object.update", "b in object.update", "handler", "b out", "a out",
		"a in object.update", "b in object.update", "handler", "b out", // a was left by the panic
	}
	if !slices.Equal(n.lines, want) {
		t.Errorf("lines are %q", n.lines)
	}
}

func TestMiddlewareMustNotBeNil(t *testing.T) {
	none := func(worker.HandlerFunc) worker.HandlerFunc { return nil }
	for want, m := range map[string]worker.Middleware{
		"Middleware: [0] must not be nil":                                  nil,
		`Middleware: [0] must not return nil (for handler "object.update"`: none,
	} {
		cfg := quiet(succeed)
		cfg.Queues, cfg.Middleware = []string{queueID}, []worker.Middleware{m}
		if w, err := worker.NewWorker("https://orbit.example", "t", cfg); err == nil || w != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewWorker = %v, want %s", err, want)
		}
	}
}

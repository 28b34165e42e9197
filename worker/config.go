package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// A HandlerFunc runs one attempt and returns its result, a JSON value of at most
// 256 KiB, or nil for none. What an error means is told in the package comment;
// with an error the result is dropped.
//
// The text of an error, and the value of a panic, is stored with the attempt and shown
// to everyone who may read the task.
//
// The context ends when the right to execute ends, when a cancel is requested, at
// the attempt's timeout and when a drain takes too long; [context.Cause] tells
// which. The handler should then return soon; until it does it occupies a slot. It
// may be called by several goroutines at once, once for each attempt.
type HandlerFunc func(ctx context.Context, e Execution) (json.RawMessage, error)

// Config describes what a Worker runs and how. Queues and Handlers are required;
// the zero value of every other field works.
type Config struct {
	// Queues are the ids of the queues to take tasks from.
	Queues []string
	// Handlers are the functions by handler name and version. A task of another
	// handler is never assigned.
	Handlers map[Handler]HandlerFunc
	// Capacity is how many attempts are held, and so how many handlers run, at one
	// time. At most 1000. Default 4.
	Capacity int
	// HandlerCapacity bounds how many of the slots of Capacity a handler may occupy, 1 to
	// 1000: so many attempts of it are held at one time. Its other tasks go to other
	// workers instead of waiting here. To keep slots free for a handler, bound all the
	// others. Default: none has a bound.
	HandlerCapacity map[Handler]int
	// Middleware is put around every handler, the first outermost. Default none.
	Middleware []Middleware
	// DrainTimeout is how long running handlers may go on after Run is told to
	// stop. Then their contexts are cancelled. Default 30s.
	DrainTimeout time.Duration
	// StopTimeout is how long a handler may take to return after its context was
	// cancelled. A handler that takes longer is reported with a StuckError; at the
	// end of a drain Run then returns a DrainError. Default 10s.
	StopTimeout time.Duration
	// MinReconnect and MaxReconnect bound the wait before a reconnect: it is chosen
	// at random between zero and a limit that starts at MinReconnect, grows by half
	// with each failure and ends at MaxReconnect. Default 500ms and 30s.
	MinReconnect, MaxReconnect time.Duration
	// Network tunes how connections are opened.
	Network Network
	// TracerProvider makes the tracer whose spans continue the traces of those who submit:
	// the span of an execution is in the handler's context. Default: that of
	// otel.GetTracerProvider, which makes none unless the program sets one; the context
	// then still carries the trace of the submitter, so that the handler can hand it on.
	TracerProvider trace.TracerProvider
	// OnError is told what the worker deals with by itself: lost and refused
	// connections, protocol errors, panics, results that cannot be reported, stuck
	// handlers. It may be called by several goroutines at once and must not block.
	// Default: the error is logged.
	OnError func(error)
	// Log gets what happens. Default: slog.Default, as a worker is part of a program of
	// its owner.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	defaultTo(&c.Capacity, 4)
	defaultTo(&c.DrainTimeout, 30*time.Second)
	defaultTo(&c.StopTimeout, 10*time.Second)
	defaultTo(&c.MinReconnect, 500*time.Millisecond)
	defaultTo(&c.MaxReconnect, max(30*time.Second, c.MinReconnect))
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.OnError == nil {
		log := c.Log
		c.OnError = func(err error) { logError(log, err) }
	}
	c.Network = c.Network.withDefaults()
	return c
}

// logError is the default of OnError. Of a panic it logs the stack too, which goes
// nowhere else.
func logError(log *slog.Logger, err error) {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		log.Error("worker error", "err", err, "stack", string(panicked.Stack))
		return
	}
	log.Error("worker error", "err", err)
}

func defaultTo[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c Config) validate() error {
	for name, d := range map[string]time.Duration{
		"DrainTimeout": c.DrainTimeout, "StopTimeout": c.StopTimeout,
		"MinReconnect": c.MinReconnect, "MaxReconnect": c.MaxReconnect,
	} {
		if d < 0 {
			return refuse(name, "%v must not be negative", d)
		}
	}
	if c.MaxReconnect < c.MinReconnect {
		return refuse("MaxReconnect", "%v must not be shorter than MinReconnect %v", c.MaxReconnect, c.MinReconnect)
	}
	for h, f := range c.Handlers {
		if f == nil {
			return refuse("Handlers", "%q: the function must not be nil", h.Name)
		}
	}
	for i, m := range c.Middleware {
		if m == nil {
			return refuse("Middleware", "[%d] must not be nil", i)
		}
	}
	return c.Network.validate()
}

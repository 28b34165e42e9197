package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
)

const (
	answerTimeout = 10 * time.Second // after it a message is repeated
	farewell      = 5 * time.Second  // for what need not be said at any price
	repeatFirst   = 200 * time.Millisecond
	repeatLimit   = 5 * time.Second // between repeats of a message that the server could not take
)

// A Worker takes attempts from a task server and runs handlers for them. Make one
// with NewWorker and call Run once.
type Worker struct {
	url, token   string
	cfg          Config
	log          *slog.Logger
	stats        *stats
	tracer       trace.Tracer
	registration Registration
	link         *link
	parts        sync.WaitGroup // the connection's loop and the attempts

	drain   chan struct{} // closed when Run is told to stop
	drained chan struct{} // closed when the server has confirmed that it assigns nothing more
	slots   chan struct{} // tells that credit may be given
	idle    chan struct{} // tells that an attempt is over

	mu         sync.Mutex
	begun      bool // Run was called
	registered bool // a server has taken the registration
	lease      time.Duration
	attempts   map[string]*attempt
	wanted     int                // attempts that count towards the capacity
	reporting  int                // those of them whose handler is over, and whose end is being told
	promised   int                // credit that no assignment has used yet
	seen       uint64             // assignments that have come on this connection
	shares     map[Handler]*share // of the handlers with a capacity of their own
	restUntil  time.Time
}

// NewWorker makes a worker with a new process identity for the task server at url,
// for example https://orbit.example:8443; http is for loopback addresses only. It
// always declares support for resource keys: a handler of keyed tasks hands
// Execution.ConcurrencyToken to the resource. The error names the field that is
// wrong and holds no secret.
func NewWorker(url, token string, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	shares, err := cfg.newShares()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		url: url, token: token, cfg: cfg, log: cfg.Log, stats: newStats(cfg.Handlers), tracer: cfg.tracer(), shares: shares,
		registration: Registration{
			ProcessID: NewProcessID(), Queues: slices.Clone(cfg.Queues), Capacity: cfg.Capacity,
			Handlers: slices.SortedFunc(maps.Keys(cfg.Handlers), byName), ConcurrencyKeys: true,
		},
		link: newLink(), attempts: make(map[string]*attempt),
		drain: make(chan struct{}), drained: make(chan struct{}),
		slots: make(chan struct{}, 1), idle: make(chan struct{}, 1),
	}
	_, err = endpoint(url, cfg.Network.AllowInsecure)
	if err := errors.Join(err, checkToken(token), cfg.validate(), w.registration.validate()); err != nil {
		return nil, err
	}
	if w.cfg.Handlers, err = cfg.wrapped(); err != nil {
		return nil, err
	}
	return w, nil
}

// byName puts handlers in one order, so that a reconnect registers the same.
func byName(a, b Handler) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
}

// ProcessID returns the identity of this worker, which attempts show as worker_id.
func (w *Worker) ProcessID() string { return w.registration.ProcessID }

// Run works until ctx is cancelled, then drains: it takes no new assignment, hands
// back what has not started, lets running handlers go on for Config.DrainTimeout
// and then cancels them, and waits until the server has confirmed every end. It
// returns nil after a clean drain and a [*DrainError] if something was not over
// Config.StopTimeout later.
//
// Lost connections, a server that is away and a refused credential do not end Run:
// it reports them and connects again. It ends at once with a [*RefusedError] or a
// [*ClosedError] if the first server that it reaches does not take the
// registration, as a server that is too old does.
//
// The values of ctx are passed to handlers. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	if !w.begin() {
		return errors.New("worker: Run was called before")
	}
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer w.parts.Wait()
	defer stop()
	refused := make(chan error, 1)
	w.parts.Go(func() { refused <- w.connect(base) })
	select {
	case err := <-refused:
		return err
	case <-ctx.Done():
		return w.shutDown()
	}
}

func (w *Worker) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.begun
	w.begun = true
	return !before
}

// shutDown drains. The connection lives on meanwhile.
func (w *Worker) shutDown() error {
	close(w.drain)
	if !w.idleWithin(w.cfg.DrainTimeout) {
		w.each(func(a *attempt) { a.halt(ErrDraining) })
		if !w.idleWithin(w.cfg.StopTimeout) {
			return w.unfinished()
		}
	}
	w.awaitDrained()
	return nil
}

// draining reports whether Run was told to stop.
func (w *Worker) draining() bool {
	select {
	case <-w.drain:
		return true
	default:
		return false
	}
}

// idleWithin waits until no attempt is held.
func (w *Worker) idleWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w.mu.Lock()
		held := len(w.attempts)
		w.mu.Unlock()
		if held == 0 {
			return true
		}
		select {
		case <-w.idle:
		case <-timer.C:
			return false
		}
	}
}

// awaitDrained lets the server confirm the drain, so that no assignment is under
// way when the connection is closed. Without a connection there is none.
func (w *Worker) awaitDrained() {
	c, _ := w.link.now()
	if c == nil {
		return
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-w.drained:
	case <-c.Done():
	case <-timer.C:
	}
	w.idleWithin(farewell) // what had been under way is being handed back
}

// unfinished tells what is left, or nothing if nothing may have had an effect.
func (w *Worker) unfinished() error {
	var e DrainError
	w.each(func(a *attempt) {
		switch handling, started := a.state(); {
		case handling:
			e.Running = append(e.Running, a.id.ID)
		case started:
			e.Unacknowledged = append(e.Unacknowledged, a.id.ID)
		}
	})
	if len(e.Running)+len(e.Unacknowledged) == 0 {
		return nil
	}
	slices.Sort(e.Running)
	slices.Sort(e.Unacknowledged)
	return &e
}

// each calls f for every attempt, outside the lock.
func (w *Worker) each(f func(*attempt)) {
	w.mu.Lock()
	held := slices.Collect(maps.Values(w.attempts))
	w.mu.Unlock()
	for _, a := range held {
		f(a)
	}
}

// release forgets an attempt that is over.
func (w *Worker) release(a *attempt) {
	reporting := false
	a.set(func() { reporting = a.reporting })
	w.mu.Lock()
	delete(w.attempts, a.id.ID)
	s := w.shareOf(a)
	if !a.unwanted {
		w.wanted--
		if s != nil {
			s.wanted--
		}
	}
	if reporting {
		w.reporting--
		if s != nil {
			s.reporting--
		}
	}
	w.mu.Unlock()
	signal(w.idle)
	signal(w.slots)
}

// reports notes that the handler of an attempt is over and its end is being told.
func (w *Worker) reports(a *attempt) {
	a.set(func() { a.reporting = true })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reporting++
	if s := w.shareOf(a); s != nil {
		s.reporting++
	}
}

// signal wakes the one that waits on ch, now or next.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// persist repeats f, on the connection of the moment, until the server has answered
// it exactly or ctx ends.
func (w *Worker) persist(ctx context.Context, f func(context.Context, *Conn) error) error {
	var pause *backoff.ExponentialBackOff
	for {
		c, err := w.link.wait(ctx)
		if err != nil {
			return err
		}
		if err = w.try(ctx, c, answerTimeout, f); !repeatable(err) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c.Err() == nil {
			if pause == nil { // as a rule the first try is the last
				pause = newBackOff(repeatFirst, repeatLimit)
			}
			sleep(ctx, pause.NextBackOff())
		}
	}
}

// try runs f once. A server that has not given any sign of life meanwhile is taken
// for gone.
func (w *Worker) try(ctx context.Context, c *Conn, patience time.Duration, f func(context.Context, *Conn) error) error {
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := f(limited, c)
	if limited.Err() != nil && ctx.Err() == nil && c.quiet() >= time.Since(asked)+silence {
		c.abandon(errUnanswered) // not even the ping that went with the message was answered
	}
	return err
}

// report tells the owner of something that the worker deals with by itself.
func (w *Worker) report(err error) { w.cfg.OnError(err) }

func unavailable(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code == orbit.CodeUnavailable
}

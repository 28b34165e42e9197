package worker

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

// creditRefresh is how often credit that stays open is given anew, so that no lost
// count can starve the worker.
const creditRefresh = 30 * time.Second

var errServerDrains = errors.New("worker: the server node drains")

// connect keeps a connection until ctx ends. It returns an error only if the first
// server that answers does not take the registration.
func (w *Worker) connect(ctx context.Context) error {
	pause := newPause(w.cfg.MinReconnect, w.cfg.MaxReconnect)
	var alone time.Time // since when there is no connection
	for {
		lived, err := w.session(ctx)
		if lived > 0 {
			alone = time.Now()
		}
		if ctx.Err() != nil {
			return nil
		}
		if w.refusedForGood(err) {
			return err
		}
		if !errors.Is(err, errServerDrains) {
			w.report(err)
		}
		wait := max(pause.after(err, lived, w.hurry(alone)), w.restLeft())
		w.log.Info("worker is not connected", "retry_in", wait) // why, OnError was told
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// session makes one connection and serves it to its end. It returns how long it
// lived and why it ended.
func (w *Worker) session(ctx context.Context) (time.Duration, error) {
	c, err := Dial(ctx, w.url, w.token, w.registration, w.cfg.Network, w.held()...)
	if ctx.Err() == nil {
		w.stats.connected(err)
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	w.accepted(c.Session())
	w.log.Info("worker is connected", "node_id", c.Session().NodeID, "process_id", w.ProcessID())
	err = w.serve(ctx, c)
	return time.Since(began), err
}

// held are the attempts that a new connection is told of and that it has to settle before
// it gets others. Those that are being handed back are not: they are settled by that.
func (w *Worker) held() (ids []Attempt) {
	w.each(func(a *attempt) {
		if !a.unwanted {
			ids = append(ids, a.id)
		}
	})
	return ids
}

func (w *Worker) accepted(s Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.registered, w.lease = true, s.Lease
}

// hurry is how long a wait may be without costing what is held its lease: a third,
// as for renewals. It is without bound if nothing is held, or if the worker has been
// alone for so long that every lease has ended.
func (w *Worker) hurry(alone time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted == 0 || time.Since(alone) > w.lease {
		return math.MaxInt64
	}
	return w.lease / 3
}

// serve resumes what is held and then takes what comes. Attempts run under ctx:
// they outlive the connection.
func (w *Worker) serve(ctx context.Context, c *Conn) error {
	if err := w.resume(ctx, c); err != nil {
		return err
	}
	w.link.set(c)
	defer w.link.set(nil)
	here, leave := context.WithCancelCause(ctx)
	var attendant sync.WaitGroup
	attendant.Go(func() { w.attend(here, c) })
	defer attendant.Wait()
	defer leave(nil)
	err := w.listen(ctx, here, leave, c)
	if w.restLeft() > 0 && tempoOf(err) == quick {
		return errServerDrains // that the server then closes is no news
	}
	return err
}

// listen deals with what the server says on its own.
func (w *Worker) listen(ctx, here context.Context, leave context.CancelCauseFunc, c *Conn) error {
	var rest *time.Timer
	defer func() {
		if rest != nil {
			rest.Stop()
		}
	}()
	for {
		e, err := c.Next(here)
		if err != nil {
			return err
		}
		switch e := e.(type) {
		case *Assignment:
			err = w.take(ctx, e)
		case *Cancellation:
			w.passOn(e)
		case *Draining:
			if rest == nil {
				rest = w.rest(e.RetryAfter, leave)
			}
		case *RefusedError:
			w.report(e)
		case *barrier:
			w.confirmDrained()
		}
		if broke := (*ProtocolError)(nil); errors.As(err, &broke) {
			c.breach(broke)
			return err
		}
	}
}

// A barrier is an event that the worker puts behind those of the server.
type barrier struct{}

func (*barrier) event() {}

// resume brings both sides to one view of the attempts before anything new is
// taken. What the server thinks we hold, but never reached us, is handed back.
func (w *Worker) resume(ctx context.Context, c *Conn) error {
	w.mu.Lock()
	w.forgetPromise()
	w.seen = 0
	for _, id := range c.Session().Attempts {
		if w.attempts[id.ID] == nil {
			w.add(ctx, newAttempt(w, id, nil))
		}
	}
	w.mu.Unlock()
	var asking sync.WaitGroup
	failures := make(chan error, len(w.held()))
	w.each(func(a *attempt) {
		if !a.unwanted {
			asking.Go(func() { failures <- a.resume(ctx, c) })
		}
	})
	asking.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// take accepts an assignment, or hands it back if there is no room for it. What is only
// being reported leaves room: the server assigns the next as soon as it has taken a
// report, and that may be here before the confirmation has reached the attempt. While
// draining the attempt hands itself back before it starts.
func (w *Worker) take(ctx context.Context, e *Assignment) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	share := w.shares[Handler{e.Task.Handler, e.Task.HandlerVersion}]
	w.used(share)
	signal(w.slots)
	if known := w.attempts[e.Attempt.ID]; known != nil {
		return known.sameAs(e)
	}
	if len(w.attempts) >= 3*w.cfg.Capacity {
		return broken("task.assign: more assignments than were asked for")
	}
	a := newAttempt(w, e.Attempt, e)
	a.unwanted = !w.hasRoom(share)
	w.add(ctx, a)
	return nil
}

// add holds an attempt and lets it run. The caller has the lock.
func (w *Worker) add(ctx context.Context, a *attempt) {
	w.attempts[a.id.ID] = a
	if a.unwanted {
		w.parts.Go(func() { a.discard(ctx) })
		return
	}
	w.wanted++
	if s := w.shareOf(a); s != nil {
		s.wanted++
	}
	w.parts.Go(func() { a.run(ctx) })
}

// passOn tells an attempt of a cancel intent.
func (w *Worker) passOn(e *Cancellation) {
	w.mu.Lock()
	a := w.attempts[e.Attempt.ID]
	w.mu.Unlock()
	if a != nil && a.id == e.Attempt {
		a.cancelAsked(e.Reason)
	}
}

// rest keeps the connection until the server closes it, or leaves it when the time
// to come back is there; no reconnect comes earlier than that.
func (w *Worker) rest(after time.Duration, leave context.CancelCauseFunc) *time.Timer {
	after = min(after, w.cfg.MaxReconnect)
	w.mu.Lock()
	w.restUntil = time.Now().Add(after)
	w.mu.Unlock()
	return time.AfterFunc(after, func() { leave(errServerDrains) })
}

func (w *Worker) restLeft() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.restUntil)
}

// attend gives credit and says that the worker drains, until the connection ends.
func (w *Worker) attend(ctx context.Context, c *Conn) {
	refresh := time.NewTicker(creditRefresh)
	defer refresh.Stop()
	drain := w.drain
	for {
		if err := w.give(ctx, c); err != nil {
			return
		}
		select {
		case <-w.slots:
		case <-refresh.C:
			w.mu.Lock()
			w.forgetPromise()
			w.mu.Unlock()
		case <-drain:
			drain = nil
			w.sayDrain(ctx, c)
		case <-c.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// sayDrain asks for the last assignment. What had come before the answer waits in
// front of the barrier.
func (w *Worker) sayDrain(ctx context.Context, c *Conn) {
	err := w.try(ctx, c, answerTimeout, func(ctx context.Context, c *Conn) error { return c.Drain(ctx) })
	if err != nil {
		w.log.Debug("drain is not confirmed", "err", err)
		return
	}
	select {
	case c.events <- &barrier{}:
	case <-ctx.Done():
	}
}

func (w *Worker) confirmDrained() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.drained:
	default:
		close(w.drained)
	}
}

package worker

import (
	"context"

	"github.com/orbitkit/orbit/internal/wire"
)

const maxLimits = 256 // in one credit

// A CreditLimit bounds how many more assignments of a queue, of a handler or of both a
// process takes now. What is empty is left open: one of Queue and Handler.Name has to be
// there, and Handler.Version may stand only with Handler.Name.
type CreditLimit struct {
	Queue   string // id of a registered queue
	Handler Handler
	Slots   int // at most 1000
}

// CreditWithin is Credit with limits for some queues and handlers, at most 256 and no two
// about the same. What they do not allow goes to other processes. Seen is how many
// assignments of this connection the caller had taken from Next when it counted its slots:
// with it the server takes off what is on its way, and never assigns more than was asked
// for.
func (c *Conn) CreditWithin(ctx context.Context, slots int, seen uint64, limits []CreditLimit) error {
	if len(limits) > maxLimits {
		return refuse("limits", "%d must be at most %d", len(limits), maxLimits)
	}
	m := wire.Credit{Slots: slots, Seen: &seen}
	for _, l := range limits {
		if err := c.registration.checkLimit(l); err != nil {
			return err
		}
		m.Limits = append(m.Limits, wire.CreditLimit{
			QueueID: l.Queue, Handler: l.Handler.Name, HandlerVersion: l.Handler.Version, Slots: l.Slots,
		})
	}
	return c.sendCredit(ctx, m)
}

// checkLimit refuses what the server would end the connection for.
func (r Registration) checkLimit(l CreditLimit) error {
	known := l.Handler == Handler{}
	for _, h := range r.Handlers {
		known = known || l.Handler.Name == h.Name && (l.Handler.Version == "" || l.Handler.Version == h.Version)
	}
	switch {
	case l.Queue == "" && l.Handler.Name == "":
		return refuse("limits", "must name a queue or a handler")
	case l.Queue != "" && !r.consumes(l.Queue):
		return refuse("limits", "queue %q is not registered", l.Queue)
	case !known:
		return refuse("limits", "handler %q %q is not registered", l.Handler.Name, l.Handler.Version)
	case l.Slots < 0 || l.Slots > maxCapacity:
		return refuse("limits", "%d slots must be 0 to %d", l.Slots, maxCapacity)
	}
	return nil
}

func (c *Conn) sendCredit(ctx context.Context, m wire.Credit) error {
	if m.Slots < 0 || m.Slots > c.registration.Capacity {
		return refuse("slots", "%d must be 0 to the registered capacity %d", m.Slots, c.registration.Capacity)
	}
	id := c.newID()
	c.mu.Lock()
	c.credit = id
	c.mu.Unlock()
	return c.send(ctx, false, wire.TypeCredit, id, m)
}

// A share is what a handler with a capacity of its own may hold and holds. It is guarded
// by the worker's lock.
type share struct {
	capacity  int
	wanted    int // attempts that count towards the capacity
	reporting int // those of them whose handler is over
	promised  int // credit that no assignment has used yet
}

// newShares checks the handlers with a capacity of their own.
func (c Config) newShares() (map[Handler]*share, error) {
	shares := make(map[Handler]*share)
	for h, n := range c.HandlerCapacity {
		switch {
		case c.Handlers[h] == nil:
			return nil, refuse("HandlerCapacity", "%q %q must be one of Handlers", h.Name, h.Version)
		case n < 1 || n > maxCapacity:
			return nil, refuse("HandlerCapacity", "%q: %d must be 1 to %d", h.Name, n, maxCapacity)
		case n < c.Capacity: // else it never matters
			shares[h] = &share{capacity: n}
		}
	}
	return shares, nil
}

// shareOf returns the share that an attempt counts towards, or nil.
func (w *Worker) shareOf(a *attempt) *share {
	if a.offer == nil {
		return nil
	}
	return w.shares[a.handler()]
}

// hasRoom reports whether another attempt may be run. The caller has the lock.
func (w *Worker) hasRoom(s *share) bool {
	return w.wanted-w.reporting < w.cfg.Capacity && (s == nil || s.wanted-s.reporting < s.capacity)
}

// give gives credit if there is more than was given before.
func (w *Worker) give(ctx context.Context, c *Conn) error {
	w.mu.Lock()
	slots, more := w.credit()
	limits, seen := w.limits(slots), w.seen
	w.mu.Unlock()
	if !more {
		return nil
	}
	return c.CreditWithin(ctx, slots, seen, limits)
}

// credit promises all that is free and tells whether that is more than was promised
// before. It counts only slots that are really free, so that an assignment never waits for
// one. The caller has the lock.
func (w *Worker) credit() (slots int, more bool) {
	if w.draining() {
		return 0, false
	}
	free := max(0, w.cfg.Capacity-w.wanted)
	more = free > w.promised
	for _, s := range w.shares {
		more = more || min(free, s.capacity-s.wanted) > min(w.promised, s.promised)
	}
	if !more {
		return 0, false
	}
	w.promised = free
	for _, s := range w.shares {
		s.promised = max(0, s.capacity-s.wanted)
	}
	return free, true
}

// limits are those that bound slots. The caller has the lock.
func (w *Worker) limits(slots int) (limits []CreditLimit) {
	for h, s := range w.shares {
		limits = append(limits, CreditLimit{Handler: h, Slots: min(s.promised, slots)})
	}
	return limits
}

// used notes that an assignment has come.
func (w *Worker) used(s *share) {
	w.seen++
	w.promised = max(0, w.promised-1)
	if s != nil {
		s.promised = max(0, s.promised-1)
	}
}

// forgetPromise has all credit given anew. With a new connection nothing has been
// received on it.
func (w *Worker) forgetPromise() {
	w.promised = 0
	for _, s := range w.shares {
		s.promised = 0
	}
}

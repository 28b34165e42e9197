package session

import (
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// maxLimits bounds the limits in one credit message.
const maxLimits = 256

// A limitKey names the lanes that a limit is about: those of a queue, of a handler, of a
// handler in one version, or of both a queue and a handler. What is zero is left open.
type limitKey struct {
	queue            sqldb.ID
	handler, version string
}

// limits are what a session takes of some of its lanes, beside its credit for all.
type limits map[limitKey]*int

// each calls f for each limit that a lane is under.
func (ls limits) each(l dispatch.Lane, f func(left *int)) {
	if len(ls) == 0 {
		return
	}
	for _, key := range [...]limitKey{
		{queue: l.Queue}, {handler: l.Handler}, {handler: l.Handler, version: l.Version},
		{l.Queue, l.Handler, ""}, {l.Queue, l.Handler, l.Version},
	} {
		if left := ls[key]; left != nil {
			f(left)
		}
	}
}

// within is how many of n more tasks of a lane the limits allow.
func (ls limits) within(l dispatch.Lane, n int) int {
	ls.each(l, func(left *int) { n = min(n, *left) })
	return n
}

// use counts an assignment.
func (ls limits) use(l dispatch.Lane) {
	ls.each(l, func(left *int) { *left = max(0, *left-1) })
}

// free takes an assignment back that was counted.
func (ls limits) free(l dispatch.Lane) {
	ls.each(l, func(left *int) { *left++ })
}

// groups are the limits that bound slots for a claim of lanes.
func (ls limits) groups(lanes []*lane, slots int) (groups []dispatch.Group) {
	if len(ls) == 0 {
		return nil
	}
	at := make(map[*int]int)
	for _, l := range lanes {
		ls.each(l.Lane, func(left *int) {
			if *left >= slots {
				return
			}
			i, known := at[left]
			if !known {
				i = len(groups)
				at[left], groups = i, append(groups, dispatch.Group{Slots: *left})
			}
			groups[i].Lanes = append(groups[i].Lanes, l.id)
		})
	}
	return groups
}

// A flight is an assignment that the worker may not have seen.
type flight struct {
	attempt sqldb.ID
	lane    dispatch.Lane
	number  uint64 // among the assignments of the connection; 0 while it is not written
}

// credit replaces how many assignments the worker takes now, of which lanes. Assignments
// that the worker says it had not seen are taken off at once, so that it never gets more
// than it asked for.
func (s *session) credit(frame wire.Envelope) error {
	var m wire.Credit
	if err := decode(frame.Data, &m); err != nil {
		return broken(frame, err)
	}
	if m.Slots > maxCapacity {
		return broken(frame, invalid("slots", "must be at most %d", maxCapacity))
	}
	if !s.mayCredit(1 + len(m.Limits)) {
		return errEnded
	}
	ls, rule := s.readLimits(m.Limits)
	if rule != nil {
		return broken(frame, rule)
	}
	now := time.Now()
	var tooMany error
	s.hub.board.change(s, func(p *place) {
		if m.Seen != nil && *m.Seen > p.sent {
			tooMany = invalid("seen", "must be at most %d, so many were assigned on this connection", p.sent)
			return
		}
		before := p.limits
		p.credit, p.limits = m.Slots, ls
		p.inFlight(m.Seen)
		p.looser = p.limits.looser(before)
		p.forgetHeld(now)
	})
	if tooMany != nil {
		return broken(frame, tooMany)
	}
	return nil
}

// Words about credit have no answer that their reader could wait for. Instead a connection
// has creditRate units a second, one for each credit and one for each of its limits, and
// its reader waits when it has used them up.
const creditRate = 20_000

func (s *session) mayCredit(units int) bool {
	now := time.Now()
	s.credits.left(now)
	s.credits.use(units)
	wait := s.credits.until(0, now)
	if wait == 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ended:
		return false
	}
}

// looser reports whether something is allowed that was not before.
func (ls limits) looser(before limits) bool {
	for key, had := range before {
		if now := ls[key]; *had == 0 && (now == nil || *now > 0) {
			return true
		}
	}
	return false
}

// forgetHeld looks now and then for attempts whose worker has not been heard of for long: it
// holds them no more.
func (p *place) forgetHeld(now time.Time) {
	if now.Sub(p.swept) < time.Second {
		return
	}
	p.swept = now
	for id, one := range p.held {
		if now.After(one.until.Add(grace)) {
			delete(p.held, id)
		}
	}
}

// inFlight takes the assignments off that the worker had not seen when it gave credit. If
// it does not tell, it counts them itself.
func (p *place) inFlight(seen *uint64) {
	if seen == nil {
		p.flights = nil
		return
	}
	for len(p.flights) > 0 && p.flights[0].number != 0 && p.flights[0].number <= *seen {
		p.flights = p.flights[1:]
	}
	p.credit = max(0, p.credit-len(p.flights))
	for _, f := range p.flights {
		p.limits.use(f.lane)
	}
}

// written notes that an assignment is about to be written to the connection, or if not ok
// that it will not be. They are written in the order in which they were given.
func (b *board) written(s *session, attempt sqldb.ID, ok bool) {
	b.change(s, func(p *place) {
		if ok {
			p.sent++
		} else {
			delete(p.held, attempt) // it is handed back: it takes no room
		}
		for i := range p.flights {
			f := &p.flights[i]
			switch {
			case f.attempt != attempt:
			case ok:
				f.number = p.sent
				return
			default: // the worker goes on waiting for it: it gets another
				p.credit++
				p.looser = true
				p.limits.free(f.lane)
				p.flights = append(p.flights[:i:i], p.flights[i+1:]...)
				return
			}
		}
	})
}

// readLimits checks limits against the registration.
func (s *session) readLimits(list []wire.CreditLimit) (limits, *orbit.InvalidArgumentError) {
	if len(list) == 0 {
		return nil, nil
	}
	bad := func(i int, field, format string, args ...any) (limits, *orbit.InvalidArgumentError) {
		return nil, &orbit.InvalidArgumentError{Field: fmt.Sprintf("limits[%d]%s", i, field), Rule: fmt.Sprintf(format, args...)}
	}
	if len(list) > maxLimits {
		return nil, &orbit.InvalidArgumentError{Field: "limits", Rule: fmt.Sprintf("must be at most %d", maxLimits)}
	}
	ls, known := make(limits, len(list)), s.place.class.known
	for i, m := range list {
		key := limitKey{handler: m.Handler, version: m.HandlerVersion}
		if m.QueueID != "" {
			id, err := sqldb.ParseID(m.QueueID)
			if err != nil || !known[limitKey{queue: id}] {
				return bad(i, ".queue_id", "must be one of the registered queues")
			}
			key.queue = id
		}
		switch {
		case m.QueueID == "" && m.Handler == "":
			return bad(i, "", "must name queue_id or handler")
		case m.Handler == "" && m.HandlerVersion != "":
			return bad(i, ".handler_version", "is only for a handler")
		case m.Handler != "" && !known[limitKey{handler: m.Handler}]:
			return bad(i, ".handler", "must be one of the registered handlers")
		case m.HandlerVersion != "" && !known[limitKey{handler: m.Handler, version: m.HandlerVersion}]:
			return bad(i, ".handler_version", "must be a registered version of the handler")
		case m.Slots > maxCapacity:
			return bad(i, ".slots", "must be at most %d", maxCapacity)
		case ls[key] != nil:
			return bad(i, "", "must not be about the same queue and handler as another")
		}
		slots := m.Slots
		ls[key] = &slots
	}
	return ls, nil
}

// knownKeys are the queues and handlers of lanes, as limits may name them.
func knownKeys(lanes []dispatch.Lane) map[limitKey]bool {
	known := make(map[limitKey]bool)
	for _, l := range lanes {
		known[limitKey{queue: l.Queue}] = true
		known[limitKey{handler: l.Handler}] = true
		known[limitKey{handler: l.Handler, version: l.Version}] = true
	}
	return known
}

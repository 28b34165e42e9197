package workertest

import (
	"fmt"
	"slices"

	"github.com/orbitkit/orbit/internal/wire"
)

const (
	maxSlots  = 1000 // of a limit
	maxLimits = 256
)

// credit replaces what the session takes now.
func (s *Server) credit(one *session, m Message) reply {
	var c wire.Credit
	if err := m.Decode(&c); err != nil {
		return s.breach(m, err.Error())
	}
	if c.Slots < 0 || c.Slots > one.hello.Capacity {
		return s.breach(m, "slots must be 0 to the registered capacity")
	}
	if len(c.Limits) > maxLimits {
		return s.breach(m, fmt.Sprintf("limits must be at most %d", maxLimits))
	}
	for i, l := range c.Limits {
		if rule := one.refuses(l, c.Limits[:i]); rule != "" {
			return s.breach(m, fmt.Sprintf("limits[%d]%s", i, rule))
		}
	}
	if c.Seen != nil && *c.Seen > one.sent {
		return s.breach(m, fmt.Sprintf("seen must be at most %d", one.sent))
	}
	one.credit, one.limits = c.Slots, c.Limits
	one.inFlight(c.Seen)
	return reply{}
}

// refuses tells what is wrong with a limit that comes after others.
func (one *session) refuses(l wire.CreditLimit, before []wire.CreditLimit) string {
	same := func(other wire.CreditLimit) bool {
		return l.QueueID == other.QueueID && l.Handler == other.Handler && l.HandlerVersion == other.HandlerVersion
	}
	registered := func(h wire.Handler) bool {
		return l.Handler == h.Name && (l.HandlerVersion == "" || l.HandlerVersion == h.Version)
	}
	switch {
	case l.QueueID == "" && l.Handler == "":
		return " must name queue_id or handler"
	case l.QueueID != "" && !slices.Contains(one.hello.Queues, l.QueueID):
		return ".queue_id must be one of the registered queues"
	case l.Handler == "" && l.HandlerVersion != "":
		return ".handler_version is only for a handler"
	case l.Handler != "" && !slices.ContainsFunc(one.hello.Handlers, registered):
		return ".handler must be one of the registered handlers"
	case l.Slots < 0 || l.Slots > maxSlots:
		return fmt.Sprintf(".slots must be at most %d", maxSlots)
	case slices.ContainsFunc(before, same):
		return " must not be about the same queue and handler as another"
	}
	return ""
}

// inFlight takes off what the worker had not seen when it gave credit.
func (one *session) inFlight(seen *uint64) {
	if seen == nil {
		one.flights = nil
		return
	}
	first := one.sent - uint64(len(one.flights)) // assignments before the flights
	if *seen > first {
		one.flights = one.flights[*seen-first:]
	}
	for _, t := range one.flights {
		one.count(t)
	}
}

// takes is how many more assignments like t the session takes.
func (one *session) takes(t *task) int {
	n := one.credit
	for _, l := range one.limits {
		if about(l, t) {
			n = min(n, l.Slots)
		}
	}
	return n
}

// use counts an assignment that is being sent.
func (one *session) use(t *task) {
	one.count(t)
	one.sent++
	one.flights = append(one.flights, t)
}

func (one *session) count(t *task) {
	one.credit = max(0, one.credit-1)
	for i := range one.limits {
		if l := &one.limits[i]; about(*l, t) {
			l.Slots = max(0, l.Slots-1)
		}
	}
}

func about(l wire.CreditLimit, t *task) bool {
	r := &t.request
	return (l.QueueID == "" || l.QueueID == r.QueueID) && (l.Handler == "" || l.Handler == r.Handler) &&
		(l.HandlerVersion == "" || l.HandlerVersion == r.HandlerVersion)
}

package session

import (
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
)

// heldPerSlot bounds hello.held by the capacity. A process holds more than its capacity
// only while ends that it has reported wait for their confirmation.
const heldPerSlot = 3

// readHeld checks the attempts that a process believes to hold.
func readHeld(h *wire.Hello) ([]sqldb.ID, error) {
	if most := heldPerSlot * h.Capacity; len(h.Held) > most {
		return nil, invalid("held", "must be at most %d, %d for each of capacity", most, heldPerSlot)
	}
	ids := make([]sqldb.ID, 0, len(h.Held))
	seen := make(map[sqldb.ID]struct{}, len(h.Held))
	for i, one := range h.Held {
		id, rule := parseRef(one.AttemptID, one.Epoch)
		if rule != nil {
			return nil, invalid(fmt.Sprintf("held[%d].%s", i, rule.Field), "%s", rule.Rule)
		}
		if _, again := seen[id]; again {
			return nil, invalid(fmt.Sprintf("held[%d]", i), "must not name one attempt twice")
		}
		seen[id] = struct{}{}
		ids = append(ids, id)
	}
	return ids, nil
}

// awaitSettling holds assignments back until the process has had an answer about each
// attempt that it or the server knows it to hold: both sides agree on the old before there
// is anything new (WRK-014). Who never asks is not held back for longer than the leases of
// these attempts can last, which is when the server ends them by itself.
func (s *session) awaitSettling(known []holding, believed []sqldb.ID) {
	open := make(map[sqldb.ID]struct{}, len(known)+len(believed))
	patience := time.Duration(0)
	for _, one := range known {
		open[one.attempt] = struct{}{}
		patience = max(patience, one.left)
	}
	for _, id := range believed {
		open[id] = struct{}{}
		patience = max(patience, s.hub.dispatcher.Lease())
	}
	if len(open) == 0 {
		return
	}
	s.settling.Store(true)
	s.hub.board.change(s, func(p *place) { p.open = open })
	s.settleBy = time.AfterFunc(patience, func() {
		s.hub.board.change(s, func(p *place) { p.open = nil })
	})
}

// settled notes that the process has had an answer about an attempt.
func (s *session) settled(attempt sqldb.ID) {
	if !s.settling.Load() {
		return
	}
	s.hub.board.change(s, func(p *place) {
		if delete(p.open, attempt); len(p.open) == 0 {
			s.settling.Store(false)
		}
	})
}

// stopSettling ends the wait when the connection ends.
func (s *session) stopSettling() {
	if s.settleBy != nil {
		s.settleBy.Stop()
	}
}

package worker

import (
	"cmp"
	"slices"
	"time"
)

// What a Slot is occupied with.
const (
	SlotStarting  = "starting"  // the right to execute is being asked for
	SlotRunning   = "running"   // the handler runs
	SlotReporting = "reporting" // the end is told to the server, until it has confirmed it
	SlotReturning = "returning" // the assignment is handed back, no handler runs
)

// A Slot shows one attempt that a worker holds, for health pages and for people who look
// for a handler that does not return.
type Slot struct {
	TaskID, AttemptID string // TaskID is empty while SlotReturning
	Handler           Handler
	Phase             string    // one of the Slot constants
	Since             time.Time // when the worker got the attempt
	// Cause tells why the handler's context has ended, or why it will not be called; see
	// [ErrLeaseLost] and the other causes. It is nil while the handler may go on. A
	// handler that runs on although Cause is set ignores its context.
	Cause error
}

// Slots returns what the worker holds at the moment, oldest first. It may be called at
// any time and is never longer than the capacity, besides attempts that are handed back.
func (w *Worker) Slots() []Slot {
	var slots []Slot
	w.each(func(a *attempt) { slots = append(slots, a.slot()) })
	slices.SortFunc(slots, func(a, b Slot) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.AttemptID, b.AttemptID))
	})
	return slots
}

func (a *attempt) slot() Slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Slot{AttemptID: a.id.ID, Since: a.since, Cause: a.stop, Phase: SlotStarting}
	if a.offer != nil {
		s.TaskID, s.Handler = a.offer.Task.ID, a.handler()
	}
	switch {
	case a.unwanted:
		s.Phase = SlotReturning
	case a.handling:
		s.Phase = SlotRunning
		if s.Cause == nil && !time.Now().Before(a.lease.end) {
			s.Cause = ErrAttemptTimeout // the context's own deadline
		}
	case a.reporting:
		s.Phase = SlotReporting
	}
	return s
}

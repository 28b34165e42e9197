package command_test

import (
	"slices"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A model is what a task ought to be. It is written from the requirements (STATE, CAN,
// REF-REV), not from the state machine.
type model struct {
	id        sqldb.ID
	key       string // resource key, or empty
	safe      bool   // recovery_safety IDEMPOTENT
	most      int    // max_attempts
	state     string
	uncertain bool
	intent    bool // a cancel was asked for
	delayed   bool
	started   int
	grant     *dispatch.Grant // the live attempt
	last      *dispatch.Grant // the newest attempt, perhaps ended
	events    []string
	retryOf   sqldb.ID
	root      sqldb.ID
}

func (m *model) revision() uint64 { return uint64(len(m.events)) }

func (m *model) terminal() bool {
	return slices.Contains([]string{orbit.StateSucceeded, orbit.StateFailed, orbit.StateCancelled}, m.state)
}

// move records a visible change.
func (m *model) move(state, event string) {
	if state != orbit.StateLeased && state != orbit.StateRunning {
		m.grant = nil
	}
	m.state, m.events = state, append(m.events, event)
}

// end is an end that may have to wait for a review (STATE-011, STATE-014, STATE-025).
func (m *model) end(state, event string) {
	if m.uncertain {
		m.move(orbit.StateNeedsReview, task.EventNeedsReview)
		return
	}
	m.move(state, event)
}

func (m *model) claimed(g *dispatch.Grant) {
	m.grant, m.last = g, g
	m.move(orbit.StateLeased, task.EventClaimed)
}

func (m *model) start() {
	m.started++
	m.move(orbit.StateRunning, task.EventStarted)
}

func (m *model) giveBack() {
	m.delayed = false
	m.move(orbit.StateWaiting, task.EventReturned)
}

func (m *model) mayRunAgain() bool { return !m.intent && m.started < m.most }

func (m *model) again() {
	m.delayed = true
	m.move(orbit.StateWaiting, task.EventRetryWaiting)
}

// lose: nobody knows what the attempt did (STATE-009, STATE-010, AMB-032).
func (m *model) lose() {
	m.uncertain = true
	if m.safe && m.mayRunAgain() {
		m.again()
		return
	}
	m.move(orbit.StateNeedsReview, task.EventNeedsReview)
}

// finish is a report of the worker; it tells whether it is taken.
func (m *model) finish(o task.Outcome, retryable bool) bool {
	switch {
	case o == task.OutcomeSucceeded:
		m.uncertain = false
		m.move(orbit.StateSucceeded, task.EventSucceeded)
	case o == task.OutcomeFailed && retryable && m.mayRunAgain():
		m.again()
	case o == task.OutcomeFailed:
		m.end(orbit.StateFailed, task.EventFailed)
	case o == task.OutcomeCancelled && !m.intent:
		return false // nobody asked for it (STATE-013)
	case o == task.OutcomeCancelled:
		m.end(orbit.StateCancelled, task.EventCancelled)
	default:
		m.lose()
	}
	return true
}

// cancel tells whether a cancel with the present revision is taken.
func (m *model) cancel() bool {
	switch {
	case m.terminal() || m.intent:
		return false
	case m.state == orbit.StateRunning || m.state == orbit.StateNeedsReview:
		m.move(m.state, task.EventCancelAsked)
	default:
		m.end(orbit.StateCancelled, task.EventCancelled)
	}
	m.intent, m.delayed = true, false
	return true
}

func (m *model) review(decision string) bool {
	if m.state != orbit.StateNeedsReview {
		return false
	}
	m.uncertain = false
	m.move(decision, task.EventReviewDecided)
	return true
}

func (m *model) mayRetry() bool {
	return m.state == orbit.StateFailed || m.state == orbit.StateCancelled
}

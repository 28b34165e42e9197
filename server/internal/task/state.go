package task

import "fmt"

// A State is the stored code of one of the seven task states (STATE-001).
type State int

// The states of a task. Succeeded, Failed and Cancelled are terminal; NeedsReview is
// left only by a review decision.
const (
	Waiting     State = 1
	Leased      State = 2
	Running     State = 3
	NeedsReview State = 4
	Succeeded   State = 5
	Failed      State = 6
	Cancelled   State = 7
)

var stateNames = [...]string{
	Waiting: "WAITING", Leased: "LEASED", Running: "RUNNING", NeedsReview: "NEEDS_REVIEW",
	Succeeded: "SUCCEEDED", Failed: "FAILED", Cancelled: "CANCELLED",
}

// String returns the contract's name of the state.
func (s State) String() string {
	if s < Waiting || s > Cancelled {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// Terminal reports whether a task in this state never changes again (STATE-003).
func (s State) Terminal() bool { return s == Succeeded || s == Failed || s == Cancelled }

// An AttemptState is the stored code of an attempt's life.
type AttemptState int

// The states of an attempt. A live attempt, leased or running, is the queue permit.
const (
	AttemptLeased  AttemptState = 1
	AttemptRunning AttemptState = 2
	AttemptEnded   AttemptState = 3
)

// An Outcome is the stored code of how an attempt ended.
type Outcome int

// The outcomes of an attempt. OutcomeUnknown is an outcome of an attempt and no task
// state (STATE-017); OutcomeNotStarted uses nothing of max_attempts (AMB-034).
const (
	OutcomeSucceeded  Outcome = 1
	OutcomeFailed     Outcome = 2
	OutcomeUnknown    Outcome = 3
	OutcomeCancelled  Outcome = 4
	OutcomeNotStarted Outcome = 5
)

var outcomeNames = [...]string{
	OutcomeSucceeded: "SUCCEEDED", OutcomeFailed: "FAILED", OutcomeUnknown: "UNKNOWN",
	OutcomeCancelled: "CANCELLED", OutcomeNotStarted: "NOT_STARTED",
}

// String returns the contract's name of the outcome, or "" for none.
func (o Outcome) String() string {
	if o < OutcomeSucceeded || o > OutcomeNotStarted {
		return ""
	}
	return outcomeNames[o]
}

// Stored codes of recovery_safety.
const (
	SafetyReconcileOnly = 1
	SafetyIdempotent    = 2
)

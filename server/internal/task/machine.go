package task

import "fmt"

// An Act is something that happens to a task.
type Act int

// What may happen to a task. Who ends an attempt without a word from its worker uses
// ActGiveBack before and ActLose after its confirmed start.
const (
	ActClaim           Act = iota + 1 // an attempt is made and leased to a worker
	ActStart                          // the worker's start is confirmed
	ActGiveBack                       // an un-started lease expired or was handed back
	ActSucceed                        // a valid result
	ActFail                           // a final failure
	ActFailRetryable                  // a failure of which the worker says that another attempt may succeed
	ActLose                           // the outcome of a started attempt is unknown
	ActStop                           // a clean stop, reported by a worker that was told of the cancel intent
	ActCancel                         // somebody wants the task cancelled
	ActExpire                         // its deadline or start deadline passed
	ActDecideSucceeded                // a review found that it was done
	ActDecideFailed                   // a review found that it was not done
	ActDecideCancelled                // a review ended it
)

var actNames = [...]string{
	ActClaim: "claim", ActStart: "start", ActGiveBack: "give back", ActSucceed: "succeed",
	ActFail: "fail", ActFailRetryable: "fail retryably", ActLose: "lose", ActStop: "stop",
	ActCancel: "cancel", ActExpire: "expire", ActDecideSucceeded: "decide succeeded",
	ActDecideFailed: "decide failed", ActDecideCancelled: "decide cancelled",
}

// String returns a short name for error messages.
func (a Act) String() string {
	if a < ActClaim || a > ActDecideCancelled {
		return fmt.Sprintf("Act(%d)", int(a))
	}
	return actNames[a]
}

// Facts are what the machine needs to know of a task beside its state.
type Facts struct {
	Uncertain    bool // effect_uncertain: an earlier attempt ended unknown
	CancelWanted bool // a cancel intent is recorded
	Idempotent   bool // recovery_safety allows another attempt after an unknown effect
	AttemptsLeft bool // fewer attempts were started than max_attempts
	TimeLeft     bool // another attempt could begin before the deadline
	NeverStarts  bool // with this one, as many un-started claims in a row as are allowed
}

// A Change is what an act makes of a task.
type Change struct {
	To        State
	Uncertain bool   // effect_uncertain afterwards
	Event     string // kind of the event that records it
	Reason    string // why it is not what the act alone would give, or empty
}

// Reasons why a task did not go where its act alone would have sent it.
const (
	ReasonAttemptsUsed    = "attempts_used"    // max_attempts were started
	ReasonNoTimeLeft      = "no_time_left"     // the back-off would end after the deadline
	ReasonCancelRequested = "cancel_requested" // no retry once a cancel intent exists
	ReasonNeverStarted    = "never_started"    // too many un-started claims in a row (AMB-034)
	ReasonUncertain       = "effect_uncertain" // an older effect is unknown: a person decides
)

// A ForbiddenError reports an act that the state of a task does not allow.
type ForbiddenError struct {
	State State
	Act   Act
}

// Error names act and state.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("a task that is %v does not allow: %v", e.State, e.Act)
}

// Apply tells what act makes of a task in state s. It is the only place that knows the
// allowed transitions (STATE-022). The error is a [*ForbiddenError].
func Apply(s State, act Act, f Facts) (Change, error) {
	if rule := machine[step{s, act}]; rule != nil {
		if c, ok := rule(f); ok {
			return c, nil
		}
	}
	return Change{}, &ForbiddenError{s, act}
}

type step struct {
	state State
	act   Act
}

// A rule makes the change of one step, or reports that the facts forbid it.
type rule func(Facts) (Change, bool)

// machine is the table of all transitions. What is not listed is forbidden.
var machine = map[step]rule{
	{Waiting, ActClaim}:  move(Leased, EventClaimed),
	{Waiting, ActCancel}: once(end(Cancelled, EventCancelled)),
	{Waiting, ActExpire}: end(Failed, EventFailed),

	{Leased, ActStart}:    move(Running, EventStarted),
	{Leased, ActGiveBack}: giveBack,
	{Leased, ActCancel}:   once(end(Cancelled, EventCancelled)),
	{Leased, ActExpire}:   end(Failed, EventFailed),

	{Running, ActSucceed}:       verified(Succeeded, EventSucceeded),
	{Running, ActFail}:          end(Failed, EventFailed),
	{Running, ActFailRetryable}: failRetryable,
	{Running, ActLose}:          lose,
	{Running, ActStop}:          stop,
	{Running, ActCancel}:        once(move(Running, EventCancelAsked)),

	{NeedsReview, ActCancel}:          once(move(NeedsReview, EventCancelAsked)),
	{NeedsReview, ActDecideSucceeded}: verified(Succeeded, EventReviewDecided),
	{NeedsReview, ActDecideFailed}:    verified(Failed, EventReviewDecided),
	{NeedsReview, ActDecideCancelled}: verified(Cancelled, EventReviewDecided),
}

// move goes to a state that is no end and keeps what is uncertain.
func move(to State, event string) rule {
	return func(f Facts) (Change, bool) {
		return Change{To: to, Uncertain: f.Uncertain, Event: event}, true
	}
}

// verified goes to an end that settles the effect (STATE-023).
func verified(to State, event string) rule {
	return func(Facts) (Change, bool) { return Change{To: to, Event: event}, true }
}

// end ends a task, unless an older effect is unknown: then a person decides
// (STATE-011, STATE-014, STATE-025).
func end(to State, event string) rule {
	return func(f Facts) (Change, bool) { return endFor("", to, event)(f), true }
}

func endFor(reason string, to State, event string) func(Facts) Change {
	return func(f Facts) Change {
		if f.Uncertain {
			return Change{To: NeedsReview, Uncertain: true, Event: EventNeedsReview, Reason: orElse(reason, ReasonUncertain)}
		}
		return Change{To: to, Event: event, Reason: reason}
	}
}

// once refuses a second cancel intent (CAN-013).
func once(r rule) rule {
	return func(f Facts) (Change, bool) {
		if f.CancelWanted {
			return Change{}, false
		}
		return r(f)
	}
}

func giveBack(f Facts) (Change, bool) {
	if f.NeverStarts {
		return endFor(ReasonNeverStarted, Failed, EventFailed)(f), true
	}
	return Change{To: Waiting, Uncertain: f.Uncertain, Event: EventReturned}, true
}

func failRetryable(f Facts) (Change, bool) {
	if reason := noRetry(f); reason != "" {
		return endFor(reason, Failed, EventFailed)(f), true
	}
	return Change{To: Waiting, Uncertain: f.Uncertain, Event: EventRetryWaiting}, true
}

// lose: what may have happened is unknown, so only a task that is declared idempotent
// may run again (STATE-009, STATE-010), and none with a cancel intent (AMB-032).
func lose(f Facts) (Change, bool) {
	review := Change{To: NeedsReview, Uncertain: true, Event: EventNeedsReview}
	if !f.Idempotent {
		return review, true
	}
	if review.Reason = noRetry(f); review.Reason != "" {
		return review, true
	}
	return Change{To: Waiting, Uncertain: true, Event: EventRetryWaiting}, true
}

// stop needs a cancel intent: without one nobody asked the handler to stop (STATE-013).
func stop(f Facts) (Change, bool) {
	if !f.CancelWanted {
		return Change{}, false
	}
	return endFor("", Cancelled, EventCancelled)(f), true
}

// noRetry tells why no further attempt is to be made, or "".
func noRetry(f Facts) string {
	switch {
	case f.CancelWanted:
		return ReasonCancelRequested
	case !f.AttemptsLeft:
		return ReasonAttemptsUsed
	case !f.TimeLeft:
		return ReasonNoTimeLeft
	}
	return ""
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

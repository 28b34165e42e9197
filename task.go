package orbit

import (
	"encoding/json"
	"time"
)

// States of a task. SUCCEEDED, FAILED and CANCELLED are final.
const (
	StateWaiting     = "WAITING"
	StateLeased      = "LEASED"
	StateRunning     = "RUNNING"
	StateNeedsReview = "NEEDS_REVIEW"
	StateSucceeded   = "SUCCEEDED"
	StateFailed      = "FAILED"
	StateCancelled   = "CANCELLED"
)

// A Task is a task as the server reports it. What is unset is left out of the wire
// form; in answers that carry only a part, the other fields are zero.
type Task struct {
	ID                string
	NamespaceID       string
	QueueID           string
	State             string // one of the State constants
	Revision          uint64 // grows by one with each visible change; a decimal string on the wire
	Handler           string
	HandlerVersion    string
	PayloadVersion    string
	Payload           json.RawMessage // the text of the first acceptance, byte for byte
	BusinessKey       string
	ConcurrencyKey    string
	Priority          int
	AvailableAt       time.Time
	StartDeadlineAt   *time.Time
	DeadlineAt        time.Time
	RecoverySafety    string
	Retry             RetryPolicy
	AttemptCount      uint64          // claims so far, those that were never started included
	Result            json.RawMessage // of the attempt that ended the task
	CancelRequestedAt *time.Time
	CompletedAt       *time.Time // set when the state is final
	EffectUncertain   bool       // an ended attempt may have had an effect that nobody has verified
	RetryOf           string     // id of the task that this one repeats by hand
	CreatedAt         time.Time
	UpdatedAt         time.Time
}

// Terminal reports whether no transition leads out of the task's state.
func (t *Task) Terminal() bool {
	return t.State == StateSucceeded || t.State == StateFailed || t.State == StateCancelled
}

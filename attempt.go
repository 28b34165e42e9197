package orbit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

var errDecimal = errors.New("must be a decimal uint64 string without sign and leading zeros")

// States of an attempt.
const (
	AttemptLeased  = "LEASED"  // assigned to a worker, not started
	AttemptRunning = "RUNNING" // started: business code may run
	AttemptEnded   = "ENDED"   // has an outcome
)

// Outcomes of an ended attempt.
const (
	OutcomeSucceeded = "SUCCEEDED"
	OutcomeFailed    = "FAILED"    // Retryable tells whether another attempt made sense
	OutcomeUnknown   = "UNKNOWN"   // started, and nobody knows whether it had an effect
	OutcomeCancelled = "CANCELLED" // stopped cleanly after a cancel intent, or cancelled before its start
	OutcomeExpired   = "EXPIRED"   // never started before its lease ended
	OutcomeReturned  = "RETURNED"  // handed back by the worker, never started
)

// An Attempt is one assignment of a task to a worker, as history shows it. History
// is for verification; it gives no right to execute.
//
// GET /v1/tasks/{task_id}/attempts answers {"items":[…],"next_cursor":"…"} with
// the newest attempt first; next_cursor is absent on the last page. Each item has
// id, task_id, number, epoch, state, queue_id, worker_id and claimed_at, and, when
// set, outcome, retryable, reason, concurrency_token, fence_token, started_at,
// lease_until, ended_at, error, progress, progress_at and result.
type Attempt struct {
	ID       string
	TaskID   string
	Number   uint64 // 1 for the first claim of the task
	Epoch    uint64 // the task's claim counter that a Start, Renew or Finish must show
	State    string // one of the Attempt constants
	Outcome  string // one of the Outcome constants; empty until ended
	QueueID  string
	WorkerID string // identity of the worker process
	// Retryable tells that a FAILED attempt was worth another one.
	Retryable bool
	// Reason is a short code for an end that no worker reported, such as
	// lease_expired or attempt_timeout.
	Reason string
	// ConcurrencyToken is the token of a keyed task, exact beyond 2^53 and a
	// decimal string on the wire. 0 means the task has no resource key.
	ConcurrencyToken uint64
	// FenceToken is ConcurrencyToken + 1, shown once the attempt has ended
	// unknown; raising the resource to it shuts the attempt out. 0 means none.
	FenceToken uint64
	ClaimedAt  time.Time
	StartedAt  *time.Time
	LeaseUntil *time.Time // end of the present lease; nil once ended
	EndedAt    *time.Time
	ErrorText  string
	// Progress is the last word of the handler on how far it is, from ProgressAt. It is
	// kept after the end.
	Progress   string
	ProgressAt *time.Time
	Result     json.RawMessage
}

// AppendJSON appends the contract form of a, the result byte for byte.
func (a *Attempt) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("id", a.ID)
	o.string("task_id", a.TaskID)
	o.uint("number", a.Number)
	o.uint("epoch", a.Epoch)
	o.string("state", a.State)
	o.optionalString("outcome", a.Outcome)
	o.optionalTrue("retryable", a.Retryable)
	o.optionalString("reason", a.Reason)
	o.string("queue_id", a.QueueID)
	o.string("worker_id", a.WorkerID)
	o.optionalDecimal("concurrency_token", a.ConcurrencyToken)
	o.optionalDecimal("fence_token", a.FenceToken)
	o.time("claimed_at", a.ClaimedAt)
	o.optionalTime("started_at", a.StartedAt)
	o.optionalTime("lease_until", a.LeaseUntil)
	o.optionalTime("ended_at", a.EndedAt)
	o.optionalString("error", a.ErrorText)
	o.optionalString("progress", a.Progress)
	o.optionalTime("progress_at", a.ProgressAt)
	o.optionalRaw("result", a.Result)
	return o.end()
}

// MarshalJSON returns the contract form. Mind that [encoding/json.Marshal]
// re-formats what it returns; AppendJSON keeps the bytes.
func (a Attempt) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

type wireAttempt struct {
	ID               string          `json:"id"`
	TaskID           string          `json:"task_id"`
	Number           uint64          `json:"number"`
	Epoch            uint64          `json:"epoch"`
	State            string          `json:"state"`
	Outcome          string          `json:"outcome"`
	Retryable        bool            `json:"retryable"`
	Reason           string          `json:"reason"`
	QueueID          string          `json:"queue_id"`
	WorkerID         string          `json:"worker_id"`
	ConcurrencyToken decimalUint     `json:"concurrency_token"`
	FenceToken       decimalUint     `json:"fence_token"`
	ClaimedAt        wireTime        `json:"claimed_at"`
	StartedAt        *wireTime       `json:"started_at"`
	LeaseUntil       *wireTime       `json:"lease_until"`
	EndedAt          *wireTime       `json:"ended_at"`
	ErrorText        string          `json:"error"`
	Progress         string          `json:"progress"`
	ProgressAt       *wireTime       `json:"progress_at"`
	Result           json.RawMessage `json:"result"`
}

// UnmarshalJSON reads the contract form. Unknown members are ignored; numbers and
// tokens stay exact.
func (a *Attempt) UnmarshalJSON(data []byte) error {
	var w wireAttempt
	if err := jsonv2.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("orbit: read attempt: %w", err)
	}
	*a = Attempt{
		ID: w.ID, TaskID: w.TaskID, Number: w.Number, Epoch: w.Epoch,
		State: w.State, Outcome: w.Outcome, Retryable: w.Retryable, Reason: w.Reason,
		QueueID: w.QueueID, WorkerID: w.WorkerID,
		ConcurrencyToken: uint64(w.ConcurrencyToken),
		FenceToken:       uint64(w.FenceToken),
		ClaimedAt:        time.Time(w.ClaimedAt),
		StartedAt:        (*time.Time)(w.StartedAt),
		LeaseUntil:       (*time.Time)(w.LeaseUntil),
		EndedAt:          (*time.Time)(w.EndedAt),
		ErrorText:        w.ErrorText,
		Progress:         w.Progress,
		ProgressAt:       (*time.Time)(w.ProgressAt),
		Result:           w.Result,
	}
	return nil
}

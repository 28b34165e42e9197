package workertest

import (
	"encoding/json"
	"fmt"

	"github.com/orbitkit/orbit"
)

// A Result is how an attempt ended, as a worker tells the server.
type Result struct {
	Outcome   string          // orbit.OutcomeSucceeded, OutcomeFailed, OutcomeUnknown or OutcomeCancelled
	Retryable bool            // with OutcomeFailed: another attempt may be made
	Result    json.RawMessage // with OutcomeSucceeded; nil for none
	Error     string          // stored with the attempt
	// Problem is what a worker would tell worker.Config.OnError: a [*worker.PanicError],
	// or an [*orbit.InvalidArgumentError] about a result or an error text that cannot be
	// reported as it is. Nil if there is none.
	Problem error
	// Cause tells why the handler's context had ended when it returned; nil if it lived.
	Cause    error
	Progress []string // every text given to Execution.Progress, oldest first
}

// String returns the outcome with the result or the error, such as:
//
//	SUCCEEDED {"left":1}
//	FAILED, final: no such product
//	FAILED, retryable: target is locked
//	UNKNOWN: connection reset
//	CANCELLED: stopped between two frames
func (r Result) String() string {
	switch {
	case r.Outcome == orbit.OutcomeSucceeded && r.Result == nil:
		return r.Outcome
	case r.Outcome == orbit.OutcomeSucceeded:
		return fmt.Sprintf("%s %s", r.Outcome, r.Result)
	case r.Outcome == orbit.OutcomeFailed && r.Retryable:
		return r.Outcome + ", retryable: " + r.Error
	case r.Outcome == orbit.OutcomeFailed:
		return r.Outcome + ", final: " + r.Error
	}
	return r.Outcome + ": " + r.Error
}

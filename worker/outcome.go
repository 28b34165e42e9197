package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
)

// ended is a handler's error with the end that it asks for.
type ended struct {
	outcome   string
	retryable bool
	err       error
}

func (e *ended) Error() string {
	if e.err == nil {
		return "no reason given"
	}
	return e.err.Error()
}

func (e *ended) Unwrap() error { return e.err }

// Failed ends the attempt as a final failure: the handler knows that nothing
// happened (or that everything is undone), and that a repeat would fail too.
func Failed(err error) error { return &ended{outcome: orbit.OutcomeFailed, err: err} }

// Retryable ends the attempt as a failure that may be repeated: the handler knows
// that nothing happened. The server repeats it as the task's retry policy says.
func Retryable(err error) error {
	return &ended{outcome: orbit.OutcomeFailed, retryable: true, err: err}
}

// Unknown ends the attempt with an unknown outcome: there may be an effect. A plain
// error and a panic mean the same.
func Unknown(err error) error { return &ended{outcome: orbit.OutcomeUnknown, err: err} }

// Cancelled ends the attempt as cancelled: the handler stopped cleanly because its
// context ended with ErrCancelRequested, and nothing happened. Without a cancel
// request it is reported as Retryable, since it states the same fact.
func Cancelled(err error) error { return &ended{outcome: orbit.OutcomeCancelled, err: err} }

// CheckResult tells whether a handler's result can be reported: a JSON value under
// the rules of a payload, at most 256 KiB. Its error is an
// [*orbit.InvalidArgumentError]. A handler with large results should call it
// before its effect; a result that is refused afterwards turns into UNKNOWN.
func CheckResult(result json.RawMessage) error {
	text := strictjson.Trim(result)
	if len(text) > wire.MaxResult {
		return &orbit.InvalidArgumentError{Field: "result", Rule: fmt.Sprintf("must be at most %d bytes", wire.MaxResult)}
	}
	if string(text) == "null" {
		return &orbit.InvalidArgumentError{Field: "result", Rule: "must not be null"}
	}
	err := strictjson.Check(text, 1)
	if rule := (*strictjson.Error)(nil); errors.As(err, &rule) {
		field := "result"
		if rule.Path != "" {
			field += "." + rule.Path
		}
		return &orbit.InvalidArgumentError{Field: field, Rule: rule.Rule}
	}
	return err
}

func checkProgress(text string) error { return checkText("progress", text, wire.MaxProgress) }

func checkText(field, text string, most int) error {
	if len(text) > most {
		return &orbit.InvalidArgumentError{Field: field, Rule: fmt.Sprintf("must be at most %d bytes", most)}
	}
	if !utf8.ValidString(text) {
		return &orbit.InvalidArgumentError{Field: field, Rule: "must be valid UTF-8"}
	}
	return nil
}

func (r Report) validate() error {
	if !isName(r.Receipt) {
		return &orbit.InvalidArgumentError{Field: "receipt", Rule: "must be 1 to 64 printable ASCII characters without blanks"}
	}
	switch r.Outcome {
	case orbit.OutcomeSucceeded, orbit.OutcomeFailed, orbit.OutcomeUnknown, orbit.OutcomeCancelled:
	default:
		return &orbit.InvalidArgumentError{Field: "outcome", Rule: "must be SUCCEEDED, FAILED, UNKNOWN or CANCELLED"}
	}
	if r.Retryable && r.Outcome != orbit.OutcomeFailed {
		return &orbit.InvalidArgumentError{Field: "retryable", Rule: "is only for FAILED"}
	}
	if r.Result == nil {
		return checkText("error", r.Error, wire.MaxError)
	}
	if r.Outcome != orbit.OutcomeSucceeded {
		return &orbit.InvalidArgumentError{Field: "result", Rule: "is only for SUCCEEDED"}
	}
	return errors.Join(checkText("error", r.Error, wire.MaxError), CheckResult(r.Result))
}

// newReport turns what a handler returned into what is reported. The error tells
// what could not be reported as it was; the owner should see it.
func newReport(result json.RawMessage, err error, cancelled bool) (Report, error) {
	r := Report{Receipt: NewProcessID()}
	if err == nil {
		return r.succeeded(result)
	}
	end := &ended{outcome: orbit.OutcomeUnknown, err: err}
	errors.As(err, &end)
	r.Outcome, r.Retryable = end.outcome, end.retryable
	if r.Outcome == orbit.OutcomeCancelled && !cancelled {
		r.Outcome, r.Retryable = orbit.OutcomeFailed, true
	}
	return r.explained(err.Error())
}

// succeeded reports a success. The JSON null of a nil value is no result.
func (r Report) succeeded(result json.RawMessage) (Report, error) {
	r.Outcome = orbit.OutcomeSucceeded
	text := strictjson.Trim(result)
	if len(text) == 0 || string(text) == "null" {
		return r, nil
	}
	if err := CheckResult(text); err != nil {
		// The effect has happened, but what it was cannot be told.
		r.Outcome = orbit.OutcomeUnknown
		r, _ = r.explained("the handler succeeded, but its result cannot be reported: " + err.Error())
		return r, err
	}
	r.Result = text
	return r, nil
}

// explained adds the words of an error, shortened if they are too long.
func (r Report) explained(text string) (Report, error) {
	const mark = " … (shortened)"
	r.Error = strings.ToValidUTF8(text, "\uFFFD")
	err := checkText("error", r.Error, wire.MaxError)
	if err != nil {
		r.Error = strings.ToValidUTF8(r.Error[:wire.MaxError-len(mark)], "") + mark
	}
	return r, err
}

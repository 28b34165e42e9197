package orbit

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// A Submission is a submit request that has passed every static rule.
type Submission struct {
	// Request is normalised: every default is filled in, times are UTC
	// microseconds, the payload is the text as received without outer white space.
	Request SubmitTaskRequest
	// Digest is equal for requests with the same content, however spelled.
	Digest Digest
}

// ParseSubmission reads the body of a submit. It reads strictly, holds the request
// to every rule that depends on neither the clock nor the database, fills the
// defaults and computes the digest. Its errors are [*InvalidArgumentError].
func ParseSubmission(body []byte) (Submission, error) {
	if len(body) > MaxBodyBytes {
		return Submission{}, invalid("body", "must be at most 524288 bytes")
	}
	var w wireRequest
	if err := strictjson.Decode(body, &w); err != nil {
		return Submission{}, invalidDocument(err, "body")
	}
	return w.submission()
}

// CheckAt holds the submission to the rules that depend on the time of acceptance
// (SUB-014 … SUB-016). A repeat of an accepted command is not held to them. Its
// errors are [*InvalidArgumentError].
func (s Submission) CheckAt(now time.Time) error {
	available, deadline := s.Times(now)
	if now.Sub(available) > AvailableAtTolerance {
		return invalid("available_at", "must not lie more than 1 second in the past")
	}
	if !available.Before(deadline) {
		return invalid("available_at", "must be earlier than the deadline of the task")
	}
	start := s.Request.StartDeadlineAt
	switch {
	case start == nil:
		return nil
	case !start.After(now):
		return invalid("start_deadline_at", "must be later than now")
	case start.Before(available):
		return invalid("start_deadline_at", "must not be earlier than available_at")
	case start.After(deadline):
		return invalid("start_deadline_at", "must not be later than the deadline of the task")
	}
	return nil
}

// Times returns when a task accepted at now may start at the earliest, and when it
// has to be over. Both are UTC microseconds.
func (s Submission) Times(now time.Time) (availableAt, deadlineAt time.Time) {
	now = time.UnixMicro(now.UnixMicro()).UTC()
	availableAt = now
	if s.Request.AvailableAt != nil {
		availableAt = *s.Request.AvailableAt
	}
	return availableAt, now.Add(time.Duration(s.Request.TaskTimeoutMS) * time.Millisecond)
}

// wireRequest is the body of a submit.
type wireRequest struct {
	QueueID         string           `json:"queue_id" strict:"required"`
	Handler         string           `json:"handler" strict:"required"`
	HandlerVersion  string           `json:"handler_version" strict:"required"`
	PayloadVersion  string           `json:"payload_version" strict:"required"`
	Payload         strictjson.Value `json:"payload" strict:"required"`
	BusinessKey     string           `json:"business_key"`
	ConcurrencyKey  string           `json:"concurrency_key"`
	Priority        uint64           `json:"priority"`
	AvailableAt     *wireTime        `json:"available_at" strict:"nullable"`
	StartDeadlineAt *wireTime        `json:"start_deadline_at" strict:"nullable"`
	TaskTimeoutMS   uint64           `json:"task_timeout_ms"`
	RecoverySafety  *string          `json:"recovery_safety"`
	Retry           wireRetry        `json:"retry"`
}

type wireRetry struct {
	MaxAttempts      uint64 `json:"max_attempts"`
	InitialDelayMS   uint64 `json:"initial_delay_ms"`
	MaxDelayMS       uint64 `json:"max_delay_ms"`
	AttemptTimeoutMS uint64 `json:"attempt_timeout_ms"`
}

// wireTime is a time of the contract in its text form.
type wireTime time.Time

// UnmarshalText reads a time by the rules of ParseTime.
func (t *wireTime) UnmarshalText(text []byte) error {
	parsed, err := ParseTime(string(text))
	*t = wireTime(parsed)
	return err
}

func (w *wireRequest) submission() (Submission, error) {
	if w.RecoverySafety != nil && *w.RecoverySafety == "" {
		return Submission{}, invalid("recovery_safety", "must be RECONCILE_ONLY or IDEMPOTENT; leave it out for the default")
	}
	r := w.request()
	if err := r.normalise(); err != nil {
		return Submission{}, err
	}
	return Submission{Request: r, Digest: r.digest(w.Payload.Canonical)}, nil
}

func (w *wireRequest) request() SubmitTaskRequest {
	r := SubmitTaskRequest{
		QueueID:         w.QueueID,
		Handler:         w.Handler,
		HandlerVersion:  w.HandlerVersion,
		PayloadVersion:  w.PayloadVersion,
		Payload:         w.Payload.Raw,
		BusinessKey:     w.BusinessKey,
		ConcurrencyKey:  w.ConcurrencyKey,
		Priority:        int(min(w.Priority, MaxPriority+1)), // no overflow; the rule is normalise's
		AvailableAt:     (*time.Time)(w.AvailableAt),
		StartDeadlineAt: (*time.Time)(w.StartDeadlineAt),
		TaskTimeoutMS:   w.TaskTimeoutMS,
		Retry:           w.Retry.policy(),
	}
	if w.RecoverySafety != nil {
		r.RecoverySafety = *w.RecoverySafety
	}
	return r
}

func (w wireRetry) policy() RetryPolicy {
	return RetryPolicy{
		MaxAttempts:      w.MaxAttempts,
		AttemptTimeoutMS: w.AttemptTimeoutMS,
		InitialDelayMS:   w.InitialDelayMS,
		MaxDelayMS:       w.MaxDelayMS,
	}
}

// ValidatePayload holds a payload or result to the rules of one: a JSON value but
// null, at most 256 KiB, strict, at most 31 levels deep (it lies inside the task
// object, the first of 32). It returns the text without outer white space. Field
// names it in the error, an [*InvalidArgumentError].
func ValidatePayload(field string, text json.RawMessage) (json.RawMessage, error) {
	trimmed, err := checkPayloadForm(field, text)
	if err != nil {
		return nil, err
	}
	if err := strictjson.Check(trimmed, 1); err != nil {
		return nil, payloadError(field, err)
	}
	return trimmed, nil
}

func checkPayloadForm(field string, text json.RawMessage) (json.RawMessage, error) {
	trimmed := strictjson.Trim(text)
	switch {
	case len(trimmed) == 0:
		return nil, invalid(field, "is required")
	case len(trimmed) > MaxPayloadBytes:
		return nil, invalid(field, "must be at most 262144 bytes")
	case string(trimmed) == "null":
		return nil, invalid(field, "must not be null")
	}
	return trimmed, nil
}

// payloadError places an error of strict reading inside field.
func payloadError(field string, err error) error {
	var strict *strictjson.Error
	if !errors.As(err, &strict) {
		return err
	}
	return invalid(strict.Under(field), strict.Rule)
}

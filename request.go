package orbit

import (
	"encoding/json"
	"time"
)

// How a task may be treated when the effect of an attempt is unknown.
const (
	RecoveryReconcileOnly = "RECONCILE_ONLY" // a person decides; the default
	RecoveryIdempotent    = "IDEMPOTENT"     // the handler is really idempotent: it may run again
)

// A SubmitTaskRequest asks for one task. Zero values are left out of the wire form
// and mean the default. Its rules are those of [SubmitTaskRequest.Freeze].
type SubmitTaskRequest struct {
	QueueID        string          // 32 lower-case hex characters; required
	Handler        string          // 1-128 characters; required
	HandlerVersion string          // 1-64 characters; required
	PayloadVersion string          // 1-32 characters; names the input contract; required
	Payload        json.RawMessage // any JSON value but null, at most 256 KiB; required
	BusinessKey    string          // for correlation only, at most 191 characters
	ConcurrencyKey string          // resource key, see ValidateConcurrencyKey; empty means none
	Priority       int             // 0-9, each level worth 30 s of ordering
	AvailableAt    *time.Time      // earliest start; nil means acceptance
	// StartDeadlineAt is the latest start; nil means no limit of its own.
	StartDeadlineAt *time.Time
	TaskTimeoutMS   uint64      // from acceptance to the end, retries included; 0 means 24 h, at most 30 days
	RecoverySafety  string      // RecoveryReconcileOnly or RecoveryIdempotent; empty means the former
	Retry           RetryPolicy // zero means one attempt of 30 s
}

// A RetryPolicy bounds the attempts of a task. It is frozen at acceptance.
type RetryPolicy struct {
	MaxAttempts      uint64 // started attempts, the first included; 0 means 1, at most 100
	AttemptTimeoutMS uint64 // of each attempt; 0 means 30000, at most the task's timeout
	InitialDelayMS   uint64 // after the first attempt, then doubled; 0 means 1000 with several attempts
	MaxDelayMS       uint64 // bound of the doubling; 0 means 30000 with several attempts
}

// normalise fills the defaults of r and holds it to every rule that depends on
// neither the clock nor the database. The payload is judged by who reads it.
func (r *SubmitTaskRequest) normalise() error {
	if !ValidID(r.QueueID) {
		return invalid("queue_id", "must be 32 lower-case hexadecimal characters")
	}
	if err := r.validateTexts(); err != nil {
		return err
	}
	if len(r.Payload) > MaxPayloadBytes {
		return invalid("payload", "must be at most 262144 bytes")
	}
	if r.Priority < 0 || r.Priority > MaxPriority {
		return invalid("priority", "must be an integer from 0 to 9")
	}
	if err := r.normaliseTimes(); err != nil {
		return err
	}
	if r.RecoverySafety == "" {
		r.RecoverySafety = RecoveryReconcileOnly
	}
	if r.RecoverySafety != RecoveryReconcileOnly && r.RecoverySafety != RecoveryIdempotent {
		return invalid("recovery_safety", "must be RECONCILE_ONLY or IDEMPOTENT")
	}
	if r.TaskTimeoutMS == 0 {
		r.TaskTimeoutMS = DefaultTaskTimeoutMS
	}
	if r.TaskTimeoutMS > MaxTaskTimeoutMS {
		return invalidf("task_timeout_ms", "must be at most %d", MaxTaskTimeoutMS)
	}
	return within("retry", r.Retry.normalise(r.TaskTimeoutMS))
}

func (r *SubmitTaskRequest) validateTexts() error {
	if err := validName("handler", r.Handler, MaxHandler); err != nil {
		return err
	}
	if err := validName("handler_version", r.HandlerVersion, MaxHandlerVersion); err != nil {
		return err
	}
	if err := validName("payload_version", r.PayloadVersion, MaxPayloadVersion); err != nil {
		return err
	}
	if err := ValidateBusinessKey(r.BusinessKey); err != nil {
		return err
	}
	return ValidateConcurrencyKey(r.ConcurrencyKey)
}

func (r *SubmitTaskRequest) normaliseTimes() (err error) {
	if r.AvailableAt, err = normaliseTime("available_at", r.AvailableAt); err != nil {
		return err
	}
	if r.StartDeadlineAt, err = normaliseTime("start_deadline_at", r.StartDeadlineAt); err != nil {
		return err
	}
	if r.AvailableAt != nil && r.StartDeadlineAt != nil && r.StartDeadlineAt.Before(*r.AvailableAt) {
		return invalid("start_deadline_at", "must not be earlier than available_at")
	}
	return nil
}

// normaliseTime returns a copy of t in UTC, without a monotonic reading.
func normaliseTime(field string, t *time.Time) (*time.Time, error) {
	if t == nil {
		return nil, nil
	}
	if err := checkTime(*t); err != nil {
		return nil, invalid(field, err.Error())
	}
	utc := time.UnixMicro(t.UnixMicro()).UTC()
	return &utc, nil
}

func (p *RetryPolicy) normalise(taskTimeoutMS uint64) error {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 1
	}
	if p.MaxAttempts > MaxAttempts {
		return invalidf("max_attempts", "must be at most %d", MaxAttempts)
	}
	if p.AttemptTimeoutMS == 0 {
		p.AttemptTimeoutMS = DefaultAttemptTimeoutMS
	}
	if p.AttemptTimeoutMS > taskTimeoutMS {
		return invalid("attempt_timeout_ms", "must not exceed task_timeout_ms (its default is 30000)")
	}
	if p.MaxAttempts > 1 && p.InitialDelayMS == 0 {
		p.InitialDelayMS = DefaultInitialDelayMS
	}
	if p.MaxAttempts > 1 && p.MaxDelayMS == 0 {
		p.MaxDelayMS = DefaultMaxRetryDelayMS
	}
	if p.MaxDelayMS > MaxRetryDelayMS {
		return invalidf("max_delay_ms", "must be at most %d", MaxRetryDelayMS)
	}
	if p.InitialDelayMS > p.MaxDelayMS {
		return invalid("initial_delay_ms", "must not be greater than max_delay_ms (its default is 30000 with several attempts, 0 with one)")
	}
	return nil
}

package orbit

import (
	"bytes"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// Freeze validates r by the rules of the server and encodes it once: body is what
// every send carries, s what [ParseSubmission] reads from it. The payload is taken
// over byte for byte without outer white space; zero values are left out. r is not
// changed. Times finer than a microsecond are refused, not rounded. Its errors are
// [*InvalidArgumentError].
func (r SubmitTaskRequest) Freeze() (body []byte, s Submission, err error) {
	payload, err := checkPayloadForm("payload", r.Payload)
	if err != nil {
		return nil, Submission{}, err
	}
	canonical, err := strictjson.AppendCanonical(make([]byte, 0, len(payload)+len(payload)/8), payload, 1)
	if err != nil {
		return nil, Submission{}, payloadError("payload", err)
	}
	r.Payload = bytes.Clone(payload)
	full := r
	if err := full.normalise(); err != nil {
		return nil, Submission{}, err
	}
	return r.appendJSON(make([]byte, 0, 512+len(payload))), Submission{Request: full, Digest: full.digest(canonical)}, nil
}

// appendJSON encodes a valid request.
func (r *SubmitTaskRequest) appendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("queue_id", r.QueueID)
	o.string("handler", r.Handler)
	o.string("handler_version", r.HandlerVersion)
	o.string("payload_version", r.PayloadVersion)
	o.raw("payload", r.Payload)
	o.optionalString("business_key", r.BusinessKey)
	o.optionalString("concurrency_key", r.ConcurrencyKey)
	o.optionalUint("priority", uint64(r.Priority))
	o.optionalTime("available_at", r.AvailableAt)
	o.optionalTime("start_deadline_at", r.StartDeadlineAt)
	o.optionalUint("task_timeout_ms", r.TaskTimeoutMS)
	o.optionalString("recovery_safety", r.RecoverySafety)
	if r.Retry != (RetryPolicy{}) {
		o.name("retry")
		o.dst = r.Retry.appendSet(o.dst)
	}
	return o.end()
}

// appendSet encodes what is set of a policy.
func (p RetryPolicy) appendSet(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.optionalUint("max_attempts", p.MaxAttempts)
	o.optionalUint("initial_delay_ms", p.InitialDelayMS)
	o.optionalUint("max_delay_ms", p.MaxDelayMS)
	o.optionalUint("attempt_timeout_ms", p.AttemptTimeoutMS)
	return o.end()
}

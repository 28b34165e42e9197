package orbit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// AppendJSON appends the contract form of t. Payload and result are taken over
// byte for byte, which [encoding/json.Marshal] of a RawMessage does not do.
func (t *Task) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	t.appendHead(&o)
	o.optionalRaw("payload", t.Payload)
	t.appendTail(&o)
	return o.end()
}

// AppendJSONWithoutPayload appends the form of AppendJSON with the payload cut
// out: the full form is out[:payloadAt] + payload + out[payloadAt:]. So a receipt
// can be stored without a second copy of the payload and answered byte for byte.
func (t *Task) AppendJSONWithoutPayload(dst []byte) (out []byte, payloadAt int) {
	o := object{dst: append(dst, '{')}
	t.appendHead(&o)
	o.name("payload")
	payloadAt = len(o.dst)
	t.appendTail(&o)
	return o.end(), payloadAt
}

// AppendMinimalJSON appends what an answer carries under Prefer: return=minimal.
func (t *Task) AppendMinimalJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("id", t.ID)
	o.string("queue_id", t.QueueID)
	o.string("handler", t.Handler)
	o.string("state", t.State)
	o.decimal("revision", t.Revision)
	o.time("created_at", t.CreatedAt)
	return o.end()
}

// AppendSummaryJSON appends the form that lists have: without the large fields
// and without namespace, payload version, recovery safety and retry_of.
func (t *Task) AppendSummaryJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("id", t.ID)
	o.string("queue_id", t.QueueID)
	o.string("state", t.State)
	o.decimal("revision", t.Revision)
	o.string("handler", t.Handler)
	o.string("handler_version", t.HandlerVersion)
	t.appendKeys(&o)
	o.uint("attempt_count", t.AttemptCount)
	t.appendEnd(&o)
	return o.end()
}

func (t *Task) appendHead(o *object) {
	o.string("id", t.ID)
	o.string("namespace_id", t.NamespaceID)
	o.string("queue_id", t.QueueID)
	o.string("state", t.State)
	o.decimal("revision", t.Revision)
	o.string("handler", t.Handler)
	o.string("handler_version", t.HandlerVersion)
	o.string("payload_version", t.PayloadVersion)
}

func (t *Task) appendTail(o *object) {
	t.appendKeys(o)
	o.string("recovery_safety", t.RecoverySafety)
	o.name("retry")
	o.dst = t.Retry.appendJSON(o.dst)
	o.uint("attempt_count", t.AttemptCount)
	o.optionalRaw("result", t.Result)
	if t.RetryOf != "" {
		o.string("retry_of", t.RetryOf)
	}
	t.appendEnd(o)
}

func (t *Task) appendKeys(o *object) {
	o.optionalString("business_key", t.BusinessKey)
	o.optionalString("concurrency_key", t.ConcurrencyKey)
	o.optionalUint("priority", uint64(t.Priority))
	o.time("available_at", t.AvailableAt)
	o.optionalTime("start_deadline_at", t.StartDeadlineAt)
	o.time("deadline_at", t.DeadlineAt)
}

func (t *Task) appendEnd(o *object) {
	o.optionalTrue("effect_uncertain", t.EffectUncertain)
	o.optionalTime("cancel_requested_at", t.CancelRequestedAt)
	o.optionalTime("completed_at", t.CompletedAt)
	o.time("created_at", t.CreatedAt)
	o.time("updated_at", t.UpdatedAt)
}

func (p RetryPolicy) appendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.uint("max_attempts", p.MaxAttempts)
	o.uint("initial_delay_ms", p.InitialDelayMS)
	o.uint("max_delay_ms", p.MaxDelayMS)
	o.uint("attempt_timeout_ms", p.AttemptTimeoutMS)
	return o.end()
}

// MarshalJSON returns the contract form. Mind that [encoding/json.Marshal]
// re-formats what it returns; AppendJSON keeps the bytes.
func (t Task) MarshalJSON() ([]byte, error) { return t.AppendJSON(nil), nil }

// wireTask is the contract form of a task for reading.
type wireTask struct {
	ID                string          `json:"id"`
	NamespaceID       string          `json:"namespace_id"`
	QueueID           string          `json:"queue_id"`
	State             string          `json:"state"`
	Revision          decimalUint     `json:"revision"`
	Handler           string          `json:"handler"`
	HandlerVersion    string          `json:"handler_version"`
	PayloadVersion    string          `json:"payload_version"`
	Payload           json.RawMessage `json:"payload"`
	BusinessKey       string          `json:"business_key"`
	ConcurrencyKey    string          `json:"concurrency_key"`
	Priority          int             `json:"priority"`
	AvailableAt       wireTime        `json:"available_at"`
	StartDeadlineAt   *wireTime       `json:"start_deadline_at"`
	DeadlineAt        wireTime        `json:"deadline_at"`
	RecoverySafety    string          `json:"recovery_safety"`
	Retry             wireRetry       `json:"retry"`
	AttemptCount      uint64          `json:"attempt_count"`
	Result            json.RawMessage `json:"result"`
	RetryOf           string          `json:"retry_of"`
	EffectUncertain   bool            `json:"effect_uncertain"`
	CancelRequestedAt *wireTime       `json:"cancel_requested_at"`
	CompletedAt       *wireTime       `json:"completed_at"`
	CreatedAt         wireTime        `json:"created_at"`
	UpdatedAt         wireTime        `json:"updated_at"`
}

// UnmarshalJSON reads the contract form. Unknown members are ignored, so that an
// older client reads the answers of a newer server; numbers stay exact.
func (t *Task) UnmarshalJSON(data []byte) error {
	var w wireTask
	if err := jsonv2.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("orbit: read task: %w", err)
	}
	*t = w.task()
	return nil
}

func (w *wireTask) task() Task {
	return Task{
		ID:                w.ID,
		NamespaceID:       w.NamespaceID,
		QueueID:           w.QueueID,
		State:             w.State,
		Revision:          uint64(w.Revision),
		Handler:           w.Handler,
		HandlerVersion:    w.HandlerVersion,
		PayloadVersion:    w.PayloadVersion,
		Payload:           w.Payload,
		BusinessKey:       w.BusinessKey,
		ConcurrencyKey:    w.ConcurrencyKey,
		Priority:          w.Priority,
		AvailableAt:       time.Time(w.AvailableAt),
		StartDeadlineAt:   (*time.Time)(w.StartDeadlineAt),
		DeadlineAt:        time.Time(w.DeadlineAt),
		RecoverySafety:    w.RecoverySafety,
		Retry:             w.Retry.policy(),
		AttemptCount:      w.AttemptCount,
		Result:            w.Result,
		RetryOf:           w.RetryOf,
		EffectUncertain:   w.EffectUncertain,
		CancelRequestedAt: (*time.Time)(w.CancelRequestedAt),
		CompletedAt:       (*time.Time)(w.CompletedAt),
		CreatedAt:         time.Time(w.CreatedAt),
		UpdatedAt:         time.Time(w.UpdatedAt),
	}
}

// decimalUint is a uint64 written as a decimal string.
type decimalUint uint64

// UnmarshalText reads a decimal without sign and without leading zeros.
func (d *decimalUint) UnmarshalText(text []byte) error {
	n, err := ParseDecimal(string(text))
	*d = decimalUint(n)
	return err
}

// ParseDecimal reads a uint64 in its only decimal form: digits, no sign, no
// leading zero. Revisions and tokens travel like this.
func ParseDecimal(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, errDecimal
	}
	return n, nil
}

package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// A Task is what a worker is told of a task.
type Task struct {
	ID              string
	NamespaceID     string
	QueueID         string
	Handler         string
	HandlerVersion  string
	PayloadVersion  string
	Payload         json.RawMessage // the accepted text, byte for byte; never null
	BusinessKey     string          // for correlation only, or empty
	ConcurrencyKey  string          // resource key, or empty
	Priority        int
	RecoverySafety  string    // orbit.RecoveryReconcileOnly or orbit.RecoveryIdempotent
	Deadline        time.Time // of the whole task, on this process's clock
	AttemptNumber   uint64    // 1 for the first claim of the task
	EffectUncertain bool      // an earlier attempt may have had an effect that nobody has verified
	RetryOf         string    // id of the task that this one repeats by hand, or empty
}

// An Assignment offers one attempt. It gives no right to execute: Start does.
type Assignment struct {
	Attempt Attempt
	Lease   time.Duration // what was left of the lease when it was sent
	Task    Task
	// ConcurrencyToken is the attempt's token for the resource: not zero if and
	// only if the task has a resource key.
	ConcurrencyToken uint64
	// OperationRoot is the id of the first task of a chain of manual retries: the
	// stable identity of the operation (AMB-073).
	OperationRoot string
	Traceparent   string // W3C trace context given at submit, or empty
}

// readAssign reads task.assign and holds it to the rules that protect the
// resource (WRK-005, WRK-006) and to the registration (WRK-027).
func (c *Conn) readAssign(data []byte) (*Assignment, error) {
	var m wire.Assign
	if err := decode(wire.TypeAssign, data, &m); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkIdentities(&m), checkTask(&m.Task)); err != nil {
		return nil, err
	}
	if !c.registration.consumes(m.Task.QueueID) {
		return nil, broken("task.assign: task.queue_id was not registered")
	}
	if !c.registration.serves(Handler{Name: m.Task.Handler, Version: m.Task.HandlerVersion}) {
		return nil, broken("task.assign: task.handler with this task.handler_version was not registered")
	}
	token, err := readToken(&m, c.registration.ConcurrencyKeys)
	if err != nil {
		return nil, err
	}
	return newAssignment(&m, token, time.Now()), nil
}

func newAssignment(m *wire.Assign, token uint64, now time.Time) *Assignment {
	t := &m.Task
	return &Assignment{
		Attempt: Attempt{ID: m.AttemptID, Epoch: m.Epoch},
		Lease:   millis(m.LeaseMS),
		Task: Task{
			ID: t.ID, NamespaceID: t.NamespaceID, QueueID: t.QueueID,
			Handler: t.Handler, HandlerVersion: t.HandlerVersion,
			PayloadVersion: t.PayloadVersion, Payload: t.Payload,
			BusinessKey: t.BusinessKey, ConcurrencyKey: t.ConcurrencyKey,
			Priority: t.Priority, RecoverySafety: t.RecoverySafety,
			Deadline: now.Add(millis(t.DeadlineMS)), AttemptNumber: t.AttemptNumber,
			EffectUncertain: t.EffectUncertain, RetryOf: t.RetryOf,
		},
		ConcurrencyToken: token, OperationRoot: m.OperationRoot, Traceparent: m.Traceparent,
	}
}

func checkIdentities(m *wire.Assign) error {
	for _, id := range [...]struct{ name, value string }{
		{"attempt_id", m.AttemptID}, {"task.id", m.Task.ID}, {"task.namespace_id", m.Task.NamespaceID},
		{"task.queue_id", m.Task.QueueID}, {"operation_root", m.OperationRoot},
	} {
		if !orbit.ValidID(id.value) {
			return broken("task.assign: %s must be 32 lower-case hexadecimal characters", id.name)
		}
	}
	switch {
	case m.Epoch == 0 || m.Epoch > math.MaxInt64:
		return broken("task.assign: epoch must be 1 to %d", math.MaxInt64)
	case m.Task.RetryOf != "" && !orbit.ValidID(m.Task.RetryOf):
		return broken("task.assign: task.retry_of must be 32 lower-case hexadecimal characters")
	case len(m.Task.Payload) == 0 || string(m.Task.Payload) == "null":
		return broken("task.assign: task.payload must be present and not null")
	case m.Traceparent != "" && orbit.ValidateTraceparent(m.Traceparent) != nil:
		return broken("task.assign: traceparent must be a W3C traceparent")
	}
	return nil
}

// checkTask holds what is said of a task to the rules under which tasks are accepted.
func checkTask(t *wire.Task) error {
	switch {
	case !validName(t.PayloadVersion, orbit.MaxPayloadVersion):
		return broken("task.assign: task.payload_version must be a version of 1 to %d characters", orbit.MaxPayloadVersion)
	case utf8.RuneCountInString(t.BusinessKey) > orbit.MaxBusinessKey:
		return broken("task.assign: task.business_key must be at most %d characters", orbit.MaxBusinessKey)
	case t.Priority > orbit.MaxPriority:
		return broken("task.assign: task.priority must be at most %d", orbit.MaxPriority)
	case t.RecoverySafety != orbit.RecoveryReconcileOnly && t.RecoverySafety != orbit.RecoveryIdempotent:
		return broken("task.assign: task.recovery_safety is unknown")
	case t.AttemptNumber == 0:
		return broken("task.assign: task.attempt_number must not be zero")
	}
	return nil
}

// readToken checks the pair of resource key and token. The token is a decimal
// string, so that no reader rounds it; there is one spelling for each value.
func readToken(m *wire.Assign, declared bool) (uint64, error) {
	key, text := m.Task.ConcurrencyKey, m.ConcurrencyToken
	switch {
	case key == "" && text == "":
		return 0, nil
	case key == "":
		return 0, broken("task.assign: concurrency_token is given though the task has no concurrency_key")
	case !declared:
		return 0, broken("task.assign: task.concurrency_key is set though support was not declared")
	case text == "":
		return 0, broken("task.assign: concurrency_token is missing though the task has a concurrency_key")
	}
	if err := orbit.ValidateConcurrencyKey(key); err != nil {
		var rule *orbit.InvalidArgumentError
		errors.As(err, &rule)
		return 0, broken("task.assign: task.concurrency_key %s", rule.Rule)
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 || strconv.FormatUint(token, 10) != text {
		return 0, broken("task.assign: concurrency_token must be a decimal uint64 from 1, without sign and leading zeros")
	}
	return token, nil
}

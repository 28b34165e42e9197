package workertest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
)

// An Execution describes the attempt that a handler is called for. The zero value of every
// field works, so that a test names only what it is about.
type Execution struct {
	// Task is the task as the handler sees it. Default: ids of its own, the handler
	// "test.handler" and versions "v1", the payload {}, RECONCILE_ONLY, attempt number 1
	// and a deadline in 24 hours.
	Task      worker.Task
	AttemptID string // Default: an id of its own.
	Epoch     uint64 // Default: the attempt number.
	// ConcurrencyToken must not be set without Task.ConcurrencyKey. Default: the epoch if
	// there is a key.
	ConcurrencyToken uint64
	OperationRoot    string // Default: the task's id.
	Traceparent      string
	// Timeout is the attempt's timeout. Default 30s.
	Timeout time.Duration
	// StopTimeout is how long the handler may take to return after its context has ended;
	// then the test fails. Default 10s.
	StopTimeout time.Duration
}

// execution fills the defaults and holds everything to the rules of the contract.
func (e *Execution) execution() (worker.Execution, error) {
	if err := fillTask(&e.Task); err != nil {
		return worker.Execution{}, err
	}
	fill(&e.AttemptID, newID())
	fill(&e.Epoch, e.Task.AttemptNumber)
	fill(&e.OperationRoot, e.Task.ID)
	fill(&e.Timeout, 30*time.Second)
	fill(&e.StopTimeout, 10*time.Second)
	if e.Task.ConcurrencyKey != "" {
		fill(&e.ConcurrencyToken, e.Epoch)
	}
	switch {
	case e.Task.ConcurrencyKey == "" && e.ConcurrencyToken != 0:
		return worker.Execution{}, refuse("ConcurrencyToken", "is only for a task with a ConcurrencyKey")
	case e.Timeout < 0 || e.StopTimeout < 0:
		return worker.Execution{}, refuse("Timeout", "must not be negative, nor StopTimeout")
	}
	return worker.Execution{
		Task: e.Task, AttemptID: e.AttemptID, Epoch: e.Epoch, ConcurrencyToken: e.ConcurrencyToken,
		OperationRoot: e.OperationRoot, Traceparent: e.Traceparent,
	}, nil
}

// fillTask fills what is not set and checks what is.
func fillTask(t *worker.Task) error {
	fill(&t.ID, newID())
	fill(&t.NamespaceID, newID())
	fill(&t.QueueID, newID())
	fill(&t.Handler, "test.handler")
	fill(&t.HandlerVersion, "v1")
	fill(&t.PayloadVersion, "v1")
	fill(&t.RecoverySafety, orbit.RecoveryReconcileOnly)
	fill(&t.AttemptNumber, 1)
	if t.Payload == nil {
		t.Payload = json.RawMessage("{}")
	}
	if t.Deadline.IsZero() {
		t.Deadline = time.Now().Add(24 * time.Hour)
	}
	return checkTask(t)
}

func checkTask(t *worker.Task) error {
	for _, id := range [...]struct{ field, value string }{
		{"ID", t.ID}, {"NamespaceID", t.NamespaceID}, {"QueueID", t.QueueID},
	} {
		if !orbit.ValidID(id.value) {
			return refuse("Task."+id.field, "must be 32 lower-case hexadecimal characters")
		}
	}
	request := orbit.SubmitTaskRequest{
		QueueID: t.QueueID, Handler: t.Handler, HandlerVersion: t.HandlerVersion, PayloadVersion: t.PayloadVersion,
		Payload: t.Payload, BusinessKey: t.BusinessKey, ConcurrencyKey: t.ConcurrencyKey, RecoverySafety: t.RecoverySafety,
	}
	_, judged, err := request.Freeze()
	if err != nil {
		return fmt.Errorf("workertest: Task: %w", err)
	}
	t.Payload = judged.Request.Payload
	return nil
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func newID() string { return worker.NewProcessID() }

func refuse(field, format string, args ...any) error {
	return fmt.Errorf("workertest: %s: %w", field, fmt.Errorf(format, args...))
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
)

// An Execution is what a handler is given: one attempt of a task, with the
// confirmed right to execute it for as long as the handler's context lives.
type Execution struct {
	Task      Task
	AttemptID string
	Epoch     uint64 // the task's claim counter; no substitute for ConcurrencyToken
	// ConcurrencyToken goes with each write to the resource that Task.ConcurrencyKey
	// names: the resource refuses a token below the highest it has seen. It is 0
	// if and only if the task has no key, and is neither permission nor proof of it.
	ConcurrencyToken uint64
	// OperationRoot is the stable identity of the operation: the same for every
	// attempt of the task and of its manual retries. It tells a repeated write.
	OperationRoot string
	Traceparent   string // W3C trace context given at submit, or empty

	progress func(string)
}

// Progress tells people how far the attempt is, in at most 4 KiB of UTF-8. The
// latest text goes with the next renewal of the lease; one that comes shortly
// before the end may never be shown. Its error is an
// [*orbit.InvalidArgumentError] and concerns only the text.
func (e Execution) Progress(text string) error {
	if err := checkProgress(text); err != nil {
		return err
	}
	if e.progress != nil { // nil in an Execution that a test has made
		e.progress(text)
	}
	return nil
}

// WithProgress returns e with a Progress that hands its texts to f, which may be called by
// several goroutines at once. It is for those who call handlers themselves.
func (e Execution) WithProgress(f func(text string)) Execution {
	e.progress = f
	return e
}

// A PanicError reports a handler that panicked. The attempt is reported as UNKNOWN
// with the value, without the stack.
type PanicError struct {
	TaskID, AttemptID string
	Handler           Handler
	Value             any
	Stack             []byte
}

// Error names the handler, the attempt and the value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("worker: handler %s %s panicked (attempt %s of task %s): %v",
		e.Handler.Name, e.Handler.Version, e.AttemptID, e.TaskID, e.Value)
}

var errGoexit = errors.New("the handler ended its goroutine without returning")

// answer is what came of calling a handler.
type answer struct {
	result   json.RawMessage
	err      error
	panicked *PanicError
}

// call runs f and always sends one answer, whatever f does.
func call(ctx context.Context, f HandlerFunc, e Execution, done chan<- answer) {
	a := answer{err: errGoexit}
	defer func() {
		if value := recover(); value != nil {
			a = answer{err: fmt.Errorf("handler panicked: %v", value), panicked: &PanicError{
				TaskID: e.Task.ID, AttemptID: e.AttemptID, Value: value, Stack: debug.Stack(),
				Handler: Handler{Name: e.Task.Handler, Version: e.Task.HandlerVersion},
			}}
		}
		done <- a
	}()
	a.result, a.err = f(ctx, e)
}

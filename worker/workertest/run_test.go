package workertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// recorder is a test whose failures are what is tested. Like testing.T it ends its
// goroutine after Fatalf.
type recorder struct {
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// failing runs f as a test of its own and returns how that failed.
func failing(f func(t workertest.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r)
	}()
	<-done
	return strings.Join(r.failures, "\n")
}

func answers(result json.RawMessage, err error) worker.HandlerFunc {
	return func(context.Context, worker.Execution) (json.RawMessage, error) { return result, err }
}

// WRK-026, REF-WRK-006: each answer of a handler is what the worker would report.
func TestRunReportsWhatAWorkerWould(t *testing.T) {
	no := errors.New("no such product")
	for name, c := range map[string]struct {
		f    worker.HandlerFunc
		want string
	}{
		"Success":          {answers(json.RawMessage(` {"left":1} `), nil), `SUCCEEDED {"left":1}`},
		"SuccessAlone":     {answers(nil, nil), "SUCCEEDED"},
		"Null":             {answers(json.RawMessage("null"), nil), "SUCCEEDED"},
		"Failed":           {answers(nil, worker.Failed(no)), "FAILED, final: no such product"},
		"Retryable":        {answers(nil, fmt.Errorf("reserve: %w", worker.Retryable(no))), "FAILED, retryable: reserve: no such product"},
		"Unknown":          {answers(nil, worker.Unknown(no)), "UNKNOWN: no such product"},
		"PlainError":       {answers(json.RawMessage("1"), no), "UNKNOWN: no such product"},
		"UnaskedCancelled": {answers(nil, worker.Cancelled(no)), "FAILED, retryable: no such product"},
		"Panic":            {func(context.Context, worker.Execution) (json.RawMessage, error) { panic("oops") }, "UNKNOWN: handler panicked: oops"},
		"Goexit": {func(context.Context, worker.Execution) (json.RawMessage, error) { runtime.Goexit(); return nil, nil },
			"UNKNOWN: the handler ended its goroutine without returning"},
	} {
		t.Run(name, func(t *testing.T) {
			got := workertest.Run(t, c.f, workertest.Execution{})
			var panicked *worker.PanicError
			if got.String() != c.want || errors.As(got.Problem, &panicked) != (name == "Panic") || got.Cause != nil {
				t.Errorf("%v, problem %v, cause %v; want %s", got, got.Problem, got.Cause, c.want)
			}
		})
	}
}

// LIMIT-019: what is too large to be reported is a typed problem, not a lost attempt.
func TestRunHoldsAnswersToTheirBounds(t *testing.T) {
	large := json.RawMessage(`"` + strings.Repeat("x", 256<<10) + `"`)
	for name, c := range map[string]struct {
		f       worker.HandlerFunc
		outcome string
		field   string
		longest int
	}{
		"Result":    {answers(large, nil), orbit.OutcomeUnknown, "result", 4 << 10},
		"NoJSON":    {answers(json.RawMessage(`{"a":1,}`), nil), orbit.OutcomeUnknown, "result", 4 << 10},
		"ErrorText": {answers(nil, worker.Failed(errors.New(strings.Repeat("é", 4<<10)))), orbit.OutcomeFailed, "error", 4 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			got := workertest.Run(t, c.f, workertest.Execution{})
			var rule *orbit.InvalidArgumentError
			if !errors.As(got.Problem, &rule) || !strings.HasPrefix(rule.Field, c.field) {
				t.Errorf("problem is %v, want an InvalidArgumentError about %s", got.Problem, c.field)
			}
			if got.Outcome != c.outcome || got.Result != nil || got.Error == "" || len(got.Error) > c.longest {
				t.Errorf("%s with %d bytes of error", got.Outcome, len(got.Error))
			}
		})
	}
}

// WRK-001: the handler sees what the test gives, and defaults that a server could give.
func TestRunFillsTheExecution(t *testing.T) {
	var seen worker.Execution
	see := func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		seen = e
		return nil, errors.Join(e.Progress("half"), e.Progress("done"), e.Progress(string(make([]byte, 5000))))
	}
	got := workertest.Run(t, see, workertest.Execution{Task: worker.Task{
		Payload: json.RawMessage(` {"n":9007199254740993} `), ConcurrencyKey: "object/42", AttemptNumber: 3,
	}})
	if !orbit.ValidID(seen.Task.ID) || !orbit.ValidID(seen.AttemptID) || seen.OperationRoot != seen.Task.ID || time.Until(seen.Task.Deadline) < time.Hour {
		t.Errorf("handler saw %+v", seen)
	}
	if string(seen.Task.Payload) != `{"n":9007199254740993}` || seen.ConcurrencyToken != 3 || seen.Epoch != 3 {
		t.Errorf("payload %s, token %d, epoch %d", seen.Task.Payload, seen.ConcurrencyToken, seen.Epoch)
	}
	if fmt.Sprint(got.Progress) != "[half done]" || !strings.Contains(got.Error, "progress") {
		t.Errorf("progress %q, error %q", got.Progress, got.Error)
	}
	workertest.Run(t, see, workertest.Execution{})
	if seen.ConcurrencyToken != 0 || seen.Task.ConcurrencyKey != "" {
		t.Errorf("a task without a key has the token %d", seen.ConcurrencyToken)
	}
}

// An execution that no server would assign fails the test, which says why.
func TestRunRefusesWhatNoServerAssigns(t *testing.T) {
	for want, e := range map[string]workertest.Execution{
		"workertest: ConcurrencyToken: is only for a task with a ConcurrencyKey": {ConcurrencyToken: 1},
		"workertest: Timeout: must not be negative":                              {Timeout: -1},
		"workertest: Task.ID: must be 32":                                        {Task: worker.Task{ID: "x"}},
		"concurrency_key":                                                        {Task: worker.Task{ConcurrencyKey: "a\x00b"}},
		"payload":                                                                {Task: worker.Task{Payload: json.RawMessage("{")}},
		"handler":                                                                {Task: worker.Task{Handler: "a b"}},
	} {
		got := failing(func(t workertest.TB) { workertest.Run(t, answers(nil, nil), e) })
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("failed with %q, want %q", got, want)
		}
	}
}

func untilEnded(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), worker.ErrCancelRequested) {
		return nil, worker.Cancelled(errors.New("stopped"))
	}
	return nil, context.Cause(ctx)
}

// WRK-025: the ends of a handler's context, on demand.
func TestCallEndsTheContextWithItsCause(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*workertest.Call)
		cause error
		want  string
	}{
		"Cancel":  {func(c *workertest.Call) { c.RequestCancel("customer left") }, worker.ErrCancelRequested, "CANCELLED: stopped"},
		"Lease":   {(*workertest.Call).LoseLease, worker.ErrLeaseLost, "UNKNOWN: worker: the right to execute was lost"},
		"Timeout": {(*workertest.Call).PassTimeout, worker.ErrAttemptTimeout, "UNKNOWN: worker: attempt timeout or task deadline reached"},
		"Drain":   {(*workertest.Call).Drain, worker.ErrDraining, "UNKNOWN: worker: drain timeout is over"},
		"FirstCounts": {func(c *workertest.Call) { c.RequestCancel(""); c.LoseLease() },
			worker.ErrCancelRequested, "CANCELLED: stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			call := workertest.Start(t, untilEnded, workertest.Execution{})
			c.end(call)
			if got := call.Wait(); got.String() != c.want || !errors.Is(got.Cause, c.cause) {
				t.Errorf("%v, cause %v; want %s", got, got.Cause, c.want)
			}
		})
	}
}

// Inside a bubble the attempt's timeout passes by itself and costs nothing.
func TestTimeoutPassesInABubble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		got := workertest.Run(t, untilEnded, workertest.Execution{Timeout: time.Hour})
		if took := time.Since(began); took != time.Hour || !errors.Is(got.Cause, worker.ErrAttemptTimeout) {
			t.Errorf("%v after %v, cause %v", got, took, got.Cause)
		}
	})
}

// A handler that ignores its context fails the test instead of hanging it.
func TestStuckHandlerFailsTheTest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		began := time.Now()
		failure := failing(func(tb workertest.TB) {
			call := workertest.Start(tb, func(context.Context, worker.Execution) (json.RawMessage, error) {
				<-release
				return nil, nil
			}, workertest.Execution{})
			call.LoseLease()
			call.Wait()
		})
		if !strings.Contains(failure, "ignores its cancelled context") || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %q", time.Since(began), failure)
		}
		close(release)
		synctest.Wait()
	})
}

func TestAwaitProgress(t *testing.T) {
	steps := func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		e.Progress("one")
		e.Progress("two")
		<-ctx.Done()
		return nil, nil
	}
	call := workertest.Start(t, steps, workertest.Execution{})
	call.AwaitProgress("two")
	call.AwaitProgress("one")
	call.RequestCancel("")
	if got := call.Wait(); got.String() != "SUCCEEDED" { // it may finish all the same
		t.Error(got)
	}
	failure := failing(func(t workertest.TB) {
		call := workertest.Start(t, steps, workertest.Execution{})
		call.Drain()
		call.AwaitProgress("three")
	})
	if !strings.Contains(failure, `"three", it reported ["one" "two"]`) {
		t.Errorf("failed with %q", failure)
	}
}

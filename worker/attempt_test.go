package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// counted counts the calls of a handler that succeeds.
func counted(calls *atomic.Int32) worker.HandlerFunc {
	return func(context.Context, worker.Execution) (json.RawMessage, error) {
		calls.Add(1)
		return nil, nil
	}
}

// WRK-012, TOK-010, REF-WRK-003: Start is committed, its answer is lost.
func TestLostStartAnswer(t *testing.T) {
	t.Run("ResumedRunningRunsOnce", func(t *testing.T) {
		s := newTLSServer(t)
		var calls atomic.Int32
		h := run(t, s, worker.Config{}, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
			if e.ConcurrencyToken != 7 || e.AttemptID != id("5") {
				t.Errorf("execution = %+v", e)
			}
			calls.Add(1)
			return nil, nil
		})
		v, first := s.welcome()
		v.assign(offer("5"))
		v.expect(wire.TypeStart)
		v.cut()
		v, second := s.welcome(wire.Held{AttemptID: id("5"), Epoch: 3})
		if first.ProcessID != second.ProcessID || fmt.Sprint(second.Held) != fmt.Sprint([]wire.Held{{AttemptID: id("5"), Epoch: 3}}) {
			t.Errorf("second hello = %+v, want the same process with the attempt held", second)
		}
		if a := v.resume(wire.Resumed{Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: 30_000}); a.AttemptID != id("5") {
			t.Errorf("resumed %+v", a)
		}
		if f := v.finish(); f.Outcome != wire.OutcomeSucceeded {
			t.Errorf("finish = %+v", f)
		}
		h.stop()
		v.drained()
		h.end()
		if calls.Load() != 1 {
			t.Errorf("the handler was called %d times", calls.Load())
		}
	})
	t.Run("ResumedUnstartedIsStartedAgain", func(t *testing.T) {
		s := newTLSServer(t)
		var calls atomic.Int32
		h := run(t, s, worker.Config{}, counted(&calls))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.expect(wire.TypeStart)
		v.cut()
		v, _ = s.welcome(wire.Held{AttemptID: id("5"), Epoch: 3})
		v.resume(wire.Resumed{Status: wire.ResumeKeep, LeaseMS: 15_000})
		v.start(15e9, 30e9)
		v.finish()
		h.stop()
		v.drained()
		h.end()
		if calls.Load() != 1 {
			t.Errorf("the handler was called %d times", calls.Load())
		}
	})
	t.Run("LostIsToldNotToHaveRun", func(t *testing.T) {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, nothing(t))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.expect(wire.TypeStart)
		v.cut()
		v, _ = s.welcome()
		v.resume(wire.Resumed{Status: wire.ResumeLost})
		// It is known that nothing happened: that spares a person the question.
		if f := v.finish(); f.Outcome != wire.OutcomeFailed || !f.Retryable || !strings.Contains(f.Error, "did not run") {
			t.Errorf("finish = %+v", f)
		}
		h.stop()
		v.drained()
		h.end()
	})
	t.Run("NeverCommittedIsNoNews", func(t *testing.T) {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, nothing(t))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.expect(wire.TypeStart)
		v.cut()
		v, _ = s.welcome()
		v.resume(wire.Resumed{Status: wire.ResumeLost})
		v.send(wire.TypeError, v.expect(wire.TypeFinish).ID, wire.Error{Code: orbit.CodeStateConflict, Message: "the attempt has not been started"})
		h.stop()
		v.drained()
		h.end()
		for _, err := range h.errs {
			if refused := (*worker.RefusedError)(nil); errors.As(err, &refused) {
				t.Errorf("the owner was told %v", err)
			}
		}
	})
	t.Run("ServerWithoutDatabaseIsAskedAgain", func(t *testing.T) {
		s := newTLSServer(t)
		var calls atomic.Int32
		h := run(t, s, worker.Config{}, counted(&calls))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.send(wire.TypeError, v.expect(wire.TypeStart).ID, wire.Error{Code: orbit.CodeUnavailable, Message: "later"})
		v.start(15e9, 30e9)
		v.finish()
		h.stop()
		v.drained()
		h.end()
		if calls.Load() != 1 {
			t.Errorf("the handler was called %d times", calls.Load())
		}
	})
}

// WRK-013, CAN-021, TOK-012: without the right nothing runs, and there is nothing to report.
func TestRefusedStartRunsNothing(t *testing.T) {
	for _, code := range []string{wire.CodeLeaseExpired, wire.CodeSuperseded, wire.CodeEnded, orbit.CodeStateConflict, orbit.CodeNotFound} {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, nothing(t))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.send(wire.TypeError, v.expect(wire.TypeStart).ID, wire.Error{Code: code, Message: "no"})
		h.stop()
		v.drained()
		h.end()
		if kinds := v.rest(); len(kinds) > 0 {
			t.Errorf("after %s the worker sent %q", code, kinds)
		}
	}
}

// WRK-015: a lost Finish answer is asked for again, word by word.
func TestLostFinishAnswerIsRepeated(t *testing.T) {
	s := newTLSServer(t)
	var calls atomic.Int32
	h := run(t, s, worker.Config{}, func(context.Context, worker.Execution) (json.RawMessage, error) {
		calls.Add(1)
		return json.RawMessage(`{"n": 1}`), nil
	})
	v, _ := s.welcome()
	v.assign(offer("5"))
	v.start(15e9, 30e9)
	first := v.expect(wire.TypeFinish)
	v.cut()
	v, _ = s.welcome()
	v.resume(wire.Resumed{Status: wire.ResumeFinished})
	again := v.expect(wire.TypeFinish)
	if string(first.Data) != string(again.Data) {
		t.Errorf("finish = %s, then %s", first.Data, again.Data)
	}
	v.send(wire.TypeError, again.ID, wire.Error{Code: orbit.CodeUnavailable, Message: "later"})
	third := v.expect(wire.TypeFinish)
	if string(first.Data) != string(third.Data) {
		t.Errorf("finish = %s, then %s", first.Data, third.Data)
	}
	v.confirm(third, read[wire.Finish](t, third))
	h.stop()
	v.drained()
	h.end()
	if calls.Load() != 1 {
		t.Errorf("the handler was called %d times", calls.Load())
	}
}

// WRK-025: every exact answer to a Finish ends the duty to repeat it.
func TestLateFinishIsNotRepeated(t *testing.T) {
	for _, status := range []string{wire.FinishFinished, wire.FinishExpired, wire.FinishReplaced} {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, succeed)
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15e9, 30e9)
		frame := v.expect(wire.TypeFinish)
		v.send(wire.TypeFinished, frame.ID, wire.Finished{AttemptID: id("5"), Epoch: 3, Status: status})
		h.stop()
		v.drained()
		h.end()
	}
	for _, code := range []string{wire.CodeLeaseExpired, wire.CodeSuperseded, wire.CodeEnded, orbit.CodeInvalidArgument} {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, succeed)
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15e9, 30e9)
		v.send(wire.TypeError, v.expect(wire.TypeFinish).ID, wire.Error{Code: code, Message: "no"})
		h.stop()
		v.drained()
		h.end()
		if code == orbit.CodeInvalidArgument {
			reported[*worker.RefusedError](h)
		}
	}
}

// Held attempts are agreed on before anything new is taken; what never arrived is
// handed back.
func TestReconnectResumesBeforeItTakesMore(t *testing.T) {
	s := newTLSServer(t)
	running, finish := make(chan struct{}), make(chan struct{})
	h := run(t, s, worker.Config{Capacity: 3}, func(context.Context, worker.Execution) (json.RawMessage, error) {
		running <- struct{}{}
		<-finish
		return nil, nil
	})
	v, _ := s.welcome()
	for _, a := range []string{"5", "6"} {
		v.assign(offer(a))
		v.start(15e9, 30e9)
		<-running
	}
	v.cut()
	v, hello := s.welcome(wire.Held{AttemptID: id("5"), Epoch: 3}, wire.Held{AttemptID: id("6"), Epoch: 3}, wire.Held{AttemptID: id("7"), Epoch: 1})
	if len(hello.Held) != 2 {
		t.Errorf("held = %+v, want both attempts", hello.Held)
	}
	resumed := make([]wire.Envelope, 2)
	for i := range resumed {
		frame, _ := v.next()
		if frame.Type != wire.TypeResume {
			t.Fatalf("worker sent %s before it has resumed", frame.Type)
		}
		resumed[i] = frame
	}
	for _, frame := range resumed {
		a := read[wire.Attempt](t, frame)
		v.send(wire.TypeResumed, frame.ID, wire.Resumed{AttemptID: a.AttemptID, Epoch: a.Epoch, Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: 30_000})
	}
	frame := v.expect(wire.TypeReturn)
	a := read[wire.Attempt](t, frame)
	if a != (wire.Attempt{AttemptID: id("7"), Epoch: 1}) {
		t.Errorf("returned %+v, want the attempt that never arrived", a)
	}
	v.send(wire.TypeReturned, frame.ID, wire.Returned(a))
	close(finish)
	v.finish()
	v.finish()
	h.stop()
	v.drained()
	h.end()
}

// WRK-025: Resume says that the right is gone.
func TestResumeThatIsRefusedCancelsTheHandler(t *testing.T) {
	for name, answer := range map[string]func(*visit){
		"Lost":     func(v *visit) { v.resume(wire.Resumed{Status: wire.ResumeLost}) },
		"Finished": func(v *visit) { v.resume(wire.Resumed{Status: wire.ResumeFinished}) },
		"Refused": func(v *visit) {
			v.send(wire.TypeError, v.expect(wire.TypeResume).ID, wire.Error{Code: orbit.CodeNotFound, Message: "no such attempt"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTLSServer(t)
			running := make(chan struct{})
			h := run(t, s, worker.Config{}, func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
				close(running)
				return untilCancelled(ctx, e)
			})
			v, _ := s.welcome()
			v.assign(offer("5"))
			v.start(15e9, 30e9)
			<-running
			v.cut()
			v, _ = s.welcome()
			answer(v)
			if f := v.finish(); f.Outcome != wire.OutcomeUnknown || f.Error != worker.ErrLeaseLost.Error() {
				t.Errorf("finish = %+v, want UNKNOWN with the cause", f)
			}
			h.stop()
			v.drained()
			h.end()
		})
	}
}

// untilCancelled returns the cause of its context's end, as a plain error.
func untilCancelled(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// REF-CAN-002.
func TestCancelIntentReachesTheHandler(t *testing.T) {
	for name, renewal := range map[string]bool{"ByMessage": false, "ByRenewal": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newPipeServer(t)
				h := run(t, s, worker.Config{}, func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), worker.ErrCancelRequested) || strings.Contains(context.Cause(ctx).Error(), "\n") {
						t.Errorf("cause = %q", context.Cause(ctx))
					}
					return nil, worker.Cancelled(context.Cause(ctx))
				})
				v, _ := s.welcome()
				v.answering(nil)
				v.assign(offer("5"))
				v.start(15*time.Second, time.Minute)
				v.send(wire.TypeCancel, "", wire.Cancel{AttemptID: id("5"), Epoch: 4}) // of another epoch: not ours
				v.send(wire.TypeCancel, "", wire.Cancel{AttemptID: id("6"), Epoch: 3})
				frame := v.expect(wire.TypeRenew)
				v.send(wire.TypeRenewed, frame.ID, wire.Renewed{AttemptID: id("5"), Epoch: 3, LeaseMS: 15_000, CancelRequested: renewal})
				if !renewal {
					v.send(wire.TypeCancel, "", wire.Cancel{AttemptID: id("5"), Epoch: 3, Reason: "object\nreplaced"})
				}
				if f := v.finish(); f.Outcome != wire.OutcomeCancelled || f.Retryable {
					t.Errorf("finish = %+v, want CANCELLED", f)
				}
				h.stop()
				v.drained()
				h.end()
				s.close()
			})
		})
	}
	t.Run("BeforeTheHandlerRuns", func(t *testing.T) {
		s := newTLSServer(t)
		h := run(t, s, worker.Config{}, nothing(t))
		v, _ := s.welcome()
		v.assign(offer("5"))
		frame := v.expect(wire.TypeStart)
		v.send(wire.TypeStarted, frame.ID, wire.Started{AttemptID: id("5"), Epoch: 3, LeaseMS: 15_000, TimeoutMS: 30_000, CancelRequested: true})
		if f := v.finish(); f.Outcome != wire.OutcomeCancelled || !strings.Contains(f.Error, "did not run") {
			t.Errorf("finish = %+v, want CANCELLED", f)
		}
		h.stop()
		v.drained()
		h.end()
	})
}

// What a handler returns is what is reported; what nobody knows is UNKNOWN.
func TestHandlerAnswerDecidesTheOutcome(t *testing.T) {
	why := errors.New("why")
	for name, c := range map[string]struct {
		f    worker.HandlerFunc
		want wire.Finish
	}{
		"Success":          {answers(json.RawMessage(`[1, 2]`), nil), wire.Finish{Outcome: wire.OutcomeSucceeded, Result: json.RawMessage(`[1, 2]`)}},
		"NoResult":         {answers(nil, nil), wire.Finish{Outcome: wire.OutcomeSucceeded}},
		"NullIsNoResult":   {answers(json.RawMessage(" null "), nil), wire.Finish{Outcome: wire.OutcomeSucceeded}},
		"PlainError":       {answers(json.RawMessage(`1`), why), wire.Finish{Outcome: wire.OutcomeUnknown, Error: "why"}},
		"Failed":           {answers(nil, worker.Failed(why)), wire.Finish{Outcome: wire.OutcomeFailed, Error: "why"}},
		"Retryable":        {answers(nil, worker.Retryable(why)), wire.Finish{Outcome: wire.OutcomeFailed, Retryable: true, Error: "why"}},
		"Unknown":          {answers(nil, worker.Unknown(why)), wire.Finish{Outcome: wire.OutcomeUnknown, Error: "why"}},
		"Wrapped":          {answers(nil, fmt.Errorf("write: %w", worker.Retryable(why))), wire.Finish{Outcome: wire.OutcomeFailed, Retryable: true, Error: "write: why"}},
		"OutermostWins":    {answers(nil, worker.Unknown(worker.Retryable(why))), wire.Finish{Outcome: wire.OutcomeUnknown, Error: "why"}},
		"NilReason":        {answers(nil, worker.Failed(nil)), wire.Finish{Outcome: wire.OutcomeFailed, Error: "no reason given"}},
		"CancelledUnasked": {answers(nil, worker.Cancelled(why)), wire.Finish{Outcome: wire.OutcomeFailed, Retryable: true, Error: "why"}},
		"InvalidUTF8":      {answers(nil, worker.Failed(errors.New("a\xffb"))), wire.Finish{Outcome: wire.OutcomeFailed, Error: "a\uFFFDb"}},
		"Goexit": {func(context.Context, worker.Execution) (json.RawMessage, error) {
			runtime.Goexit()
			return nil, nil
		}, wire.Finish{Outcome: wire.OutcomeUnknown, Error: "the handler ended its goroutine without returning"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, h := finished(t, c.f)
			f.AttemptID, f.Epoch, f.Receipt = "", 0, ""
			if fmt.Sprintf("%+v", f) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("finish = %+v, want %+v", f, c.want)
			}
			if len(h.errs) > 0 {
				t.Errorf("the owner was told %v", h.errs)
			}
		})
	}
}

func answers(result json.RawMessage, err error) worker.HandlerFunc {
	return func(context.Context, worker.Execution) (json.RawMessage, error) { return result, err }
}

// finished runs one attempt and returns how it was reported.
func finished(t *testing.T, f worker.HandlerFunc) (wire.Finish, *harness) {
	t.Helper()
	s := newTLSServer(t)
	h := run(t, s, worker.Config{}, f)
	v, _ := s.welcome()
	v.assign(offer("5"))
	v.start(15e9, 30e9)
	got := v.finish()
	h.stop()
	v.drained()
	h.end()
	return got, h
}

// WRK-026.
func TestPanicIsUnknownAndEndsNothing(t *testing.T) {
	s := newTLSServer(t)
	h := run(t, s, worker.Config{}, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		if e.AttemptID == id("5") {
			panic("index out of order")
		}
		return nil, nil
	})
	v, _ := s.welcome()
	v.assign(offer("5"))
	v.start(15e9, 30e9)
	if f := v.finish(); f.Outcome != wire.OutcomeUnknown || f.Error != "handler panicked: index out of order" {
		t.Errorf("finish = %+v", f)
	}
	if told := reported[*worker.PanicError](h); told.AttemptID != id("5") || told.Handler != update || !strings.Contains(string(told.Stack), "attempt_test.go") {
		t.Errorf("the owner was told %+v", told)
	}
	v.assign(offer("6"))
	v.start(15e9, 30e9)
	if f := v.finish(); f.Outcome != wire.OutcomeSucceeded {
		t.Errorf("the next attempt ended %+v", f)
	}
	h.stop()
	v.drained()
	h.end()
}

// LIMIT-019.
func TestWordsOfAHandlerAreBounded(t *testing.T) {
	exact := json.RawMessage(`"` + strings.Repeat("x", wire.MaxResult-2) + `"`)
	for name, c := range map[string]struct {
		result json.RawMessage
		rule   string
	}{
		"TooLarge":  {json.RawMessage(`"` + strings.Repeat("x", wire.MaxResult-1) + `"`), "at most 262144 bytes"},
		"NoJSON":    {json.RawMessage(`{"a":`), "cut off"},
		"Duplicate": {json.RawMessage(`{"a":1,"a":2}`), "duplicate"},
		"Exponent":  {json.RawMessage(`[1e309]`), "exponent"},
	} {
		t.Run(name, func(t *testing.T) {
			f, h := finished(t, answers(c.result, nil))
			if f.Outcome != wire.OutcomeUnknown || len(f.Result) > 0 || !strings.Contains(f.Error, c.rule) {
				t.Errorf("finish = %.300v, want UNKNOWN: the effect has happened", f)
			}
			if told := reported[*orbit.InvalidArgumentError](h); !strings.HasPrefix(told.Field, "result") {
				t.Errorf("the owner was told %v", told)
			}
			if err := worker.CheckResult(c.result); err == nil || !strings.Contains(err.Error(), c.rule) {
				t.Errorf("CheckResult = %v", err)
			}
		})
	}
	t.Run("LargestResult", func(t *testing.T) {
		f, h := finished(t, answers(append(exact, ' ', '\n'), nil))
		if f.Outcome != wire.OutcomeSucceeded || len(f.Result) != wire.MaxResult || len(h.errs) > 0 {
			t.Errorf("finish = %s with %d bytes, %v", f.Outcome, len(f.Result), h.errs)
		}
	})
	t.Run("LongErrorIsShortened", func(t *testing.T) {
		f, h := finished(t, answers(nil, worker.Failed(errors.New(strings.Repeat("é", wire.MaxError)))))
		if f.Outcome != wire.OutcomeFailed || len(f.Error) > wire.MaxError || !strings.HasSuffix(f.Error, "é … (shortened)") {
			t.Errorf("finish = %s with %d bytes", f.Outcome, len(f.Error))
		}
		if told := reported[*orbit.InvalidArgumentError](h); told.Field != "error" {
			t.Errorf("the owner was told %v", told)
		}
	})
	t.Run("Progress", func(t *testing.T) {
		finished(t, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
			for _, text := range []string{strings.Repeat("x", wire.MaxProgress+1), "a\xff"} {
				var invalid *orbit.InvalidArgumentError
				if err := e.Progress(text); !errors.As(err, &invalid) || invalid.Field != "progress" {
					t.Errorf("Progress = %v", err)
				}
			}
			return nil, e.Progress(strings.Repeat("x", wire.MaxProgress))
		})
	})
	if err := (worker.Execution{}).Progress("in a unit test"); err != nil {
		t.Errorf("Progress of an Execution made by hand = %v", err)
	}
}

// WRK-017: capacity bounds what is held, whatever the server sends.
func TestCapacityIsNeverExceeded(t *testing.T) {
	s := newTLSServer(t)
	var running, most atomic.Int32
	begun, finish := make(chan struct{}), make(chan struct{})
	h := run(t, s, worker.Config{Capacity: 2}, func(context.Context, worker.Execution) (json.RawMessage, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		begun <- struct{}{}
		<-finish
		running.Add(-1)
		return nil, nil
	})
	v, _ := s.welcome()
	if c := read[wire.Credit](t, v.expectCredit()); c.Slots != 2 {
		t.Errorf("credit = %d, want 2", c.Slots)
	}
	for _, a := range []string{"5", "6"} {
		v.assign(offer(a))
		v.start(15e9, 30e9)
		<-begun
	}
	for _, a := range []string{"7", "8"} { // nobody asked for these
		v.assign(offer(a))
		frame := v.expect(wire.TypeReturn)
		m := read[wire.Attempt](t, frame)
		if m.AttemptID != id(a) {
			t.Errorf("returned %s, want %s", m.AttemptID, id(a))
		}
		v.send(wire.TypeReturned, frame.ID, wire.Returned(m))
	}
	finish <- struct{}{}
	v.finish()
	if c := read[wire.Credit](t, v.expectCredit()); c.Slots != 1 {
		t.Errorf("credit after a finish = %d, want 1", c.Slots)
	}
	finish <- struct{}{}
	v.finish()
	h.stop()
	v.drained()
	h.end()
	if most.Load() != 2 {
		t.Errorf("%d handlers ran at one time", most.Load())
	}
}

func TestFloodOfAssignmentsBreaksTheProtocol(t *testing.T) {
	s := newTLSServer(t)
	h := run(t, s, worker.Config{Capacity: 1, DrainTimeout: time.Millisecond, StopTimeout: time.Millisecond}, succeed)
	v, _ := s.welcome()
	for i := range 10 {
		v.assign(offer(fmt.Sprintf("a%d", i)))
	}
	if code := v.closeCode(); code != wire.CloseProtocolError {
		t.Errorf("close code = %d", code)
	}
	if told := reported[*worker.ProtocolError](h); !strings.Contains(told.Rule, "more assignments") {
		t.Errorf("the owner was told %v", told)
	}
	h.stop()
	h.wait() // what had been started stays open
}

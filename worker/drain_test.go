package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// WRK-018.
func TestDrainFinishesWhatRuns(t *testing.T) {
	s := newTLSServer(t)
	finish := make(chan struct{})
	h := run(t, s, worker.Config{}, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
		<-finish
		return json.RawMessage(`"done"`), ctx.Err()
	})
	v, _ := s.welcome()
	v.assign(offer("5"))
	v.start(15e9, 30e9)
	h.stop()
	v.drained()
	// One that was under way is handed back without a start.
	v.assign(offer("6"))
	frame := v.expect(wire.TypeReturn)
	v.send(wire.TypeReturned, frame.ID, wire.Returned{AttemptID: id("6"), Epoch: 3})
	close(finish)
	if f := v.finish(); f.Outcome != wire.OutcomeSucceeded || string(f.Result) != `"done"` {
		t.Errorf("finish = %+v, want the success", f)
	}
	h.end()
	if kinds := v.rest(); len(kinds) > 0 {
		t.Errorf("the worker sent %q while it drained", kinds)
	}
	if code := v.closeCode(); code != 1000 {
		t.Errorf("close code = %d, want a normal closure", code)
	}
}

// A report that waits for its confirmation survives a lost connection, also while
// draining.
func TestDrainReconnectsToDeliverAReport(t *testing.T) {
	s := newTLSServer(t)
	h := run(t, s, worker.Config{}, succeed)
	v, _ := s.welcome()
	v.assign(offer("5"))
	v.start(15e9, 30e9)
	v.expect(wire.TypeFinish)
	h.stop()
	v.expect(wire.TypeDrain)
	v.cut()
	v, _ = s.welcome()
	v.resume(wire.Resumed{Status: wire.ResumeKeep, Running: true, LeaseMS: 15_000, TimeoutMS: 30_000})
	frames := map[string]wire.Envelope{}
	for range 2 {
		frame, _ := v.next()
		frames[frame.Type] = frame
	}
	v.send(wire.TypeDrainOK, frames[wire.TypeDrain].ID, struct{}{})
	v.confirm(frames[wire.TypeFinish], read[wire.Finish](t, frames[wire.TypeFinish]))
	h.end()
	if kinds := v.rest(); len(kinds) > 0 {
		t.Errorf("the worker sent %q, want no credit", kinds)
	}
}

// What the server knows not to have started is handed back.
func TestDrainHandsBackWhatHasNotStarted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{}, nothing(t))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.expect(wire.TypeStart)
		v.cut()
		v, _ = s.welcome()
		synctest.Wait()
		h.stop()
		synctest.Wait()
		v.resume(wire.Resumed{Status: wire.ResumeKeep, LeaseMS: 15_000})
		for range 2 {
			switch frame := v.skipCredit(); frame.Type {
			case wire.TypeDrain:
				v.send(wire.TypeDrainOK, frame.ID, struct{}{})
			case wire.TypeReturn:
				v.send(wire.TypeReturned, frame.ID, read[wire.Returned](t, frame))
			default:
				t.Errorf("the worker sent %s", frame.Type)
			}
		}
		h.end()
		s.close()
	})
}

// A Start without an exact answer may have been committed: it is asked for until
// that is known.
func TestDrainClearsADoubtfulStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{Capacity: 2}, nothing(t))
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.send(wire.TypeError, v.expect(wire.TypeStart).ID, wire.Error{Code: "UNAVAILABLE", Message: "later"})
		synctest.Wait()
		h.stop()
		synctest.Wait()
		// The Start may have been committed in spite of the answer, so it is asked again.
		frames := map[string]wire.Envelope{}
		for range 2 {
			frame := v.skipCredit()
			frames[frame.Type] = frame
		}
		v.send(wire.TypeDrainOK, frames[wire.TypeDrain].ID, struct{}{})
		v.send(wire.TypeError, frames[wire.TypeStart].ID, wire.Error{Code: "STATE_CONFLICT", Message: "no"})
		// Still in doubt: the report says that nothing ran.
		if f := v.finish(); f.Outcome != wire.OutcomeFailed || !f.Retryable {
			t.Errorf("finish = %+v", f)
		}
		h.end()
		s.close()
	})
}

func (v *visit) skipCredit() wire.Envelope {
	v.t.Helper()
	for {
		if frame, open := v.next(); !open || frame.Type != wire.TypeCredit {
			return frame
		}
	}
}

func TestDrainTimeoutCancelsHandlers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		h := run(t, s, worker.Config{DrainTimeout: 20 * time.Second, StopTimeout: 5 * time.Second}, untilCancelled)
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15*time.Second, time.Hour)
		synctest.Wait()
		began := time.Now()
		h.stop()
		v.drained()
		f := v.finish()
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("the handler was cancelled after %v, want 20s", took)
		}
		if f.Outcome != wire.OutcomeUnknown || f.Error != worker.ErrDraining.Error() {
			t.Errorf("finish = %+v", f)
		}
		h.end()
		s.close()
	})
}

func TestDrainReportsHandlersThatIgnoreTheirContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		release := make(chan struct{})
		h := run(t, s, worker.Config{DrainTimeout: 20 * time.Second, StopTimeout: 5 * time.Second}, func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
			if e.AttemptID == id("5") {
				<-release
			}
			return nil, nil
		})
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15*time.Second, time.Hour)
		v.assign(offer("6"))
		v.start(15*time.Second, time.Hour)
		v.expect(wire.TypeFinish) // of 6, never confirmed
		began := time.Now()
		h.stop()
		v.drained()
		err := h.wait()
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("Run took %v to give up, want 25s", took)
		}
		var left *worker.DrainError
		if !errors.As(err, &left) || fmt.Sprint(left.Running) != fmt.Sprint([]string{id("5")}) || fmt.Sprint(left.Unacknowledged) != fmt.Sprint([]string{id("6")}) {
			t.Errorf("Run = %v", err)
		}
		close(release)
		s.close()
	})
}

func TestStuckHandlerIsReportedOnceAndKeepsItsSlot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		release := make(chan struct{})
		h := run(t, s, worker.Config{Capacity: 1, StopTimeout: 7 * time.Second}, func(context.Context, worker.Execution) (json.RawMessage, error) {
			<-release
			return nil, nil
		})
		v, _ := s.welcome()
		v.assign(offer("5"))
		v.start(15*time.Second, 60*time.Second)
		began := time.Now()
		told := reported[*worker.StuckError](h)
		if took := time.Since(began); took != 66*time.Second { // timeout less a second, plus 7 s
			t.Errorf("reported after %v, want 66s", took)
		}
		if told.AttemptID != id("5") || !errors.Is(told, worker.ErrAttemptTimeout) {
			t.Errorf("reported %v", told)
		}
		time.Sleep(time.Hour)
		if len(h.errs) != 1 {
			t.Errorf("reported %v, want one error", h.errs)
		}
		for v.Pending() > 0 {
			if frame, _ := v.next(); frame.Type == wire.TypeCredit && read[wire.Credit](t, frame).Slots != 1 {
				t.Errorf("credit was given for the slot: %s", frame.Data)
			}
		}
		close(release)
		v.finish()
		h.stop()
		v.drained()
		h.end()
		s.close()
	})
}

func TestRunEndsAtOnceWithoutAConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		s.refuse(503, nil)
		h := run(t, s, worker.Config{}, succeed)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		h.end()
		if took := time.Since(began); took != 0 {
			t.Errorf("Run took %v to end", took)
		}
		s.close()
	})
}

func TestRunIsForOnce(t *testing.T) {
	s := newTLSServer(t)
	w, err := worker.NewWorker(s.url(), "t", worker.Config{
		Queues: []string{queueID}, Handlers: map[worker.Handler]worker.HandlerFunc{update: succeed}, Network: s.network(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Errorf("Run = %v", err)
	}
	if err := w.Run(ctx); err == nil {
		t.Error("a second Run is allowed")
	}
}

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// quiet is a worker with one handler for a workertest.Server.
func quiet(f worker.HandlerFunc) worker.Config {
	return worker.Config{
		Handlers: map[worker.Handler]worker.HandlerFunc{update: f}, MinReconnect: time.Millisecond,
		Log: slog.New(slog.DiscardHandler), OnError: func(error) {},
	}
}

var scan = worker.Handler{Name: "object.scan", Version: "v2"}

// gauge counts how many handlers run, and remembers the most.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) until(release chan struct{}) worker.HandlerFunc {
	return func(context.Context, worker.Execution) (json.RawMessage, error) {
		defer g.now.Add(-1)
		n := g.now.Add(1)
		for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
		}
		<-release
		return nil, nil
	}
}

// WRK-017: a handler with a capacity of its own has never more, has them when all others
// are busy, and takes none from them.
func TestHandlerCapacityIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
		var updates, scans gauge
		release := make(chan struct{})
		cfg := quiet(updates.until(release))
		cfg.Handlers[scan] = scans.until(release)
		cfg.Capacity, cfg.HandlerCapacity = 3, map[worker.Handler]int{scan: 2}
		drain := s.Work(cfg)
		var ids []string
		for range 10 {
			ids = append(ids, s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2"}))
		}
		for range 10 {
			ids = append(ids, s.Submit(orbit.SubmitTaskRequest{Handler: update.Name}))
		}
		synctest.Wait()
		if updates.now.Load() != 3 || scans.now.Load() != 2 {
			t.Errorf("%d updates and %d scans run, want 3 and 2", updates.now.Load(), scans.now.Load())
		}
		close(release)
		for _, id := range ids {
			s.Want(id, orbit.StateSucceeded)
		}
		drain()
		s.WantDrained()
		if updates.most.Load() != 3 || scans.most.Load() != 2 {
			t.Errorf("%d updates and %d scans ran at once, want 3 and 2", updates.most.Load(), scans.most.Load())
		}
	})
}

// Each capacity has a process identity, and a worker may have nothing but such handlers.
func TestHandlerCapacityHasAnIdentity(t *testing.T) {
	cfg := quiet(succeed)
	cfg.Queues, cfg.Handlers[scan] = []string{queueID}, succeed
	for want, capacity := range map[int]map[worker.Handler]int{1: nil, 2: {scan: 1, update: 1}} {
		cfg.HandlerCapacity = capacity
		w, err := worker.NewWorker("https://orbit.example", "t", cfg)
		if err != nil {
			t.Fatal(err)
		}
		ids := w.ProcessIDs()
		slices.Sort(ids)
		if len(slices.Compact(ids)) != want || !slices.Contains(ids, w.ProcessID()) {
			t.Errorf("identities %q with %v, want %d", ids, capacity, want)
		}
	}
	for rule, capacity := range map[string]map[worker.Handler]int{
		`HandlerCapacity: "object.scan" "v1" must be one of Handlers`: {{Name: "object.scan", Version: "v1"}: 1},
		`HandlerCapacity: "object.scan": 0 must be 1 to 1000`:         {scan: 0},
		`HandlerCapacity: "object.scan": 1001 must be 1 to 1000`:      {scan: 1001},
	} {
		cfg.HandlerCapacity = capacity
		if _, err := worker.NewWorker("https://orbit.example", "t", cfg); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("NewWorker = %v, want %s", err, rule)
		}
	}
}

// WRK-018: what is not drained is told in one error, wherever it ran.
func TestDrainErrorNamesAttemptsOfEveryHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
		release := make(chan struct{})
		var g gauge
		cfg := quiet(g.until(release))
		cfg.Handlers[scan], cfg.HandlerCapacity = g.until(release), map[worker.Handler]int{scan: 1}
		cfg.Queues, cfg.Network = []string{s.QueueID}, s.Network()
		w, err := worker.NewWorker(s.URL(), s.Token, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		a := s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2"})
		b := s.Submit(orbit.SubmitTaskRequest{Handler: update.Name})
		synctest.Wait()
		stop()
		var drain *worker.DrainError
		want := []string{s.Task(a).Attempts[0].ID, s.Task(b).Attempts[0].ID}
		slices.Sort(want)
		if err := <-ended; !errors.As(err, &drain) || !slices.Equal(drain.Running, want) {
			t.Errorf("Run = %v, want the attempts %q", err, want)
		}
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "before") {
			t.Errorf("second Run = %v", err)
		}
		close(release)
		synctest.Wait()
	})
}

// A registration that is refused ends the whole worker, whichever part it was.
func TestRefusedPartEndsTheOthers(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	s.Inject(workertest.Fault{Message: workertest.MessageHello, Refuse: orbit.CodeInvalidArgument})
	cfg := quiet(succeed)
	cfg.Handlers[scan], cfg.HandlerCapacity = succeed, map[worker.Handler]int{scan: 1}
	cfg.Queues, cfg.Network = []string{s.QueueID}, s.Network()
	w, err := worker.NewWorker(s.URL(), s.Token, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var refused *worker.RefusedError
	if err := w.Run(t.Context()); !errors.As(err, &refused) || refused.Code != orbit.CodeInvalidArgument {
		t.Errorf("Run = %v, want the refusal", err)
	}
}

// Slots show what each attempt is at, and a handler that ignores its context.
func TestSlotsShowWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
		release := make(chan struct{})
		var g gauge
		cfg := quiet(g.until(release))
		cfg.Handlers[scan], cfg.HandlerCapacity = g.until(release), map[worker.Handler]int{scan: 1}
		cfg.Queues, cfg.Network = []string{s.QueueID}, s.Network()
		w, err := worker.NewWorker(s.URL(), s.Token, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		first := s.Submit(orbit.SubmitTaskRequest{Handler: update.Name})
		synctest.Wait()
		time.Sleep(time.Second)
		second := s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2", Retry: orbit.RetryPolicy{AttemptTimeoutMS: 60_000}})
		synctest.Wait()
		slots := w.Slots()
		if len(slots) != 2 || slots[0].TaskID != first || slots[0].Handler != update || slots[1].Handler != scan ||
			slots[1].Since.Sub(slots[0].Since) != time.Second {
			t.Fatalf("slots are %+v", slots)
		}
		for _, slot := range slots {
			if slot.Phase != worker.SlotRunning || slot.Cause != nil {
				t.Errorf("slot is %+v", slot)
			}
		}
		time.Sleep(30 * time.Second) // the first attempt's time is over, its handler goes on
		slots = w.Slots()
		if !errors.Is(slots[0].Cause, worker.ErrAttemptTimeout) || slots[0].Phase != worker.SlotRunning || slots[1].Cause != nil {
			t.Errorf("slots are %+v", slots)
		}
		s.Cancel(second, "customer left")
		synctest.Wait()
		if slot := w.Slots()[1]; !errors.Is(slot.Cause, worker.ErrCancelRequested) || slot.Phase != worker.SlotRunning {
			t.Errorf("slot is %+v", slot)
		}
		s.Inject(workertest.Fault{Message: workertest.MessageFinish, Silent: true, Times: 2})
		close(release)
		synctest.Wait()
		for _, slot := range w.Slots() {
			if slot.Phase != worker.SlotReporting {
				t.Errorf("slot is %+v, want reporting", slot)
			}
		}
		stop()
		if err := <-ended; err != nil || len(w.Slots()) != 0 {
			t.Errorf("Run = %v, slots %+v", err, w.Slots())
		}
	})
}

// WRK-026: Execute is what an automatic worker does with one handler.
func TestExecuteReportsLikeAWorker(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worker.ErrCancelRequested)
	r, err := worker.Execute(ctx, answers(nil, worker.Cancelled(errors.New("stopped"))), worker.Execution{})
	if err != nil || r.Outcome != orbit.OutcomeCancelled || r.Error != "stopped" || r.Receipt == "" {
		t.Errorf("report is %+v, %v", r, err)
	}
	var panicked *worker.PanicError
	r, err = worker.Execute(t.Context(), func(context.Context, worker.Execution) (json.RawMessage, error) { panic(1) }, worker.Execution{})
	if !errors.As(err, &panicked) || len(panicked.Stack) == 0 || r.Outcome != orbit.OutcomeUnknown {
		t.Errorf("report is %+v, %v", r, err)
	}
}

// WRK-017: the next assignment may be here before the confirmation of a report has reached
// its attempt. It is taken, not handed back, and never runs beside more than the capacity.
func TestAssignmentBesideAReportIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		var g gauge
		release := make(chan struct{})
		close(release)
		h := run(t, s, worker.Config{Capacity: 1}, g.until(release))
		v, _ := s.welcome()
		v.assign(keyless("5"))
		v.start(15*time.Second, time.Minute)
		report := v.expect(wire.TypeFinish)
		v.assign(keyless("6")) // overtakes the confirmation
		if a := v.start(15*time.Second, time.Minute); a.AttemptID != id("6") {
			t.Errorf("started %s", a.AttemptID)
		}
		v.confirm(report, read[wire.Finish](t, report))
		v.finish()
		h.stop()
		v.drained()
		h.end()
		s.close()
		if g.most.Load() != 1 {
			t.Errorf("%d handlers ran at once, want 1", g.most.Load())
		}
	})
}

// WRK-017: a worker that is always busy hands nothing back.
func TestBusyWorkerHandsNothingBack(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	var g gauge
	release := make(chan struct{})
	close(release)
	cfg := quiet(g.until(release))
	cfg.Capacity = 4
	drain := s.Work(cfg)
	var ids []string
	for range 500 {
		ids = append(ids, s.Submit(orbit.SubmitTaskRequest{Handler: update.Name}))
	}
	for _, id := range ids {
		if got := s.Want(id, orbit.StateSucceeded); len(got.Attempts) != 1 {
			t.Errorf("%v, want one attempt", got)
		}
	}
	drain()
	if g.most.Load() > 4 {
		t.Errorf("%d handlers ran at once, want at most 4", g.most.Load())
	}
}

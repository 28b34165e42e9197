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
	"github.com/orbitkit/orbit/internal/bubble"
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

// WRK-017: a handler with a capacity of its own never has more, though it could fill the
// worker, and the other handlers have the rest.
func TestHandlerCapacityBoundsAHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
		var updates, scans gauge
		release := make(chan struct{})
		cfg := quiet(updates.until(release))
		cfg.Handlers[scan] = scans.until(release)
		cfg.Capacity, cfg.HandlerCapacity = 5, map[worker.Handler]int{scan: 2}
		drain := s.Work(cfg)
		var ids []string
		for range 10 {
			ids = append(ids, s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2"}))
		}
		synctest.Wait()
		if scans.now.Load() != 2 {
			t.Errorf("%d scans run, want 2", scans.now.Load())
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
			if got := s.Want(id, orbit.StateSucceeded); len(got.Attempts) != 1 {
				t.Errorf("%v, want one attempt", got)
			}
		}
		drain()
		s.WantDrained()
		if scans.most.Load() != 2 || updates.most.Load() > 5 {
			t.Errorf("%d updates and %d scans ran at once, want at most 5 and 2", updates.most.Load(), scans.most.Load())
		}
	})
}

// WRK-017: what a busy handler of one worker cannot take does not wait there: another
// worker gets it.
func TestBusyHandlersTasksGoToAnotherWorker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
		work := func(capacity map[worker.Handler]int) (g *gauge, release chan struct{}) {
			g, release = new(gauge), make(chan struct{})
			cfg := quiet(succeed)
			cfg.Handlers[scan], cfg.Capacity, cfg.HandlerCapacity = g.until(release), 4, capacity
			drain := s.Work(cfg)
			t.Cleanup(func() { drain() })
			return g, release
		}
		first, releaseFirst := work(map[worker.Handler]int{scan: 1})
		submit := func() string { return s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2"}) }
		ids := []string{submit()}
		synctest.Wait()
		ids = append(ids, submit(), submit())
		synctest.Wait()
		if first.now.Load() != 1 {
			t.Errorf("%d scans run in the first worker, want 1", first.now.Load())
		}
		second, releaseSecond := work(nil)
		synctest.Wait()
		if second.now.Load() != 2 {
			t.Errorf("%d scans run in the second worker, want the 2 that wait", second.now.Load())
		}
		close(releaseFirst)
		close(releaseSecond)
		for _, id := range ids {
			if got := s.Want(id, orbit.StateSucceeded); len(got.Attempts) != 1 {
				t.Errorf("%v, want one attempt", got)
			}
		}
	})
}

func TestHandlerCapacityIsHeldToItsRules(t *testing.T) {
	cfg := quiet(succeed)
	cfg.Queues, cfg.Handlers[scan] = []string{queueID}, succeed
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

// A limit that no server would take is refused before it is sent.
func TestCreditWithinIsHeldToTheRegistration(t *testing.T) { // WRK-017
	s := workertest.NewServer(t, workertest.ServerConfig{})
	r := worker.Registration{ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{scan}, Queues: []string{s.QueueID}, Capacity: 2}
	c, err := worker.Dial(t.Context(), s.URL(), s.Token, r, s.Network())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for rule, limit := range map[string]worker.CreditLimit{
		"must name a queue or a handler":               {Slots: 1},
		`queue "` + queueID + `" is not registered`:    {Queue: queueID, Slots: 1},
		`handler "object.scan" "v1" is not registered`: {Handler: worker.Handler{Name: scan.Name, Version: "v1"}, Slots: 1},
		`handler "" "v2" is not registered`:            {Queue: s.QueueID, Handler: worker.Handler{Version: "v2"}, Slots: 1},
		"-1 slots must be 0 to 1000":                   {Handler: scan, Slots: -1},
	} {
		if err := c.CreditWithin(t.Context(), 1, 0, []worker.CreditLimit{limit}); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("CreditWithin(%+v) = %v, want %s", limit, err, rule)
		}
	}
	if err := c.CreditWithin(t.Context(), 1, 0, make([]worker.CreditLimit, 257)); err == nil {
		t.Error("257 limits were sent")
	}
	s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2"})
	good := worker.CreditLimit{Queue: s.QueueID, Handler: worker.Handler{Name: scan.Name}, Slots: 1}
	if err := c.CreditWithin(t.Context(), 2, 0, []worker.CreditLimit{good}); err != nil {
		t.Fatal(err)
	}
	if e, err := c.Next(t.Context()); err != nil {
		t.Errorf("Next = %v, %v, want an assignment", e, err)
	}
}

// WRK-018: what is not drained is told in one error, wherever it ran.
func TestDrainErrorNamesAttemptsOfEveryHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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

// Slots show what each attempt is at, and a handler that ignores its context.
func TestSlotsShowWhatIsHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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
	bubble.Test(t, func(t *testing.T) {
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

// WRK-017: a worker that is always busy hands nothing back, whatever is on its way when it
// gives credit anew.
func TestBusyWorkerHandsNothingBack(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	var g, scans gauge
	release := make(chan struct{})
	close(release)
	cfg := quiet(g.until(release))
	cfg.Handlers[scan] = scans.until(release)
	cfg.Capacity, cfg.HandlerCapacity = 4, map[worker.Handler]int{scan: 1}
	drain := s.Work(cfg)
	var ids []string
	for range 250 {
		ids = append(ids, s.Submit(orbit.SubmitTaskRequest{Handler: update.Name}))
		ids = append(ids, s.Submit(orbit.SubmitTaskRequest{Handler: scan.Name, HandlerVersion: "v2"}))
	}
	for _, id := range ids {
		if got := s.Want(id, orbit.StateSucceeded); len(got.Attempts) != 1 {
			t.Errorf("%v, want one attempt", got)
		}
	}
	drain()
	if g.most.Load() > 4 || scans.most.Load() > 1 {
		t.Errorf("%d updates and %d scans ran at once, want at most 4 and 1", g.most.Load(), scans.most.Load())
	}
}

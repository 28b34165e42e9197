package workertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

var update = worker.Handler{Name: "object.update", Version: "v1"}

// config is a quiet worker with one handler.
func config(f worker.HandlerFunc) worker.Config {
	return worker.Config{
		Handlers: map[worker.Handler]worker.HandlerFunc{update: f}, MinReconnect: time.Millisecond,
		Log: slog.New(slog.DiscardHandler), OnError: func(error) {},
	}
}

func request() orbit.SubmitTaskRequest { return orbit.SubmitTaskRequest{Handler: update.Name} }

func repeatable() orbit.SubmitTaskRequest {
	r := request()
	r.RecoverySafety, r.Retry.MaxAttempts = orbit.RecoveryIdempotent, 5
	return r
}

// What handlers answer decides what becomes of tasks.
func TestServerRunsTasksToTheirEnd(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	no := errors.New("no")
	drain := s.Work(config(func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		var answer string
		if err := json.Unmarshal(e.Task.Payload, &answer); err != nil {
			return nil, worker.Failed(err)
		}
		switch {
		case answer == "retry" && e.Task.AttemptNumber < 3:
			return nil, worker.Retryable(no)
		case answer == "fail":
			return nil, worker.Failed(no)
		case answer == "plain", answer == "unknown" && e.Task.AttemptNumber == 1:
			return nil, no
		}
		return e.Task.Payload, nil
	}))
	for answer, want := range map[string]string{
		"succeed": "SUCCEEDED after 1 attempts [SUCCEEDED]",
		"retry":   "SUCCEEDED after 3 attempts [FAILED (no) FAILED (no) SUCCEEDED]",
		"fail":    "FAILED after 1 attempts [FAILED (no)]",
		"plain":   "NEEDS_REVIEW after 5 attempts [UNKNOWN (no) UNKNOWN (no) UNKNOWN (no) UNKNOWN (no) UNKNOWN (no)]",
		"unknown": "SUCCEEDED after 2 attempts [UNKNOWN (no) SUCCEEDED]",
	} {
		r := repeatable()
		r.Payload, _ = json.Marshal(answer)
		if got := s.Await(s.Submit(r)); got.String() != want {
			t.Errorf("%s: %v, want %s", answer, got, want)
		}
	}
	r := request()
	r.Payload = json.RawMessage(`"plain"`)
	s.Want(s.Submit(r), orbit.StateNeedsReview)
	drain()
	s.WantDrained()
}

// The payload travels byte for byte.
func TestServerHandsThePayloadOnByteForByte(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	s.Work(config(func(_ context.Context, e worker.Execution) (json.RawMessage, error) { return e.Task.Payload, nil }))
	r := request()
	r.Payload = json.RawMessage(`{"a" : "<&>", "n":1.50e+1,"big":9007199254740993}`)
	if got := s.Want(s.Submit(r), orbit.StateSucceeded); string(got.Attempts[0].Result) != string(r.Payload) {
		t.Errorf("result is %s", got.Attempts[0].Result)
	}
}

// WRK-017: one attempt at a time for a resource key, with growing tokens, and never more than
// the capacity in all.
func TestServerKeepsToKeysAndCapacity(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	var keyed, all, most atomic.Int32
	var last atomic.Uint64
	pair := make(chan struct{}) // two without a key run at one time
	cfg := config(func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
		defer all.Add(-1)
		if n := all.Add(1); n > most.Load() {
			most.Store(n)
		}
		if e.Task.ConcurrencyKey != "" {
			defer keyed.Add(-1)
			if n := keyed.Add(1); n != 1 {
				t.Errorf("%d attempts hold the key", n)
			}
			if before := last.Swap(e.ConcurrencyToken); e.ConcurrencyToken <= before {
				t.Errorf("token %d after %d", e.ConcurrencyToken, before)
			}
			return nil, nil
		}
		select {
		case pair <- struct{}{}:
		case <-pair:
		}
		return nil, nil
	})
	cfg.Capacity = 3
	s.Work(cfg)
	var ids []string
	for i := range 60 {
		r := request()
		if i%2 == 0 {
			r.ConcurrencyKey = "object/42"
		}
		ids = append(ids, s.Submit(r))
	}
	for _, id := range ids {
		s.Want(id, orbit.StateSucceeded)
	}
	if n := most.Load(); n < 2 || n > 3 || last.Load() < 30 { // what was handed back had a token too
		t.Errorf("%d at once, last token %d", n, last.Load())
	}
}

// WRK-012: answers are lost, and each attempt still runs once.
func TestServerLosesAnswers(t *testing.T) {
	for _, message := range []string{workertest.MessageStart, workertest.MessageFinish} {
		for what, f := range map[string]workertest.Fault{
			"Lose": {Message: message, Lose: true}, "Cut": {Message: message, Cut: true, Times: 2},
			"Unavailable": {Message: message, Refuse: orbit.CodeUnavailable, Times: 2}, "Delay": {Message: message, Delay: 50 * time.Millisecond},
		} {
			t.Run(message+what, func(t *testing.T) {
				s := workertest.NewServer(t, workertest.ServerConfig{})
				s.Inject(f)
				var calls atomic.Int32
				drain := s.Work(config(func(context.Context, worker.Execution) (json.RawMessage, error) {
					calls.Add(1)
					return nil, nil
				}))
				got := s.Want(s.Submit(request()), orbit.StateSucceeded)
				drain()
				s.WantDrained()
				late := len(s.Task(got.ID).Attempts[0].Late)
				if calls.Load() != 1 || len(got.Attempts) != 1 || late != 0 {
					t.Errorf("%d calls of the handler, %d late reports: %v", calls.Load(), late, got)
				}
			})
		}
	}
}

// WRK-025: a lease that is not renewed ends the attempt, the handler's
// context and nothing else; what it reports then is kept beside.
func TestServerEndsLeases(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true})
		s.Inject(workertest.Fault{Message: workertest.MessageRenew, Refuse: orbit.CodeUnavailable, Times: -1})
		causes := make(chan error, 1)
		drain := s.Work(config(func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
			if e.Task.AttemptNumber == 1 {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				time.Sleep(5 * time.Second)
			}
			return nil, nil
		}))
		began := time.Now()
		id := s.Submit(repeatable())
		s.Want(id, orbit.StateSucceeded)
		if took := time.Since(began); took < 15*time.Second || took > 16*time.Second {
			t.Errorf("ended after %v, want the lease of 15s", took)
		}
		if cause := <-causes; !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("handler ended with %v", cause)
		}
		drain()
		got := s.Task(id)
		if got.String() != "SUCCEEDED after 2 attempts [UNKNOWN SUCCEEDED]" || len(got.Attempts[0].Late) != 1 || got.EffectUncertain {
			t.Errorf("%v, late %q", got, got.Attempts[0].Late)
		}
	})
}

// Renewals come at a third of the lease and carry progress.
func TestServerShowsRenewalsAndProgress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := workertest.NewServer(t, workertest.ServerConfig{InMemory: true, Lease: 30 * time.Second})
		drain := s.Work(config(func(_ context.Context, e worker.Execution) (json.RawMessage, error) {
			e.Progress("at work")
			time.Sleep(65 * time.Second)
			return nil, nil
		}))
		r := request()
		r.Retry.AttemptTimeoutMS = 120_000
		got := s.Want(s.Submit(r), orbit.StateSucceeded).Attempts[0]
		if got.Renewals != 6 || len(got.Progress) != 1 || got.Progress[0] != "at work" {
			t.Errorf("%d renewals with progress %q, want 6 with one", got.Renewals, got.Progress)
		}
		drain()
	})
}

// CAN-023: a cancel reaches tasks in each state.
func TestServerCancels(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	waiting := s.Submit(request())
	s.Cancel(waiting, "")
	s.Want(waiting, orbit.StateCancelled)
	started := make(chan struct{})
	drain := s.Work(config(func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		close(started)
		return untilEnded(ctx, e)
	}))
	running := s.Submit(request())
	<-started
	s.Cancel(running, "customer left")
	if got := s.Want(running, orbit.StateCancelled); !got.CancelRequested || got.Attempts[0].Error != "stopped" {
		t.Errorf("%+v", got)
	}
	drain()
}

// WRK-012: dropped connections, a draining node and a refused credential are no end.
func TestServerDropsAndRefusesConnections(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	release := make(chan struct{})
	cfg := config(func(context.Context, worker.Execution) (json.RawMessage, error) { <-release; return nil, nil })
	cfg.MaxReconnect = 5 * time.Millisecond
	drain := s.Work(cfg)
	id := s.Submit(request())
	s.AwaitRunning(id)
	s.Refuse(http.StatusServiceUnavailable)
	before := s.Connections()
	s.Drop()
	for s.Connections() < before+3 {
		time.Sleep(time.Millisecond)
	}
	s.Refuse(0)
	s.AwaitUntil(id, func(t workertest.Task) bool { return t.Attempts[0].Resumes > 0 })
	s.Drain(0)
	s.AwaitUntil(id, func(t workertest.Task) bool { return t.Attempts[0].Resumes > 1 })
	close(release)
	if got := s.Want(id, orbit.StateSucceeded); len(got.Attempts) != 1 {
		t.Errorf("%v", got)
	}
	drain()
	s.WantDrained()
}

// An attempt that is expired by hand is answered precisely, and replaced.
func TestServerExpiresOnDemand(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{Lease: 300 * time.Millisecond})
	drain := s.Work(config(func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		if e.Task.AttemptNumber == 1 {
			<-ctx.Done()
			return nil, worker.Unknown(context.Cause(ctx))
		}
		return nil, nil
	}))
	id := s.Submit(repeatable())
	s.AwaitRunning(id)
	s.Expire(id)
	s.Want(id, orbit.StateSucceeded)
	got := s.AwaitUntil(id, func(t workertest.Task) bool { return len(t.Attempts[0].Late) > 0 })
	if got.String() != "SUCCEEDED after 2 attempts [UNKNOWN SUCCEEDED]" {
		t.Errorf("%v", got)
	}
	drain()
}

// Registration is fixed for a process, the flag decides about keyed tasks.
func TestServerHoldsProcessesToTheirRegistration(t *testing.T) {
	s := workertest.NewServer(t, workertest.ServerConfig{})
	r := worker.Registration{ProcessID: worker.NewProcessID(), Handlers: []worker.Handler{update}, Queues: []string{s.QueueID}, Capacity: 2}
	c, err := worker.Dial(t.Context(), s.URL(), s.Token, r, s.Network())
	if err != nil {
		t.Fatal(err)
	}
	keyed, plain := request(), request()
	keyed.ConcurrencyKey = "object/42"
	left := s.Submit(keyed)
	taken := s.Submit(plain)
	if n := len(s.Task(taken).Attempts); n != 0 {
		t.Errorf("%d attempts without credit", n)
	}
	if err := c.Credit(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	e, err := c.Next(t.Context())
	if a, ok := e.(*worker.Assignment); err != nil || !ok || a.Task.ID != taken {
		t.Errorf("assigned %+v, %v", e, err)
	}
	if n := len(s.Task(left).Attempts); n != 0 {
		t.Errorf("the keyed task has %d attempts", n)
	}
	again, err := worker.Dial(t.Context(), s.URL(), s.Token, r, s.Network())
	if err != nil || len(again.Session().Attempts) != 1 {
		t.Errorf("the same registration again: %v", err)
	}
	<-c.Done() // replaced
	changed := r
	changed.ConcurrencyKeys = true
	for want, r := range map[string]worker.Registration{
		orbit.CodeStateConflict: changed,
		orbit.CodeNotFound:      {ProcessID: worker.NewProcessID(), Handlers: r.Handlers, Queues: []string{worker.NewProcessID()}, Capacity: 1},
	} {
		var refused *worker.RefusedError
		if _, err := worker.Dial(t.Context(), s.URL(), s.Token, r, s.Network()); !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("Dial = %v, want %s", err, want)
		}
	}
	var handshake *worker.HandshakeError
	if _, err := worker.Dial(t.Context(), s.URL(), "wrong", r, s.Network()); !errors.As(err, &handshake) || handshake.Status != 401 {
		t.Errorf("Dial with a wrong token = %v", err)
	}
	again.Close()
	c.Close()
}

// A worker that the server does not take fails the test at once, not after a long wait.
func TestServerTellsThatNobodyWorks(t *testing.T) {
	got := failing(func(t workertest.TB) {
		s := workertest.NewServer(t, workertest.ServerConfig{})
		cfg := config(answers(nil, nil))
		cfg.Queues = []string{worker.NewProcessID()}
		s.Work(cfg)
		s.Await(s.Submit(request()))
	})
	if !strings.Contains(got, "nobody works on task") || !strings.Contains(got, "worker ended with") || !strings.Contains(got, "does not exist") {
		t.Errorf("failed with %q", got)
	}
}

// The helpers fail the test when they should.
func TestServerFailsTheTest(t *testing.T) {
	for want, f := range map[string]func(t workertest.TB, s *workertest.Server){
		"this fault has never happened": func(_ workertest.TB, s *workertest.Server) {
			s.Inject(workertest.Fault{Message: workertest.MessageFinish, Lose: true})
		},
		"one of Cut, Refuse, Lose, Silent and Delay must be set": func(_ workertest.TB, s *workertest.Server) {
			s.Inject(workertest.Fault{Message: workertest.MessageFinish, Lose: true, Cut: true})
		},
		`"task.done" must be one of the Message constants`: func(_ workertest.TB, s *workertest.Server) {
			s.Inject(workertest.Fault{Message: "task.done", Lose: true})
		},
		"StartDeadlineAt: must not be set": func(_ workertest.TB, s *workertest.Server) {
			at := time.Now().Truncate(time.Second)
			s.Submit(orbit.SubmitTaskRequest{Handler: "h", AvailableAt: &at})
		},
		"no worker has connected": func(_ workertest.TB, s *workertest.Server) { s.WantDrained() },
		"there is no task":        func(_ workertest.TB, s *workertest.Server) { s.Cancel("x", "") },
		"handler: must":           func(_ workertest.TB, s *workertest.Server) { s.Submit(orbit.SubmitTaskRequest{}) },
		"was not made by NewQueue": func(_ workertest.TB, s *workertest.Server) {
			s.Submit(orbit.SubmitTaskRequest{Handler: "h", QueueID: worker.NewProcessID()})
		},
		"want FAILED": func(_ workertest.TB, s *workertest.Server) {
			s.Work(config(answers(nil, nil)))
			s.Want(s.Submit(request()), orbit.StateFailed)
		},
		"has no live attempt": func(_ workertest.TB, s *workertest.Server) { s.Expire(s.Submit(request())) },
		"has not drained": func(t workertest.TB, s *workertest.Server) {
			s.Work(config(untilEnded))
			id := s.Submit(request())
			s.AwaitRunning(id)
			s.WantDrained()
			s.Cancel(id, "")
			s.Await(id)
		},
		"worker: Handlers": func(_ workertest.TB, s *workertest.Server) { s.Work(worker.Config{}) },
	} {
		got := failing(func(t workertest.TB) { f(t, workertest.NewServer(t, workertest.ServerConfig{})) })
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("failed with %q, want %q", got, want)
		}
	}
}

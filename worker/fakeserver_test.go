package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
	"github.com/orbitkit/orbit/worker/workertest"
)

// fakeServer speaks the server's half of the protocol, word by word, as each test
// tells it: a workertest.Listener with words for what our tests say.
type fakeServer struct {
	*workertest.Listener
	t        *testing.T
	inMemory bool
}

// visit is one connection of a worker.
type visit struct {
	*workertest.Conn
	s *fakeServer
	t *testing.T
}

func newTLSServer(t *testing.T) *fakeServer { return newServer(t, workertest.ListenerConfig{}) }

// newPipeServer is for tests inside a bubble.
func newPipeServer(t *testing.T) *fakeServer {
	return newServer(t, workertest.ListenerConfig{InMemory: true})
}

// newDeafServer is one inside a bubble that does not answer pings.
func newDeafServer(t *testing.T) *fakeServer {
	return newServer(t, workertest.ListenerConfig{InMemory: true, IgnorePings: true})
}

func newServer(t *testing.T, cfg workertest.ListenerConfig) *fakeServer {
	return &fakeServer{Listener: workertest.Listen(t, cfg), t: t, inMemory: cfg.InMemory}
}

// patience is how long a test waits for something that must happen. Inside synctest
// time costs nothing.
func (s *fakeServer) patience() <-chan time.Time {
	if s.inMemory {
		return time.After(24 * time.Hour)
	}
	return time.After(30 * time.Second)
}

func (s *fakeServer) close() { s.Close() }

func (s *fakeServer) url() string { return s.URL() }

func (s *fakeServer) network() worker.Network { return s.Network() }

func (s *fakeServer) refuse(status int, header http.Header) { s.Refuse(status, header) }

func (s *fakeServer) count() int { return s.Calls() }

// renew answers renewals by itself.
func (v *visit) renew(leaseMS uint64) func(wire.Envelope) bool {
	f := v.RenewFor(time.Duration(leaseMS) * time.Millisecond)
	return func(frame wire.Envelope) bool { return f(workertest.Message(frame)) }
}

// answering replaces what is answered without the test.
func (v *visit) answering(f func(wire.Envelope) bool) {
	if f == nil {
		v.Answer(nil)
		return
	}
	v.Answer(func(m workertest.Message) bool { return f(wire.Envelope(m)) })
}

func (v *visit) send(kind, ref string, data any) { v.Send(kind, ref, data) }

func (v *visit) sendText(text string) { v.SendText(text) }

func (v *visit) ping() { v.Ping() }

func (v *visit) cut() { v.Cut() }

func (s *fakeServer) visit() *visit {
	s.t.Helper()
	return &visit{Conn: s.Accept(), s: s, t: s.t}
}

// welcome waits for a connection and accepts its registration.
func (s *fakeServer) welcome(attempts ...wire.Held) (*visit, wire.Hello) {
	s.t.Helper()
	v := s.visit()
	frame := v.expect(wire.TypeHello)
	v.send(wire.TypeHelloOK, frame.ID, wire.HelloOK{
		NodeID: "node-a", LeaseMS: 15_000, PingMS: 20_000, MaxFrame: wire.MaxFrame, Attempts: attempts, ServerTime: "now",
	})
	return v, read[wire.Hello](s.t, frame)
}

// next returns the next frame.
func (v *visit) next() (wire.Envelope, bool) {
	v.t.Helper()
	m, open := v.Next()
	return wire.Envelope(m), open
}

// expect returns the next frame of this kind; only credit may come before it.
func (v *visit) expect(kind string) wire.Envelope {
	v.t.Helper()
	return wire.Envelope(v.Expect(kind))
}

// rest returns what comes until the connection ends.
func (v *visit) rest() (kinds []string) {
	v.t.Helper()
	for {
		frame, open := v.next()
		if !open {
			return kinds
		}
		kinds = append(kinds, frame.Type)
	}
}

func (v *visit) closeCode() int { v.t.Helper(); return v.CloseCode() }

func (v *visit) assign(a wire.Assign) { v.send(wire.TypeAssign, "", a) }

// start confirms the next Start.
func (v *visit) start(lease, timeout time.Duration) wire.Attempt {
	v.t.Helper()
	frame := v.expect(wire.TypeStart)
	a := read[wire.Attempt](v.t, frame)
	v.send(wire.TypeStarted, frame.ID, started(a, lease, timeout))
	return a
}

func started(a wire.Attempt, lease, timeout time.Duration) wire.Started {
	return wire.Started{AttemptID: a.AttemptID, Epoch: a.Epoch, LeaseMS: ms(lease), TimeoutMS: ms(timeout)}
}

// finish confirms the next Finish.
func (v *visit) finish() wire.Finish {
	v.t.Helper()
	frame := v.expect(wire.TypeFinish)
	f := read[wire.Finish](v.t, frame)
	v.confirm(frame, f)
	return f
}

func (v *visit) confirm(frame wire.Envelope, f wire.Finish) {
	v.send(wire.TypeFinished, frame.ID, wire.Finished{AttemptID: f.AttemptID, Epoch: f.Epoch, Status: wire.FinishRecorded})
}

// resume answers the next Resume.
func (v *visit) resume(r wire.Resumed) wire.Attempt {
	v.t.Helper()
	frame := v.expect(wire.TypeResume)
	a := read[wire.Attempt](v.t, frame)
	r.AttemptID, r.Epoch = a.AttemptID, a.Epoch
	v.send(wire.TypeResumed, frame.ID, r)
	return a
}

// drained confirms the drain and lets the worker close.
func (v *visit) drained() {
	v.t.Helper()
	frame := v.expect(wire.TypeDrain)
	v.send(wire.TypeDrainOK, frame.ID, struct{}{})
}

func read[M any](t *testing.T, frame wire.Envelope) (m M) {
	t.Helper()
	if err := workertest.Message(frame).Decode(&m); err != nil {
		t.Error(err)
	}
	return m
}

func ms(d time.Duration) uint64 { return uint64(d.Milliseconds()) }

// id makes an id that is easy to tell from others.
func id(suffix string) string { return strings.Repeat("0", 32-len(suffix)) + suffix }

var (
	queueID = id("9")
	update  = worker.Handler{Name: "object.update", Version: "v1"}
)

// offer is a legal keyed assignment.
func offer(attempt string) wire.Assign {
	a := keyless(attempt)
	a.Task.ConcurrencyKey, a.ConcurrencyToken = "object/42", "7"
	return a
}

func keyless(attempt string) wire.Assign {
	return wire.Assign{
		AttemptID: id(attempt), Epoch: 3, LeaseMS: 15_000, OperationRoot: id("1a"),
		Task: wire.Task{
			ID: id("1" + attempt), NamespaceID: id("2"), QueueID: queueID,
			Handler: update.Name, HandlerVersion: update.Version, PayloadVersion: "v1",
			Payload: json.RawMessage(`{"n":1}`), RecoverySafety: "RECONCILE_ONLY", DeadlineMS: 86_400_000, AttemptNumber: 3,
		},
	}
}

// harness is one worker under test.
type harness struct {
	s    *fakeServer
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu   sync.Mutex
	errs []error
	told chan struct{}
}

// run starts a worker with one handler. It must be ended with end or wait.
func run(t *testing.T, s *fakeServer, cfg worker.Config, f worker.HandlerFunc) *harness {
	t.Helper()
	h := &harness{s: s, t: t, done: make(chan error, 1), told: make(chan struct{}, 1024)}
	cfg.Queues = []string{queueID}
	if cfg.Handlers == nil {
		cfg.Handlers = map[worker.Handler]worker.HandlerFunc{update: f}
	}
	cfg.Network = s.network()
	cfg.OnError = h.onError
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.MinReconnect == 0 && !s.inMemory {
		cfg.MinReconnect = time.Millisecond
	}
	w, err := worker.NewWorker(s.url(), "secret-token", cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.done <- w.Run(ctx) }()
	t.Cleanup(stop)
	return h
}

func (h *harness) onError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, err)
	select {
	case h.told <- struct{}{}:
	default:
	}
}

// wait returns what Run returned.
func (h *harness) wait() error {
	h.t.Helper()
	select {
	case err := <-h.done:
		return err
	case <-h.s.patience():
		h.t.Fatal("Run does not return")
		return nil
	}
}

// end stops the worker; Run must return nil.
func (h *harness) end() {
	h.t.Helper()
	h.stop()
	if err := h.wait(); err != nil {
		h.t.Errorf("Run = %v, want nil", err)
	}
}

// reported waits until the owner was told an error of this type.
func reported[E error](h *harness) (target E) {
	h.t.Helper()
	for {
		h.mu.Lock()
		for _, err := range h.errs {
			if errors.As(err, &target) {
				h.mu.Unlock()
				return target
			}
		}
		h.mu.Unlock()
		select {
		case <-h.told:
		case <-h.s.patience():
			h.t.Fatalf("the owner was not told a %T", target)
		}
	}
}

package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// patience is how long a test waits for something that must happen. Inside synctest
// time costs nothing.
func (s *fakeServer) patience() <-chan time.Time {
	if s.pipes != nil {
		return time.After(24 * time.Hour)
	}
	return time.After(30 * time.Second)
}

// fakeServer speaks the server's half of the protocol, word by word, as each test
// tells it. It is a real WebSocket server, over TLS or, inside synctest, over pipes.
type fakeServer struct {
	t      *testing.T
	http   *httptest.Server
	pipes  *pipeListener // nil with TLS
	visits chan *visit

	mu     sync.Mutex
	status int         // answered instead of an upgrade, unless 0
	header http.Header // with status
	mute   bool        // upgrade without our subprotocol
	deaf   bool        // ignore pings
	extra  http.Header // of the upgrade's answer
	calls  int         // requests for a connection
}

// visit is one connection of a worker.
type visit struct {
	s      *fakeServer
	t      *testing.T
	ws     *websocket.Conn
	header http.Header
	path   string
	frames chan wire.Envelope // what the worker says, less what answer has dealt with
	closed chan int           // the worker's close code, or 0 if there was none
	pongs  atomic.Int32

	mu     sync.Mutex // guards writes, and:
	answer func(wire.Envelope) bool
}

func newTLSServer(t *testing.T) *fakeServer {
	s := &fakeServer{t: t, visits: make(chan *visit, 64)}
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.http.StartTLS()
	t.Cleanup(s.close)
	return s
}

// newPipeServer must be closed by the test, inside its bubble.
func newPipeServer(t *testing.T) *fakeServer {
	s := &fakeServer{t: t, visits: make(chan *visit, 64), pipes: newPipeListener()}
	s.http = httptest.NewUnstartedServer(s)
	s.http.Listener.Close()
	s.http.Listener = s.pipes
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.http.Start()
	return s
}

func (s *fakeServer) close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

func (s *fakeServer) url() string {
	if s.pipes != nil {
		return "http://127.0.0.1"
	}
	return s.http.URL
}

func (s *fakeServer) network() worker.Network {
	if s.pipes != nil {
		return worker.Network{DialContext: s.pipes.dial}
	}
	return worker.Network{TLS: s.http.Client().Transport.(*http.Transport).TLSClientConfig}
}

// refuse answers later requests with a status instead of an upgrade.
func (s *fakeServer) refuse(status int, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.header = status, header
}

func (s *fakeServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls++
	status, header, mute := s.status, s.header, s.mute
	s.mu.Unlock()
	if status != 0 {
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		w.Header().Set("X-Request-ID", id("4e9"))
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"request_id":%q,"error":{"code":"UNAUTHENTICATED","message":"who are you"}}`, id("4e9"))
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{wire.Protocol}}
	if mute {
		upgrader.Subprotocols = nil
	}
	ws, err := upgrader.Upgrade(w, r, s.extra)
	if err != nil {
		s.t.Errorf("upgrade: %v", err)
		return
	}
	v := &visit{
		s: s, t: s.t, ws: ws, header: r.Header, path: r.URL.Path,
		frames: make(chan wire.Envelope, 1024), closed: make(chan int, 1),
	}
	v.answer = v.renew(15_000)
	if s.deaf {
		ws.SetPingHandler(func(string) error { return nil })
	}
	ws.SetPongHandler(func(string) error { v.pongs.Add(1); return nil })
	s.visits <- v
	v.read()
}

// read runs until the connection ends.
func (v *visit) read() {
	defer v.ws.Close()
	for {
		_, text, err := v.ws.ReadMessage()
		if err != nil {
			var closed *websocket.CloseError
			errors.As(err, &closed)
			if closed == nil {
				closed = &websocket.CloseError{}
			}
			v.closed <- closed.Code
			close(v.frames)
			return
		}
		var frame wire.Envelope
		if err := json.Unmarshal(text, &frame); err != nil {
			v.t.Errorf("worker sent %q: %v", text, err)
			return
		}
		v.mu.Lock()
		answer := v.answer
		v.mu.Unlock()
		if answer == nil || !answer(frame) {
			v.frames <- frame
		}
	}
}

// renew answers renewals by itself.
func (v *visit) renew(leaseMS uint64) func(wire.Envelope) bool {
	return func(frame wire.Envelope) bool {
		if frame.Type != wire.TypeRenew {
			return false
		}
		m := read[wire.Renew](v.t, frame)
		v.send(wire.TypeRenewed, frame.ID, wire.Renewed{AttemptID: m.AttemptID, Epoch: m.Epoch, LeaseMS: leaseMS})
		return true
	}
}

// answering replaces what is answered without the test.
func (v *visit) answering(f func(wire.Envelope) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = f
}

func (v *visit) send(kind, ref string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		v.t.Errorf("encode %s: %v", kind, err)
	}
	v.sendText(fmt.Sprintf(`{"type":%q,"id":"s","ref":%q,"data":%s}`, kind, ref, text))
}

// sendText sends a frame as it is. A connection that is gone is no failure.
func (v *visit) sendText(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ws.WriteMessage(websocket.TextMessage, []byte(text))
}

func (v *visit) ping() {
	v.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
}

// cut ends the connection without a word, as a network does.
func (v *visit) cut() { v.ws.NetConn().Close() }

func (s *fakeServer) visit() *visit {
	s.t.Helper()
	select {
	case v := <-s.visits:
		return v
	case <-s.patience():
		s.t.Fatal("no connection of the worker")
		return nil
	}
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
	select {
	case frame, open := <-v.frames:
		return frame, open
	case <-v.s.patience():
		v.t.Fatal("the worker says nothing")
		return wire.Envelope{}, false
	}
}

// expect returns the next frame of this kind; only credit may come before it.
func (v *visit) expect(kind string) wire.Envelope {
	v.t.Helper()
	for {
		frame, open := v.next()
		switch {
		case !open:
			v.t.Fatalf("the connection ended, want %s", kind)
		case frame.Type == kind:
			return frame
		case frame.Type != wire.TypeCredit:
			v.t.Fatalf("worker sent %s %s, want %s", frame.Type, frame.Data, kind)
		}
	}
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

func (v *visit) closeCode() int {
	v.t.Helper()
	select {
	case code := <-v.closed:
		return code
	case <-v.s.patience():
		v.t.Fatal("the connection does not end")
		return 0
	}
}

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
	dec := json.NewDecoder(bytes.NewReader(frame.Data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		t.Errorf("%s %s: %v", frame.Type, frame.Data, err)
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
	if cfg.MinReconnect == 0 && s.pipes == nil {
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

// pipeListener is a network in memory.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

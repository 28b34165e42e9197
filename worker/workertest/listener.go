package workertest

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// ListenerConfig tunes a Listener. The zero value is ready to use.
type ListenerConfig struct {
	// InMemory replaces sockets by pipes, for use inside a synctest bubble. Default: TLS
	// on a free port of 127.0.0.1.
	InMemory bool
	// IgnorePings leaves pings of the worker without an answer. Default false.
	IgnorePings bool
	// NoSubprotocol opens connections without naming the worker protocol. Default false.
	NoSubprotocol bool
	// Header is added to the answer that opens a connection. Default none.
	Header http.Header
}

// A Listener takes the connections of workers and leaves every word to the test. It is
// closed when the test ends.
type Listener struct {
	t      TB
	cfg    ListenerConfig
	http   *httptest.Server
	pipes  *pipes // nil with TLS
	arrive chan *Conn
	admit  func(*http.Request) (status int) // 0 admits; nil admits everybody
	script func(*Conn) func(Message) bool   // what a new connection answers by itself
	gone   func(*Conn)                      // told of the end of a connection; may be nil

	mu     sync.Mutex
	status int // answered instead of an upgrade, unless 0
	header http.Header
	calls  int
	conns  map[*Conn]bool // that live
}

// Listen opens a Listener.
func Listen(t TB, cfg ListenerConfig) *Listener {
	l := newListener(t, cfg)
	l.script = func(c *Conn) func(Message) bool { return c.RenewFor(15 * time.Second) }
	l.start()
	return l
}

func newListener(t TB, cfg ListenerConfig) *Listener {
	return &Listener{t: t, cfg: cfg, arrive: make(chan *Conn, 64), conns: make(map[*Conn]bool)}
}

func (l *Listener) start() {
	l.http = httptest.NewUnstartedServer(l)
	l.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if l.cfg.InMemory {
		l.pipes = newPipes()
		l.http.Listener.Close()
		l.http.Listener = l.pipes
		l.http.Start()
	} else {
		l.http.StartTLS()
	}
	l.t.Cleanup(l.Close)
}

// Close ends the listener and its connections. It may be called repeatedly.
func (l *Listener) Close() {
	if l.pipes != nil {
		l.pipes.Close()
	}
	l.http.CloseClientConnections()
	l.http.Close()
	for _, c := range l.open() {
		c.Cut()
		<-c.ended
	}
}

// open returns the connections that live.
func (l *Listener) open() []*Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}

func (l *Listener) note(c *Conn, lives bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[c] = lives; !lives {
		delete(l.conns, c)
	}
}

// URL is what the worker is to be given as the server's address.
func (l *Listener) URL() string {
	if l.pipes != nil {
		return "http://127.0.0.1"
	}
	return l.http.URL
}

// Network is what the worker is to be given as worker.Config.Network: it knows the
// certificate, or the way over the pipes.
func (l *Listener) Network() worker.Network {
	if l.pipes != nil {
		return worker.Network{DialContext: l.pipes.dial}
	}
	return worker.Network{TLS: l.http.Client().Transport.(*http.Transport).TLSClientConfig}
}

// Refuse answers later requests for a connection with an HTTP status and header, and with
// the code UNAUTHENTICATED, instead of opening one. Status 0 ends that.
func (l *Listener) Refuse(status int, header http.Header) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status, l.header = status, header
}

// Calls returns how many requests for a connection there were.
func (l *Listener) Calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// Accept waits for the next connection of a worker.
func (l *Listener) Accept() *Conn {
	l.t.Helper()
	select {
	case c := <-l.arrive:
		return c
	case <-l.patience():
		l.t.Fatalf("workertest: no connection of a worker")
		return nil
	}
}

// patience is how long a test waits for something that must happen. Inside a bubble time
// costs nothing.
func (l *Listener) patience() <-chan time.Time {
	if l.pipes != nil {
		return time.After(24 * time.Hour)
	}
	return time.After(30 * time.Second)
}

// refusedRequest is the request id of every refusal.
var refusedRequest = strings.Repeat("0", 29) + "4e9"

// ServeHTTP opens a connection, or refuses it.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.calls++
	status, header := l.status, l.header
	l.mu.Unlock()
	if status == 0 && l.admit != nil {
		status = l.admit(r)
	}
	if status != 0 {
		refuseConnection(w, status, header)
		return
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{wire.Protocol}}
	if l.cfg.NoSubprotocol {
		upgrader.Subprotocols = nil
	}
	ws, err := upgrader.Upgrade(w, r, l.cfg.Header)
	if err != nil {
		l.t.Errorf("workertest: open a connection: %v", err)
		return
	}
	c := newConn(l, ws, r)
	c.answer = l.script(c)
	l.note(c, true)
	defer l.note(c, false)
	if l.gone != nil {
		defer l.gone(c)
	} else {
		l.arrive <- c
	}
	c.read()
}

func refuseConnection(w http.ResponseWriter, status int, header http.Header) {
	for name := range header {
		w.Header().Set(name, header.Get(name))
	}
	w.Header().Set("X-Request-ID", refusedRequest)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"request_id":%q,"error":{"code":"UNAUTHENTICATED","message":"who are you"}}`, refusedRequest)
}

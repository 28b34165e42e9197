package workertest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/worker"
)

// ServerConfig tunes a Server. The zero value is ready to use.
type ServerConfig struct {
	// Lease is how long an attempt is granted at a time. Default 15s.
	Lease time.Duration
	// Token is the credential that workers must show. Default "workertest".
	Token string
	// InMemory replaces sockets by pipes, for use inside a synctest bubble. Default: TLS
	// on a free port of 127.0.0.1.
	InMemory bool
}

// A Server is a task server in memory, for tests of worker programs. It speaks the worker
// protocol over real WebSockets and keeps to the server's rules: at most the credit of a
// worker is assigned, one attempt at a time for a resource key, with growing tokens; a
// lease that is not renewed ends its attempt; every message may be repeated.
//
// It is simpler than a task server where that does not concern a worker: tasks are
// assigned in the order of their submission, retries at once and without back-off, waiting
// tasks outlive their deadline, and a task that needs a review stays so.
//
// Faults are planted with Inject. All methods may be called by several goroutines at once;
// those that wait fail the test if what they wait for does not come, and are for the
// goroutine of the test.
type Server struct {
	Token   string
	QueueID string // a queue that exists from the start; see NewQueue

	t     TB
	l     *Listener
	lease time.Duration

	mu            sync.Mutex
	changed       chan struct{} // closed and replaced with each change
	queues        map[string]bool
	tasks         []*task // in the order of their submission
	attempts      map[string]*attempt
	tokens        map[string]uint64            // last token by resource key
	holders       map[string]*attempt          // by resource key
	registrations map[string]string            // by process
	held          map[string]map[*attempt]bool // live attempts, by process
	drained       map[string]bool              // by process: said goodbye properly
	sessions      []*session
	faults        []*planted
	refused       error // why a worker of Work has ended early
}

// A session is the connection of a registered process.
type session struct {
	conn     *Conn
	hello    *wire.Hello // nil before it
	credit   int
	limits   []wire.CreditLimit // what is left of them
	sent     uint64             // assignments of the connection
	flights  []*task            // the last of those, since the last word about credit
	draining bool
	open     map[string]bool // attempts that must be settled before anything is assigned
	patience *time.Timer     // for that
}

// NewServer opens a Server. It is closed when the test ends.
func NewServer(t TB, cfg ServerConfig) *Server {
	t.Helper()
	fill(&cfg.Lease, 15*time.Second)
	fill(&cfg.Token, "workertest")
	if cfg.Lease < time.Millisecond {
		t.Fatalf("workertest: Lease: %v must be at least a millisecond", cfg.Lease)
	}
	s := &Server{
		Token: cfg.Token, QueueID: newID(), t: t, lease: cfg.Lease,
		l:       newListener(t, ListenerConfig{InMemory: cfg.InMemory}),
		changed: make(chan struct{}), attempts: make(map[string]*attempt),
		tokens: make(map[string]uint64), holders: make(map[string]*attempt),
		registrations: make(map[string]string), drained: make(map[string]bool),
		held: make(map[string]map[*attempt]bool),
	}
	s.queues = map[string]bool{s.QueueID: true}
	s.l.admit, s.l.script, s.l.gone = s.admit, s.meet, s.part
	t.Cleanup(s.checkFaults)
	s.l.start()
	return s
}

// URL is what the worker is to be given as the server's address.
func (s *Server) URL() string { return s.l.URL() }

// Network is what the worker is to be given as worker.Config.Network.
func (s *Server) Network() worker.Network { return s.l.Network() }

// NewQueue makes another queue and returns its id.
func (s *Server) NewQueue() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := newID()
	s.queues[id] = true
	return id
}

// Work runs a worker with cfg against this server, by default on QueueID, until drain is
// called or the test ends. Drain waits for the worker and fails the test if it has not
// ended cleanly; it may be called repeatedly. For a program with a main function of its
// own use URL, Token and Network instead.
func (s *Server) Work(cfg worker.Config) (drain func()) {
	s.t.Helper()
	if cfg.Queues == nil {
		cfg.Queues = []string{s.QueueID}
	}
	cfg.Network = s.Network()
	w, err := worker.NewWorker(s.URL(), s.Token, cfg)
	if err != nil {
		s.t.Fatalf("workertest: %v", err)
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		if err != nil && ctx.Err() == nil {
			s.giveUp(err)
		}
		ended <- err
	}()
	drain = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Errorf("workertest: worker ended with: %v", err)
		}
	})
	s.t.Cleanup(drain)
	return drain
}

// giveUp tells whoever waits for a task that a worker has ended early.
func (s *Server) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err
	s.change()
}

// Close ends the server and its connections, as a node that dies. It may be called
// repeatedly.
func (s *Server) Close() { s.l.Close() }

// Connections returns how many requests for a connection there were.
func (s *Server) Connections() int { return s.l.Calls() }

// Refuse answers later requests for a connection with an HTTP status, such as 401 or 503.
// Status 0 ends that.
func (s *Server) Refuse(status int) { s.l.Refuse(status, nil) }

// Drop cuts every connection without a word, as a network does. Nothing is released by
// it: leases go on, and the workers may come back.
func (s *Server) Drop() {
	for _, c := range s.l.open() {
		c.Cut()
	}
}

// Drain tells every worker that this node stops and that it should come back after a
// while. The node assigns nothing more on these connections.
func (s *Server) Drain(retryAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		one.draining = true
		one.conn.Send(wire.TypeServerDraining, "", wire.ServerDraining{RetryAfterMS: millis(retryAfter)})
	}
}

func (s *Server) admit(r *http.Request) int {
	if r.URL.Path != wire.Path || r.Header.Get("Authorization") != "Bearer "+s.Token {
		return http.StatusUnauthorized
	}
	return 0
}

// meet serves a new connection.
func (s *Server) meet(c *Conn) func(Message) bool {
	one := &session{conn: c}
	return func(m Message) bool {
		s.take(one, m)
		return true
	}
}

// part forgets a connection.
func (s *Server) part(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(one *session) bool {
		if one.conn == c && one.patience != nil {
			one.patience.Stop()
		}
		return one.conn == c
	})
}

// take deals with one message, and with what has been planted for it.
func (s *Server) take(one *session, m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.faultFor(m)
	if f.Cut {
		one.conn.Cut()
		return
	}
	var r reply
	if f.Refuse != "" {
		r = refusal(f.Refuse, "refused by the test", attemptOf(m))
	} else {
		r = s.handle(one, m)
	}
	if f.Refuse != orbit.CodeUnavailable {
		delete(one.open, attemptOf(m))
	}
	switch {
	case f.Lose:
		one.conn.Cut()
	case f.Silent, r.kind == "":
	case f.Delay > 0:
		time.AfterFunc(f.Delay, func() { one.conn.Send(r.kind, m.ID, r.data) })
	default:
		one.conn.Send(r.kind, m.ID, r.data)
	}
	if r.close != 0 {
		one.conn.Close(r.close, "")
	}
	s.assign()
	s.change()
}

// change tells everybody who waits to look again.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// A reply is the answer to a message; the zero value is none.
type reply struct {
	kind  string
	data  any
	close int // close code after it, or 0
}

func refusal(code, message, attempt string) reply {
	return reply{kind: wire.TypeError, data: wire.Error{Code: code, Message: message, AttemptID: attempt}}
}

// breach fails the test: the worker has broken the protocol.
func (s *Server) breach(m Message, rule string) reply {
	s.t.Errorf("workertest: worker sent %s %s: %s", m.Type, m.Data, rule)
	return reply{close: wire.CloseProtocolError}
}

// register takes hello.
func (s *Server) register(one *session, m Message) reply {
	var h wire.Hello
	if err := m.Decode(&h); err != nil {
		return s.breach(m, err.Error())
	}
	if len(h.Held) > 3*h.Capacity {
		return s.breach(m, "held must be at most three for each of capacity")
	}
	for _, queue := range h.Queues {
		if !s.queues[queue] {
			r := refusal(orbit.CodeNotFound, "queue "+queue+" does not exist", "")
			r.close = websocket.ClosePolicyViolation
			return r
		}
	}
	fixed := h
	fixed.Held = nil
	text, _ := json.Marshal(fixed)
	if known, again := s.registrations[h.ProcessID]; again && known != string(text) {
		r := refusal(orbit.CodeStateConflict, "the registration of the process has changed", "")
		r.close = websocket.ClosePolicyViolation
		return r
	}
	s.registrations[h.ProcessID] = string(text)
	s.replace(h.ProcessID)
	one.hello = &h
	s.sessions = append(s.sessions, one)
	s.drained[h.ProcessID] = false
	ok := wire.HelloOK{
		NodeID: "workertest", LeaseMS: millis(s.lease), PingMS: 20_000, MaxFrame: wire.MaxFrame,
		ServerTime: time.Now().UTC().Format(time.RFC3339Nano),
	}
	if s.held[h.ProcessID] == nil {
		s.held[h.ProcessID] = make(map[*attempt]bool)
	}
	for a := range s.held[h.ProcessID] {
		ok.Attempts = append(ok.Attempts, wire.Held{AttemptID: a.id, Epoch: a.epoch})
	}
	s.awaitSettling(one, append(h.Held, ok.Attempts...))
	return reply{kind: wire.TypeHelloOK, data: ok}
}

// awaitSettling holds assignments back until the worker has had an answer about each
// attempt that one of both sides takes for open, or for a lease.
func (s *Server) awaitSettling(one *session, attempts []wire.Held) {
	one.open = make(map[string]bool, len(attempts))
	for _, a := range attempts {
		one.open[a.AttemptID] = true
	}
	if len(one.open) > 0 {
		one.patience = time.AfterFunc(s.lease, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(one.open)
			s.assign()
		})
	}
}

// replace ends an older connection of a process.
func (s *Server) replace(process string) {
	s.sessions = slices.DeleteFunc(s.sessions, func(one *session) bool {
		if one.hello.ProcessID != process {
			return false
		}
		if one.patience != nil {
			one.patience.Stop()
		}
		one.conn.Close(wire.CloseReplaced, "replaced")
		return true
	})
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// linger is how long an ending connection waits for the server to have read its
// close frame.
const linger = time.Second

// silence is how long nothing must have been received for a message to go with a
// ping.
const silence = time.Second

// A Session is what the server said when it accepted a registration.
type Session struct {
	NodeID     string        // the server node
	Lease      time.Duration // length of a lease
	Attempts   []Attempt     // live attempts of this process, as the server knows them
	ServerTime string        // for logs; nothing is decided by it
}

// An Attempt names one attempt in every message about it.
type Attempt struct {
	ID    string // 32 lower-case hex characters
	Epoch uint64
}

// A Conn is one registered connection: the worker protocol with a method for each
// message of the client, and Next for what the server says on its own. It takes
// part in no decision: it neither renews nor resumes nor reconnects.
//
// All methods may be called by several goroutines at once. Methods that wait for
// an answer return a [*RefusedError] if the server refuses the message, an error
// that wraps [ErrClosed] or is a [*ProtocolError] if the connection ends first, or
// the cause of their context. In the last two cases the message may have been
// taken; every message may be repeated, here or on another connection of the same
// process, and has the same answer then.
//
// Next must be called often enough: a connection on which more than about twice
// the capacity of events wait is closed. Close must be called at the end.
type Conn struct {
	ws           *websocket.Conn
	out          *wire.GatherConn // the TCP connection below ws
	registration Registration
	session      Session
	maxFrame     int
	writeTimeout time.Duration
	ping         time.Duration // silence after which the server is asked for a sign of life

	urgent, normal chan []byte // frames on their way to the writer
	events         chan Event
	opened         time.Time
	heard          atomic.Int64  // when something was last received, since opened
	patience       time.Duration // since opened: when the reader's deadline was last set; 0 for never

	mu      sync.Mutex
	lastID  uint64
	credit  string // id of the last credit, which has no answer but may be refused
	pending map[string]question
	err     error
	done    chan struct{} // closed with err set

	readEnded chan struct{}
	parts     sync.WaitGroup // reader and writer
}

// Dial connects to the task server at url, for example https://orbit.example:8443
// (plain http and ws for loopback only), and registers r. Held are the attempts
// that the process believes to hold; after a reconnect each of them must be taken
// up with Resume before it goes on. It returns a [*HandshakeError] if the server
// does not open the connection and a [*RefusedError] if it does not take the
// registration. The token never appears in an error.
func Dial(ctx context.Context, url, token string, r Registration, n Network, held ...Attempt) (*Conn, error) {
	n = n.withDefaults()
	if err := errors.Join(r.validate(), n.validate(), checkToken(token)); err != nil {
		return nil, err
	}
	target, err := endpoint(url, n.AllowInsecure)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, n.HandshakeTimeout)
	defer cancel()
	ws, out, err := n.open(ctx, target, token)
	if ws == nil {
		return nil, err
	}
	c := newConn(ws, out, r, n)
	if err == nil {
		err = c.register(ctx, held)
	}
	if err != nil {
		c.hangUp(err)
		return nil, err
	}
	c.parts.Go(c.read)
	c.parts.Go(c.write)
	return c, nil
}

func newConn(ws *websocket.Conn, out *wire.GatherConn, r Registration, n Network) *Conn {
	const (
		spare   = 16 // for cancels and the like, beside the assignments
		waiting = 32 // frames that do not hold up who sends them
	)
	ws.SetReadLimit(wire.MaxFrame)
	return &Conn{
		ws: ws, out: out, registration: r, writeTimeout: n.WriteTimeout, maxFrame: wire.MaxFrame,
		urgent: make(chan []byte, waiting), normal: make(chan []byte, waiting),
		events: make(chan Event, 2*r.Capacity+spare),
		opened: time.Now(), pending: make(map[string]question),
		done: make(chan struct{}), readEnded: make(chan struct{}),
	}
}

// register sends hello and waits for its answer, before reader and writer run.
func (c *Conn) register(ctx context.Context, held []Attempt) error {
	defer context.AfterFunc(ctx, func() { c.ws.Close() })()
	data, err := json.Marshal(c.registration.hello(held))
	if err != nil {
		return fmt.Errorf("worker: encode hello: %w", err)
	}
	id := c.newID()
	c.ws.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if err := c.ws.WriteMessage(websocket.TextMessage, encodeFrame(wire.TypeHello, id, data)); err != nil {
		return interrupted(ctx, fmt.Errorf("worker: send hello: %w", err))
	}
	var text wire.Text // what is kept of it stays where it is
	if err := c.receive(&text); err != nil {
		return interrupted(ctx, err)
	}
	frame, err := decodeFrame(text.Bytes())
	if err != nil {
		return interrupted(ctx, err)
	}
	return c.registered(frame, id)
}

// interrupted prefers the end of ctx, which closes the socket, to what reading or
// writing then reports.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("worker: register: %w", context.Cause(ctx))
	}
	return err
}

// registered takes the answer to hello.
func (c *Conn) registered(frame wire.Envelope, id string) error {
	switch {
	case frame.Type == wire.TypeError:
		refusal, err := readRefusal(wire.TypeHello, frame.Data)
		if err != nil {
			return err
		}
		return refusal
	case frame.Type != wire.TypeHelloOK || frame.Ref != id:
		return broken("type and ref: the first message must be hello.ok in answer to hello")
	}
	var ok wire.HelloOK
	if err := decode(wire.TypeHelloOK, frame.Data, &ok); err != nil {
		return err
	}
	const longest = 64
	switch {
	case ok.LeaseMS == 0:
		return broken("hello.ok: lease_ms must not be zero")
	case ok.MaxFrame == 0:
		return broken("hello.ok: max_frame must not be zero")
	case ok.NodeID == "" || len(ok.NodeID) > longest:
		return broken("hello.ok: node_id must be 1 to %d bytes", longest)
	}
	c.session = Session{NodeID: ok.NodeID, Lease: millis(ok.LeaseMS), ServerTime: ok.ServerTime}
	for i, a := range ok.Attempts {
		one := Attempt{ID: a.AttemptID, Epoch: a.Epoch}
		if rule := one.fault(); rule != "" {
			return broken("hello.ok: attempts[%d].%s", i, rule)
		}
		c.session.Attempts = append(c.session.Attempts, one)
	}
	c.maxFrame = min(c.maxFrame, ok.MaxFrame)
	c.ping = pingInterval(ok.PingMS)
	return nil
}

// fault names the part of a that breaks a rule, or is empty.
func (a Attempt) fault() string {
	switch {
	case !orbit.ValidID(a.ID):
		return "attempt_id must be 32 lower-case hexadecimal characters"
	case a.Epoch == 0 || a.Epoch > math.MaxInt64:
		return fmt.Sprintf("epoch must be 1 to %d", math.MaxInt64)
	}
	return ""
}

func pingInterval(ms uint64) time.Duration {
	if ms == 0 {
		return 20 * time.Second
	}
	return min(max(millis(ms), 50*time.Millisecond), time.Minute)
}

// millis turns milliseconds of the wire into a Duration. The bound, a year, is
// beyond every lease and timeout and far from overflow.
func millis(ms uint64) time.Duration {
	const year = 365 * 24 * time.Hour
	return time.Duration(min(ms, uint64(year/time.Millisecond))) * time.Millisecond
}

// Session returns what the server said at registration.
func (c *Conn) Session() Session { return c.session }

// Done is closed when the connection is over; Err then tells why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection lives. Afterwards it returns a
// [*ProtocolError], or an error that wraps [ErrClosed].
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for its goroutines. It releases nothing on
// the server: leases go on until they end. Close may be called repeatedly.
func (c *Conn) Close() error {
	c.leave(ErrClosed, websocket.CloseNormalClosure, "")
	c.parts.Wait()
	return nil
}

// breach ends the connection because of something that only its user could see to
// be against the protocol.
func (c *Conn) breach(err *ProtocolError) { c.leave(err, wire.CloseProtocolError, err.Rule) }

// leave ends the connection with a close frame, unless it is ending already, and
// gives the server time to read what it is told, while the reader goes on.
func (c *Conn) leave(err error, code int, reason string) {
	if c.fail(err) {
		c.sayGoodbye(code, reason)
	}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-c.readEnded:
	case <-timer.C:
	}
	c.ws.Close()
}

// abandon ends the connection without a word: its other side does not answer.
func (c *Conn) abandon(reason error) {
	c.fail(fmt.Errorf("%w: %w", ErrClosed, reason))
	c.ws.Close()
}

// fail records why the connection is over. It reports false if it was over before.
func (c *Conn) fail(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.err = err
	close(c.done)
	return true
}

// hangUp ends the connection because of err, from where it is read. A server that
// broke the protocol is told so and given time to read it: closing at once could
// lose the frame.
func (c *Conn) hangUp(err error) {
	var protocol *ProtocolError
	if c.fail(err); errors.As(err, &protocol) {
		c.sayGoodbye(wire.CloseProtocolError, protocol.Rule)
		c.ws.SetReadDeadline(time.Now().Add(linger))
		for c.skipMessage() == nil {
		}
	}
	c.ws.Close()
}

func (c *Conn) skipMessage() error {
	_, _, err := c.ws.NextReader()
	return err
}

func (c *Conn) sayGoodbye(code int, reason string) {
	const most = 120 // a control frame holds 125 bytes, two of them the code
	if len(reason) > most {
		reason = reason[:most]
	}
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(linger))
}

func (c *Conn) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	return formatID(c.lastID)
}

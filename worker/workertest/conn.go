package workertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/wire"
)

// waiting bounds the messages of a connection that the test has not taken.
const waiting = 1024

// A Message is one frame of the worker protocol.
type Message struct {
	Type string          `json:"type"`
	ID   string          `json:"id,omitempty"`
	Ref  string          `json:"ref,omitempty"` // in an answer, the ID of the message answered
	Data json.RawMessage `json:"data,omitempty"`
}

// Decode reads the message's data into v and refuses members that v does not have.
func (m Message) Decode(v any) error {
	dec := json.NewDecoder(bytes.NewReader(m.Data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("workertest: %s %s: %w", m.Type, m.Data, err)
	}
	return nil
}

// A Conn is one connection of a worker, seen from the server. Its methods may be called
// by several goroutines at once; those that wait fail the test if nothing comes.
type Conn struct {
	Header http.Header // of the request
	Path   string

	l        *Listener
	ws       *websocket.Conn
	messages chan Message // less what answer has dealt with
	closed   chan int     // the worker's close code, or 0 if there was none
	ended    chan struct{}
	pongs    atomic.Int32

	mu     sync.Mutex // guards writes, and:
	answer func(Message) bool
}

func newConn(l *Listener, ws *websocket.Conn, r *http.Request) *Conn {
	c := &Conn{
		Header: r.Header, Path: r.URL.Path, l: l, ws: ws,
		messages: make(chan Message, waiting), closed: make(chan int, 1), ended: make(chan struct{}),
	}
	if l.cfg.IgnorePings {
		ws.SetPingHandler(func(string) error { return nil })
	}
	ws.SetPongHandler(func(string) error { c.pongs.Add(1); return nil })
	return c
}

// read runs until the connection ends.
func (c *Conn) read() {
	defer close(c.ended)
	defer close(c.messages)
	defer c.ws.Close()
	for {
		_, text, err := c.ws.ReadMessage()
		if err != nil {
			closed := &websocket.CloseError{}
			errors.As(err, &closed)
			c.closed <- closed.Code
			return
		}
		var m Message
		if err := json.Unmarshal(text, &m); err != nil {
			c.l.t.Errorf("workertest: worker sent %q: %v", text, err)
			return
		}
		if answer := c.answering(); answer != nil && answer(m) {
			continue
		}
		select {
		case c.messages <- m:
		default:
			c.l.t.Errorf("workertest: %d messages wait for the test", waiting)
			return
		}
	}
}

func (c *Conn) answering() func(Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer
}

// Answer replaces what is answered without the test: f is given each message first and
// reports whether it has dealt with it. Nil leaves everything to the test. A new
// connection answers renewals, as RenewFor(15s) does.
func (c *Conn) Answer(f func(Message) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

// RenewFor returns a function for Answer that grants every renewal for so long.
func (c *Conn) RenewFor(lease time.Duration) func(Message) bool {
	return func(m Message) bool {
		if m.Type != wire.TypeRenew {
			return false
		}
		var r wire.Renew
		if err := m.Decode(&r); err != nil {
			c.l.t.Errorf("%v", err)
		}
		c.Send(wire.TypeRenewed, m.ID, wire.Renewed{AttemptID: r.AttemptID, Epoch: r.Epoch, LeaseMS: millis(lease)})
		return true
	}
}

func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }

// Send sends a message of a type, in answer to the message with the id ref if that is not
// empty. A connection that is gone is no failure.
func (c *Conn) Send(kind, ref string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		c.l.t.Errorf("workertest: encode %s: %v", kind, err)
		return
	}
	c.SendText(frame(kind, ref, string(text)))
}

// frame is a message of the server.
func frame(kind, ref, data string) string {
	if ref != "" {
		return fmt.Sprintf(`{"type":%q,"ref":%q,"data":%s}`, kind, ref, data)
	}
	return fmt.Sprintf(`{"type":%q,"data":%s}`, kind, data)
}

// SendText sends a text frame as it is.
func (c *Conn) SendText(text string) { c.write(websocket.TextMessage, []byte(text)) }

// SendBinary sends a binary frame, which the protocol does not know.
func (c *Conn) SendBinary(data []byte) { c.write(websocket.BinaryMessage, data) }

func (c *Conn) write(kind int, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ws.SetWriteDeadline(time.Now().Add(10 * time.Second))
	c.ws.WriteMessage(kind, data)
}

// Ping sends a ping.
func (c *Conn) Ping() {
	c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
}

// Pongs returns how many answers to pings have come.
func (c *Conn) Pongs() int { return int(c.pongs.Load()) }

// Cut ends the connection without a word, as a network does.
func (c *Conn) Cut() { c.ws.NetConn().Close() }

// Close says goodbye with a close code. The worker ends the connection then.
func (c *Conn) Close(code int, reason string) {
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
}

// Pending returns how many messages the test has not taken.
func (c *Conn) Pending() int { return len(c.messages) }

// Next waits for the next message. It reports false at the end of the connection.
func (c *Conn) Next() (Message, bool) {
	c.l.t.Helper()
	select {
	case m, open := <-c.messages:
		return m, open
	case <-c.l.patience():
		c.l.t.Fatalf("workertest: the worker says nothing")
		return Message{}, false
	}
}

// Expect waits for a message of this type; only credit may come before it.
func (c *Conn) Expect(kind string) Message {
	c.l.t.Helper()
	for {
		m, open := c.Next()
		switch {
		case !open:
			c.l.t.Fatalf("workertest: the connection ended, want %s", kind)
		case m.Type == kind:
			return m
		case m.Type != wire.TypeCredit:
			c.l.t.Fatalf("workertest: worker sent %s %s, want %s", m.Type, m.Data, kind)
		}
	}
}

// CloseCode waits for the end of the connection and returns the close code that the worker
// gave, or 0. It may be asked once.
func (c *Conn) CloseCode() int {
	c.l.t.Helper()
	select {
	case code := <-c.closed:
		return code
	case <-c.l.patience():
		c.l.t.Fatalf("workertest: the connection does not end")
		return 0
	}
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/wire"
)

// An Event is what the server says on its own: an [*Assignment], a [*Cancellation],
// a [*Draining], or the [*RefusedError] of a message that has no answer, such as
// Credit.
type Event interface{ event() }

// A Cancellation tells that a cancel intent exists for a running attempt. The
// attempt keeps its right to execute.
type Cancellation struct {
	Attempt Attempt
	Reason  string // for people
}

// A Draining tells that the node stops: it assigns nothing more and closes the
// connection soon. The process should connect again, after RetryAfter at the
// earliest.
type Draining struct {
	RetryAfter time.Duration
}

func (*Assignment) event()   {}
func (*Cancellation) event() {}
func (*Draining) event()     {}
func (*RefusedError) event() {}

var errEventsWait = errors.New("worker: events of the connection are not taken with Next")

// Next returns what the server says next on its own, and waits for it. After the
// end of the connection it still returns what had arrived, then the reason.
func (c *Conn) Next(ctx context.Context) (Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	default:
	}
	select {
	case e := <-c.events:
		return e, nil
	case <-c.done:
		return c.left()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *Conn) left() (Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	default:
		return nil, c.Err()
	}
}

// read is the one reader of the socket.
func (c *Conn) read() {
	defer close(c.readEnded)
	c.ws.SetPingHandler(c.answerPing)
	c.ws.SetPongHandler(func(string) error { c.hear(); return nil })
	for c.hear(); ; c.hear() {
		if err := c.next(); err != nil {
			c.hangUp(err)
			return
		}
	}
}

// next reads and handles one frame. An ending connection is only read to its end.
func (c *Conn) next() error {
	var text wire.Text
	defer text.Return()
	if err := c.receive(&text); err != nil || c.Err() != nil {
		return err
	}
	return c.take(text.Bytes())
}

// take handles the text of one frame, which is not used after it.
func (c *Conn) take(text []byte) error {
	frame, split := wire.Split(text)
	if !split {
		frame, err := decodeFrame(text)
		if err == nil {
			err = c.handle(frame)
		}
		return err
	}
	err := checkFrame(frame)
	if err == nil {
		err = c.handle(frame)
	}
	if broke := (*ProtocolError)(nil); errors.As(err, &broke) { // what is wrong with the frame comes first
		if _, wrong := decodeFrame(text); wrong != nil {
			return wrong
		}
	}
	return err
}

// hear notes a sign of life and puts off the end of patience, if it has come nearer
// noticeably: to set a deadline costs as much as a message.
func (c *Conn) hear() {
	now := time.Since(c.opened)
	c.heard.Store(int64(now))
	if c.patience != 0 && now-c.patience < c.ping/64 {
		return
	}
	c.patience = max(now, 1)
	select {
	case <-c.done: // an ending connection has a deadline of its own
	default:
		c.ws.SetReadDeadline(time.Now().Add(c.ping * 5 / 2))
	}
}

// quiet returns how long nothing has been received.
func (c *Conn) quiet() time.Duration {
	return time.Since(c.opened) - time.Duration(c.heard.Load())
}

func (c *Conn) answerPing(data string) error {
	c.hear()
	c.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(c.writeTimeout))
	return nil // a failed write shows at the writer and at the next read
}

// receive reads one frame into text.
func (c *Conn) receive(text *wire.Text) error {
	kind, r, err := c.ws.NextReader()
	if err == nil {
		_, err = text.ReadFrom(r)
	}
	switch closed := (*websocket.CloseError)(nil); {
	case errors.Is(err, websocket.ErrReadLimit):
		return broken("frame: must be at most %d bytes", wire.MaxFrame)
	case errors.As(err, &closed):
		return &ClosedError{Code: closed.Code, Reason: closed.Text}
	case err != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case kind != websocket.TextMessage:
		return broken("frame: must be text")
	}
	return nil
}

// handle takes one frame. An error ends the connection.
func (c *Conn) handle(frame wire.Envelope) error {
	switch frame.Type {
	case wire.TypeAssign, wire.TypeCancel, wire.TypeServerDraining:
		if frame.Ref != "" {
			return broken("%s: ref is for answers", frame.Type)
		}
	}
	switch frame.Type {
	case wire.TypeAssign:
		a, err := c.readAssign(frame.Data)
		return c.deliver(a, err)
	case wire.TypeCancel:
		e, err := readCancel(frame.Data)
		return c.deliver(e, err)
	case wire.TypeServerDraining:
		e, err := readDraining(frame.Data)
		return c.deliver(e, err)
	}
	switch {
	case frame.Type == wire.TypeError:
	case !answers[frame.Type]:
		return broken("frame: type is unknown")
	case frame.Ref == "":
		return broken("%s: ref is missing", frame.Type)
	}
	return c.answer(frame)
}

// answers are the types that answer a question, beside error.
var answers = map[string]bool{
	wire.TypeHelloOK: true, wire.TypeStarted: true, wire.TypeResumed: true, wire.TypeRenewed: true,
	wire.TypeFinished: true, wire.TypeReturned: true, wire.TypeDrainOK: true,
}

func (c *Conn) deliver(e Event, err error) error {
	if err != nil {
		return err
	}
	select {
	case c.events <- e:
		return nil
	default:
		return fmt.Errorf("%w: %w", ErrClosed, errEventsWait)
	}
}

func readCancel(data []byte) (*Cancellation, error) {
	var m wire.Cancel
	if err := decode(wire.TypeCancel, data, &m); err != nil {
		return nil, err
	}
	e := &Cancellation{Attempt: Attempt{ID: m.AttemptID, Epoch: m.Epoch}, Reason: m.Reason}
	if rule := e.Attempt.fault(); rule != "" {
		return nil, broken("task.cancel: %s", rule)
	}
	return e, nil
}

func readDraining(data []byte) (*Draining, error) {
	var m wire.ServerDraining
	if err := decode(wire.TypeServerDraining, data, &m); err != nil {
		return nil, err
	}
	return &Draining{RetryAfter: millis(m.RetryAfterMS)}, nil
}

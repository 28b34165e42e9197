package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
)

// write is the one writer of frames. Renewals overtake everything that waits: a
// large result must not cost another attempt its lease.
func (c *Conn) write() {
	alarm := time.NewTicker(c.ping / 2)
	defer alarm.Stop()
	for {
		var err error
		select {
		case frame := <-c.urgent:
			err = c.writeBatch(frame)
		case <-c.done:
			return
		default:
			err = c.writeNext(alarm.C)
		}
		if err != nil {
			c.abandon(err)
			return
		}
	}
}

// writeNext waits for the next thing to write.
func (c *Conn) writeNext(alarm <-chan time.Time) error {
	select {
	case frame := <-c.urgent:
		return c.writeBatch(frame)
	case frame := <-c.normal:
		return c.writeBatch(frame)
	case <-alarm:
		return c.knock(c.ping)
	case <-c.done:
		return nil
	}
}

// writeBatch writes a frame and those that wait already, by one system call if they are
// small.
func (c *Conn) writeBatch(frame []byte) error {
	c.out.Hold()
	err := c.writeFrame(frame)
	for err == nil {
		if frame = c.waiting(); frame == nil {
			break
		}
		err = c.writeFrame(frame)
	}
	if late := c.out.Flush(time.Now().Add(c.writeTimeout)); err == nil && late != nil {
		err = fmt.Errorf("write: %w", late)
	}
	return err
}

// waiting returns a frame that somebody waits to have written, or nil.
func (c *Conn) waiting() []byte {
	select {
	case frame := <-c.urgent:
		return frame
	default:
	}
	select {
	case frame := <-c.normal:
		return frame
	default:
		return nil
	}
}

func (c *Conn) writeFrame(frame []byte) error {
	c.ws.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if err := c.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	// A server that is slow to answer still answers a ping at once, so that it can
	// be told from one that is gone.
	return c.knock(silence)
}

// knock asks for a sign of life if there was none for so long.
func (c *Conn) knock(after time.Duration) error {
	if c.quiet() < after {
		return nil
	}
	if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.writeTimeout)); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// send hands a frame to the writer. After an error it is not known whether the
// frame has been or will be written.
func (c *Conn) send(ctx context.Context, urgent bool, kind, id string, data any) error {
	frame, err := encode(kind, id, data)
	if err != nil {
		return err
	}
	if len(frame) > c.maxFrame {
		return &orbit.InvalidArgumentError{Field: kind, Rule: fmt.Sprintf("frame must be at most %d bytes", c.maxFrame)}
	}
	lane := c.normal
	if urgent {
		lane = c.urgent
	}
	select {
	case lane <- frame:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

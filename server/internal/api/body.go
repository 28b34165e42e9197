package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
)

// firstBuffer is where the buffer of a long body begins, in bytes.
const firstBuffer = 16 << 10

// leftoverPatience is for the rest of a body that is refused unread.
const leftoverPatience = time.Second

var errBodyTooLarge = &refusal{
	status:  http.StatusRequestEntityTooLarge,
	code:    orbit.CodeBodyTooLarge,
	message: "body must be at most 524288 bytes: send a reference to a large object instead",
}

// readBody reads the body of a write, at most 512 KiB (API-005). What it takes of the
// node's budget stays taken until release is called, which must be, after an error too.
func (c *call) readBody() (body []byte, release func(), err error) {
	arriving := &arrival{call: c, share: c.shares.of(c.principal.Credential), begun: time.Now()}
	release = arriving.release
	if c.r.ContentLength > orbit.MaxBodyBytes {
		return nil, release, errBodyTooLarge
	}
	if err := checkContent(c.r.Header); err != nil {
		return nil, release, err
	}
	stop := c.hurry()
	body, err = c.readAll(arriving)
	stop()
	return body, release, err
}

// hurry bounds the reading of the body once the node drains, until stop is called.
func (c *call) hurry() (stop func()) {
	control := http.NewResponseController(c.w)
	set := make(chan struct{})
	forget := context.AfterFunc(c.drained, func() {
		defer close(set)
		_ = control.SetReadDeadline(time.Now().Add(c.patience)) // what has no deadlines has no connection
	})
	return func() {
		if forget() {
			return
		}
		<-set
		c.endDeadline()
	}
}

// endDeadline takes back the deadline of a body that is there: it would cancel the request.
func (c *call) endDeadline() {
	if c.read {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	}
}

// dropBody bounds how long net/http waits for the rest of a body that is not wanted.
func (c *call) dropBody() {
	if c.r.ContentLength != 0 && !c.read {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(leftoverPatience))
	}
}

func (c *call) readAll(arriving *arrival) ([]byte, error) {
	// What is announced is only believed as it arrives. net/http ends a body that is shorter
	// than its length with an error.
	var body bytes.Buffer
	body.Grow(int(min(max(0, c.r.ContentLength), firstBuffer)) + bytes.MinRead)
	arriving.body = http.MaxBytesReader(c.w, c.r.Body, orbit.MaxBodyBytes)
	_, err := body.ReadFrom(arriving)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errBodyTooLarge
	case errors.Is(err, errBusy):
		return nil, err
	case err != nil && c.malformed(err):
		return nil, badRequest("body: its chunked transfer coding is malformed")
	case err != nil:
		// Not 400: that would tell a sender whose network is slow that its content is bad.
		return nil, unavailable("the body could not be read to its end; nothing was accepted")
	}
	c.read = true
	c.endDeadline()
	return body.Bytes(), nil
}

// malformed reports whether err is about the form of a chunked body and not about the
// connection: net/http has no exported error for that.
func (c *call) malformed(err error) bool {
	var network net.Error // a deadline, a reset
	return c.r.ContentLength < 0 && !errors.As(err, &network) && c.r.Context().Err() == nil &&
		!errors.Is(err, io.EOF) && !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error())
}

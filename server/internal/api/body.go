package api

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/orbitkit/orbit"
)

var errBodyTooLarge = &refusal{
	status:  http.StatusRequestEntityTooLarge,
	code:    orbit.CodeBodyTooLarge,
	message: "body must be at most 524288 bytes: send a reference to a large object instead",
}

// readBody reads the body of a write, at most 512 KiB (API-005). What it takes of the
// node's budget stays taken until release is called, which must be, after an error too.
func (c *call) readBody() (body []byte, release func(), err error) {
	release = func() {}
	size := c.r.ContentLength
	if size > orbit.MaxBodyBytes {
		return nil, release, errBodyTooLarge
	}
	if err := checkContent(c.r.Header); err != nil {
		return nil, release, err
	}
	if size < 0 { // not told
		size = orbit.MaxBodyBytes
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), bodyPatience)
	defer cancel()
	if err := c.bodies.Acquire(ctx, size); err != nil {
		return nil, release, unavailable("the server is busy; nothing was accepted")
	}
	release = func() { c.bodies.Release(size) }
	body, err = c.readAll()
	return body, release, err
}

func (c *call) readAll() ([]byte, error) {
	body := make([]byte, max(0, c.r.ContentLength))
	var err error
	if c.r.ContentLength >= 0 {
		_, err = io.ReadFull(c.r.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, orbit.MaxBodyBytes))
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errBodyTooLarge
	case err != nil:
		// Not 400: that would tell a sender whose network is slow that its content is bad.
		return nil, unavailable("the body could not be read to its end; nothing was accepted")
	}
	return body, nil
}

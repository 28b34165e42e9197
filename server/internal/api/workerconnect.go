package api

import (
	"bufio"
	"net"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// worker hands the request to the handler of worker connections, which answers it.
func (c *call) worker() error {
	w := &noted{ResponseWriter: c.w}
	c.cfg.Worker.ServeHTTP(w, c.r)
	if code, refused := workerCodes[w.status]; refused {
		c.logRefusal(w.status, code, wire.Path)
	}
	return nil
}

// workerCodes are the codes of the refusals of that handler. What is unavailable it logs
// itself.
var workerCodes = map[int]string{
	http.StatusBadRequest:   orbit.CodeInvalidArgument,
	http.StatusUnauthorized: orbit.CodeUnauthenticated,
	http.StatusForbidden:    orbit.CodePermissionDenied,
}

// A noted notes the status of an answer.
type noted struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *noted) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Hijack implements [http.Hijacker], which WebSockets ask for.
func (w *noted) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for [http.ResponseController].
func (w *noted) Unwrap() http.ResponseWriter { return w.ResponseWriter }

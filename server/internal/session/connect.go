package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
)

const authTimeout = 10 * time.Second

// newUpgrader keeps no write buffer for an idle connection, and no read buffer beside
// that of the HTTP server.
func newUpgrader(cfg Config) websocket.Upgrader {
	return websocket.Upgrader{
		HandshakeTimeout: cfg.WriteTimeout,
		Subprotocols:     []string{wire.Protocol},
		WriteBufferSize:  4096,
		WriteBufferPool:  &sync.Pool{},
		CheckOrigin:      func(*http.Request) bool { return true }, // refused before, in words of ours
	}
}

// A denial answers a request that does not become a connection.
type denial struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration
}

// ServeHTTP takes a worker's connection. It returns when that is open: the goroutine of the
// HTTP server would keep the request, its buffers and a stack that TLS has made large for as
// long as the connection lasts.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	principal, d := h.admit(r)
	if d != nil {
		d.send(w)
		return
	}
	s := newSession(h, principal)
	if d := h.enter(s); d != nil {
		d.send(w)
		return
	}
	ws, err := h.upgrader.Upgrade(gatheringWriter{w}, r, nil)
	if err != nil {
		h.exit(s)
		return // it has answered
	}
	s.ws, s.out = ws, ws.NetConn().(*wire.GatherConn)
	go h.serve(context.WithoutCancel(r.Context()), s)
}

// A gatheringWriter has the connection that is taken over gather what is written to it.
type gatheringWriter struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker].
func (w gatheringWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return wire.Gather(conn), buffered, nil
}

// serve serves a connection until it ends. A mistake of ours in it ends only itself.
func (h *Hub) serve(ctx context.Context, s *session) {
	defer h.exit(s)
	defer func() {
		if mistake := recover(); mistake != nil {
			h.log.ErrorContext(ctx, "connection failed", "panic", mistake, "stack", string(debug.Stack()))
			s.end(websocket.CloseInternalServerErr, "")
		}
	}()
	s.serve(ctx)
}

// admit decides whether a request may become a connection.
func (h *Hub) admit(r *http.Request) (auth.Principal, *denial) {
	if len(r.Header["Origin"]) > 0 {
		return auth.Principal{}, &denial{http.StatusForbidden, orbit.CodePermissionDenied, "browsers may not connect", 0}
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	p, err := h.auth.Authenticate(ctx, r)
	var refused *auth.Error
	switch {
	case errors.As(err, &refused):
		return p, &denial{http.StatusUnauthorized, orbit.CodeUnauthenticated, refused.Reason, refused.RetryAfter}
	case err != nil:
		h.log.ErrorContext(r.Context(), "authentication failed", "err", err)
		return p, &denial{http.StatusServiceUnavailable, orbit.CodeUnavailable, "the credential could not be looked up", time.Second}
	case !p.Can(auth.WorkersConnect):
		return p, &denial{http.StatusForbidden, orbit.CodePermissionDenied, "the credential lacks the permission " + auth.WorkersConnect, 0}
	case !websocket.IsWebSocketUpgrade(r):
		return p, &denial{http.StatusBadRequest, orbit.CodeInvalidArgument, "a WebSocket upgrade is required here", 0}
	case !slices.Contains(websocket.Subprotocols(r), wire.Protocol):
		return p, &denial{http.StatusBadRequest, orbit.CodeInvalidArgument, "the subprotocol " + wire.Protocol + " is required", 0}
	}
	return p, nil
}

// send answers in the envelope of every error (API-022). The request's id is that of who
// wraps the hub, if somebody does.
func (d *denial) send(w http.ResponseWriter) {
	header := w.Header()
	id := header.Get(orbit.HeaderRequestID)
	if !orbit.ValidID(id) {
		id = sqldb.NewID().String()
		header.Set(orbit.HeaderRequestID, id)
	}
	type inner struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	body, err := json.Marshal(struct {
		RequestID string `json:"request_id"`
		Error     inner  `json:"error"`
	}{id, inner{d.code, d.message}})
	if err != nil {
		panic(err) // plain strings
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if d.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(max(d.retryAfter, time.Second)/time.Second)))
	}
	if d.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(d.status)
	w.Write(body) // a client that has gone is nobody's error
}

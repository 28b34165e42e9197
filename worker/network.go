package worker

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// A Network tunes how connections are opened. The zero value is ready to use.
type Network struct {
	// TLS is used for https and wss addresses. Default: the system's roots.
	TLS *tls.Config
	// AllowInsecure permits http and ws addresses that are not loopback: token and
	// payloads then travel in clear text. Default false.
	AllowInsecure bool
	// DialContext opens the TCP connection. Default: net.Dialer.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy chooses the HTTP proxy for the address, as in http.Transport.
	// Default: http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// HandshakeTimeout bounds TCP, TLS, upgrade and registration together.
	// Default 10s.
	HandshakeTimeout time.Duration
	// WriteTimeout bounds the writing of one message; a connection that takes
	// longer is given up. Default 10s.
	WriteTimeout time.Duration
}

func (n Network) withDefaults() Network {
	if n.DialContext == nil {
		n.DialContext = new(net.Dialer).DialContext
	}
	if n.Proxy == nil {
		n.Proxy = http.ProxyFromEnvironment
	}
	if n.HandshakeTimeout == 0 {
		n.HandshakeTimeout = 10 * time.Second
	}
	if n.WriteTimeout == 0 {
		n.WriteTimeout = 10 * time.Second
	}
	return n
}

func (n Network) validate() error {
	if n.HandshakeTimeout < 0 {
		return refuse("Network.HandshakeTimeout", "%v must not be negative", n.HandshakeTimeout)
	}
	if n.WriteTimeout < 0 {
		return refuse("Network.WriteTimeout", "%v must not be negative", n.WriteTimeout)
	}
	return nil
}

// endpoint turns the address of a server into that of its worker endpoint. Its
// errors do not repeat the address, which could hold a password.
func endpoint(address string, insecure bool) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return "", refuse("url", "must be like https://orbit.example:8443")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", refuse("url", "must have no user, query or fragment")
	}
	switch u.Scheme {
	case "https", "wss":
		u.Scheme = "wss"
	case "http", "ws":
		u.Scheme = "ws"
		if !insecure && !loopback(u.Hostname()) {
			return "", refuse("url", "%s is only for loopback addresses: use https, or set Network.AllowInsecure", u.Scheme)
		}
	default:
		return "", refuse("url", "scheme must be https, wss, http or ws")
	}
	u.Path = strings.TrimRight(u.Path, "/") + wire.Path
	return u.String(), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() || ip == nil && strings.EqualFold(host, "localhost")
}

func checkToken(token string) error {
	const most = 4096
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || len(token) > most || strings.IndexFunc(token, unprintable) >= 0 {
		return refuse("token", "must be 1 to %d printable ASCII characters without blanks", most)
	}
	return nil
}

// open makes a WebSocket connection that speaks our subprotocol. The end of ctx
// interrupts it at once. It returns the TCP connection below, too.
func (n Network) open(ctx context.Context, target, token string) (*websocket.Conn, *wire.GatherConn, error) {
	stop := func() bool { return true }
	var out *wire.GatherConn
	dialer := websocket.Dialer{
		Proxy:           n.Proxy,
		TLSClientConfig: n.tls(),
		Subprotocols:    []string{wire.Protocol},
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := n.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			out = wire.Gather(conn)
			stop = context.AfterFunc(ctx, func() { conn.Close() })
			return out, nil
		},
	}
	ws, answer, err := dialer.DialContext(ctx, target, http.Header{"Authorization": {"Bearer " + token}})
	interrupted := !stop()
	switch {
	case err == nil && !interrupted:
		return ws, out, checkUpgrade(ws, answer)
	case err == nil:
		ws.Close()
		return nil, nil, fmt.Errorf("worker: connect: %w", context.Cause(ctx))
	case errors.Is(err, websocket.ErrBadHandshake) && answer != nil && answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, nil, newHandshakeError(answer, time.Now())
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("worker: connect: %w", context.Cause(ctx))
	}
	return nil, nil, fmt.Errorf("worker: connect: %w", err)
}

func (n Network) tls() *tls.Config {
	if n.TLS == nil {
		return nil
	}
	cfg := n.TLS.Clone()
	cfg.NextProtos = []string{"http/1.1"} // WebSocket has no other
	return cfg
}

// checkUpgrade refuses a connection whose parameters we did not ask for. An
// extension could let a small frame unpack to any size.
func checkUpgrade(ws *websocket.Conn, answer *http.Response) error {
	if ws.Subprotocol() != wire.Protocol {
		return broken("handshake: subprotocol must be %s", wire.Protocol)
	}
	if answer.Header.Get("Sec-WebSocket-Extensions") != "" {
		return broken("handshake: no extension was offered")
	}
	return nil
}

func newHandshakeError(answer *http.Response, now time.Time) *HandshakeError {
	e := &HandshakeError{Status: answer.StatusCode}
	if id := answer.Header.Get(orbit.HeaderRequestID); orbit.ValidID(id) {
		e.RequestID = id
	}
	if after, ok := orbit.ParseRetryAfter(answer.Header.Get("Retry-After"), now); ok {
		e.RetryAfter, e.HasRetryAfter = max(0, after), true
	}
	var said struct {
		Error struct{ Code, Message string }
	}
	// Best effort: the body is for people, and only Orbit's own codes are shown.
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if json.Unmarshal(body, &said) == nil && orbit.CodeBelongsTo(e.Status, said.Error.Code) {
		e.Code, e.Message = said.Error.Code, said.Error.Message
	}
	return e
}

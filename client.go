package orbit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ClientConfig tunes a [Client]. The zero value is ready to use.
type ClientConfig struct {
	// Transport carries the requests. It must not repeat a request by itself.
	// Default: a copy of http.DefaultTransport that keeps 64 idle connections.
	Transport http.RoundTripper
	// Timeout bounds one call from dialling to the end of the answer, besides the
	// caller's context. Default 30s; negative means none.
	Timeout time.Duration
	// AllowInsecure permits plain http to addresses other than loopback, where
	// the token can be read on the way. Default false.
	AllowInsecure bool
	// MinimalBatchAnswers makes SubmitFrozenBatch ask for tasks of six fields
	// (id, queue_id, handler, state, revision, created_at). Default false.
	MinimalBatchAnswers bool
	// Traceparent returns the W3C trace context that SubmitTask sends along, and SubmitTasks
	// with each item that has none of its own, from the caller's context; "" sends none. The
	// request of a batch, SubmitFrozenBatch's too, carries it besides as its own.
	// What it returns must pass ValidateTraceparent. Default: none.
	Traceparent func(context.Context) string
}

// A Client talks to one task server with one credential. It never repeats a
// request, never follows a redirect and never makes up a key. It is safe for
// concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
	cfg   ClientConfig
}

// NewClient returns a client for the server at baseURL, such as
// https://orbit.example or http://127.0.0.1:8080. Plain http is refused for
// addresses other than loopback. Nothing is sent yet.
func NewClient(baseURL, token string, cfg ClientConfig) (*Client, error) {
	base, err := checkBaseURL(baseURL, cfg.AllowInsecure)
	if err != nil {
		return nil, fmt.Errorf("orbit: server URL: %w", err)
	}
	if token == "" || strings.IndexFunc(token, notPrintable) >= 0 {
		return nil, errors.New("orbit: token must be printable ASCII without blanks, and not empty")
	}
	if cfg.Transport == nil {
		cfg.Transport = defaultTransport()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	c := &http.Client{Transport: cfg.Transport, Timeout: max(0, cfg.Timeout), CheckRedirect: neverFollow}
	return &Client{base: base, token: token, http: c, cfg: cfg}, nil
}

// neverFollow makes a redirect an answer like any other: the default would follow
// a 302 of a POST as a GET.
func neverFollow(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func defaultTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true // bounds are on the bytes read
	return t
}

// checkBaseURL returns the URL without a slash at its end. Its errors do not show
// the URL, which may hold a password.
func checkBaseURL(text string, allowInsecure bool) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return "", errors.New("must be an absolute http or https URL")
	case u.User != nil:
		return "", errors.New("must not contain a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New("must not have a query or fragment")
	case u.Scheme == "http" && !allowInsecure && !isLoopback(u.Hostname()):
		return "", fmt.Errorf("must be https: plain http is for loopback addresses only, not %q", u.Hostname())
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("must be http or https, not %q", u.Scheme)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// String names the server and not the token.
func (c *Client) String() string { return "orbit client of " + c.base }

// GoString is [Client.String].
func (c *Client) GoString() string { return c.String() }

// CloseIdleConnections closes connections that carry no request.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

package orbit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Headers of the contract.
const (
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderRequestID      = "X-Request-Id"
	HeaderContentDigest  = "Orbit-Content-Digest"
	HeaderReplayed       = "Orbit-Idempotent-Replayed"
	HeaderTraceparent    = "Traceparent"
)

// An Answer is what came back for one frozen submit. It reports facts and draws no
// conclusion. Exactly one of Accepted, Err and Unreadable is set.
type Answer struct {
	Status        int    // HTTP status, or that of the item in a batch
	RequestID     string // header X-Request-ID; "" if missing or malformed
	ContentDigest string // as answered, see ParseDigest; "" if missing
	Replayed      bool   // the answer repeats the receipt of an earlier one
	RetryAfter    time.Duration
	HasRetryAfter bool // RetryAfter was given; it is not clamped

	// Accepted is a 200 or 201 with a valid success envelope, whose task has at
	// least an id, a queue and a handler.
	Accepted *Accepted
	// Err is a valid error envelope: a code that belongs to the status, and the
	// request id of the header. Only Orbit answers so.
	Err *APIError
	// Unreadable tells why the answer is neither: another status, no JSON, a
	// body cut off or too long, a request id that does not match.
	Unreadable error
}

// A BatchAnswer is what came back for a batch. Exactly one of Items, Err and
// Unreadable is set. Items has one answer for each item sent, in order, and is set
// only for status 200.
type BatchAnswer struct {
	Status        int
	RequestID     string
	RetryAfter    time.Duration
	HasRetryAfter bool
	Items         []Answer
	Err           *APIError
	Unreadable    error
}

// Accepted is the receipt of a submit: the database has taken the command. It does
// not mean that the business work is done. For a repeat it is the first receipt,
// whatever has become of the task since.
type Accepted struct {
	Deduplicated  bool
	Task          Task
	RequestID     string
	ContentDigest string // orbit-json-v1:<hex>; "" if the server gave none
	Replayed      bool
}

// reply is an answer as it came from the network.
type reply struct {
	status    int
	header    http.Header
	body      []byte
	broken    error // the body could not be read to its end
	requestID string
}

// exchange sends one request and reads at most limit bytes of its answer. Its
// error means that there is no answer.
func (c *Client) exchange(req *http.Request, limit int64) (reply, error) {
	req.Header.Set("Authorization", "Bearer "+c.token)
	// With GetBody, and always for a request with an Idempotency-Key, the
	// transport would send a write again by itself on a new connection.
	req.GetBody = nil
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if ids := resp.Header[HeaderRequestID]; len(ids) == 1 && ValidID(ids[0]) {
		r.requestID = ids[0]
	}
	r.body, r.broken = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if r.broken == nil && int64(len(r.body)) > limit {
		r.broken = fmt.Errorf("answer is longer than %d bytes", limit)
	}
	return r, nil
}

func (c *Client) newRequest(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if method == http.MethodGet {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// envelope is the outside of every answer.
type envelope struct {
	RequestID string         `json:"request_id"`
	Data      jsontext.Value `json:"data"`
	Error     *errorBody     `json:"error"`
}

type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

var (
	errNoEnvelope  = errors.New("answer is not an Orbit envelope")
	errRequestID   = errors.New("request_id of the answer does not equal its X-Request-ID")
	errForeignCode = errors.New("error code does not belong to the HTTP status")
)

// open reads the envelope. Exactly one of the three results is set.
func (r *reply) open() (data jsontext.Value, refused *APIError, unreadable error) {
	if r.broken != nil {
		return nil, nil, fmt.Errorf("read answer: %w", r.broken)
	}
	var e envelope
	if err := jsonv2.Unmarshal(r.body, &e); err != nil {
		return nil, nil, errNoEnvelope // the cause would quote a foreign body
	}
	if e.RequestID == "" || e.RequestID != r.requestID {
		return nil, nil, errRequestID
	}
	success := r.status >= 200 && r.status < 300
	switch {
	case success && e.Error == nil && len(e.Data) > 0 && e.Data.Kind() == '{':
		return e.Data, nil, nil
	case success || e.Error == nil || len(e.Data) > 0:
		return nil, nil, errNoEnvelope
	}
	refused, unreadable = e.Error.apiError(r.status, r.requestID)
	if refused != nil {
		refused.RetryAfter, refused.HasRetryAfter = r.retryAfter()
	}
	return nil, refused, unreadable
}

func (b *errorBody) apiError(status int, requestID string) (*APIError, error) {
	if !CodeBelongsTo(status, b.Code) {
		return nil, errForeignCode
	}
	return &APIError{Status: status, Code: b.Code, Message: b.Message, RequestID: requestID}, nil
}

func (r *reply) retryAfter() (time.Duration, bool) {
	return ParseRetryAfter(r.header.Get("Retry-After"), time.Now())
}

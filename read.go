package orbit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// GetTask reads the present state of a task. A task that does not exist, lies in
// another namespace or outside the credential's queues gives an [*APIError] with
// CodeNotFound.
func (c *Client) GetTask(ctx context.Context, id string) (Task, error) {
	if !ValidID(id) {
		return Task{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	var w wireTask
	if err := c.get(ctx, "get task", submitPath+"/"+id, maxSingleAnswer, &w); err != nil {
		return Task{}, err
	}
	if w.ID != id {
		return Task{}, unread(&UnknownOutcomeError{Act: "get task", Status: http.StatusOK, Err: errors.New("answer has another task")})
	}
	return w.task(), nil
}

// PageRequest asks for one page of a list without filters.
type PageRequest struct {
	Limit  int    // 1 to 100; 0 means the server's default of 20
	Cursor string // NextCursor of the page before; empty for the first
}

// An AttemptPage is one page of attempts, the newest first.
type AttemptPage struct {
	Items      []Attempt `json:"items"`
	NextCursor string    `json:"next_cursor,omitempty"` // empty on the last page
}

// ListAttempts reads the history of a task, one page at a time.
func (c *Client) ListAttempts(ctx context.Context, taskID string, r PageRequest) (AttemptPage, error) {
	if !ValidID(taskID) {
		return AttemptPage{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	var page AttemptPage
	path := withQuery(submitPath+"/"+taskID+"/attempts", pageQuery(r.Limit, r.Cursor))
	return page, c.get(ctx, "list attempts", path, maxBatchAnswer, &page) // a server fills a page beyond 1 MiB
}

// Attempts reads all pages of [Client.ListAttempts] from r.Cursor on. It ends with the
// first error.
func (c *Client) Attempts(ctx context.Context, taskID string, r PageRequest) iter.Seq2[Attempt, error] {
	return pages(r.Cursor, func(cursor string) ([]Attempt, string, error) {
		r.Cursor = cursor
		page, err := c.ListAttempts(ctx, taskID, r)
		return page.Items, page.NextCursor, err
	})
}

// GetAttempt reads one attempt of a task. It is for verification and gives no right to
// execute.
func (c *Client) GetAttempt(ctx context.Context, taskID, attemptID string) (Attempt, error) {
	path, err := partPath(taskID, "attempts", attemptID)
	if err != nil {
		return Attempt{}, err
	}
	var a Attempt
	return a, c.get(ctx, "read attempt", path, maxSingleAnswer, &a)
}

// Capabilities are what a server says of itself and of the credential (API-032).
type Capabilities struct {
	Contract               string        `json:"contract"` // "orbit.task.v1"
	Digests                []string      `json:"digests"`
	IdempotencyRetentionMS uint64        `json:"idempotency_retention_ms"`
	Batch                  BatchCapacity `json:"batch"`
	WorkerProtocols        []string      `json:"worker_protocols"`
	ApplicationID          string        `json:"application_id"`
	NamespaceID            string        `json:"namespace_id"`
	Permissions            []string      `json:"permissions"`
}

// BatchCapacity bounds one batch.
type BatchCapacity struct {
	MaxItems int `json:"max_items"`
	MaxBytes int `json:"max_bytes"`
}

// ContractName is the contract that this package speaks.
const ContractName = "orbit.task.v1"

// Capabilities asks the server which contract it speaks and for which namespace
// the credential stands. An answer of another contract is an error: whoever
// answered is not the task server that was meant.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	var caps Capabilities
	if err := c.get(ctx, "read capabilities", "/v1/capabilities", maxSingleAnswer, &caps); err != nil {
		return Capabilities{}, err
	}
	if caps.Contract != ContractName || !ValidID(caps.NamespaceID) || !ValidID(caps.ApplicationID) {
		err := fmt.Errorf("answer is not one of contract %s", ContractName)
		return Capabilities{}, unread(&UnknownOutcomeError{Act: "read capabilities", Status: http.StatusOK, Err: err})
	}
	return caps, nil
}

// get reads the data of a 200, whose answer has at most limit bytes, into v.
func (c *Client) get(ctx context.Context, act, path string, limit int64, v any) error {
	req, err := c.newRequest(ctx, http.MethodGet, path, nil)
	if err != nil {
		return fmt.Errorf("orbit: %s: %w", act, err)
	}
	r, err := c.exchange(req, limit)
	if err != nil {
		return unread(&UnknownOutcomeError{Act: act, Err: err})
	}
	data, refused, unreadable := r.open()
	if data == nil {
		return unread(failed(act, r.status, refused, unreadable))
	}
	if err := readData(r.status, data, v); err != nil {
		return unread(&UnknownOutcomeError{Act: act, Status: r.status, Err: err})
	}
	return nil
}

// A readError is an UnknownOutcomeError, which it wraps, in the words of a read: a read
// has no outcome that could be unknown.
type readError struct{ unknown *UnknownOutcomeError }

// unread puts err into the words of a read. A refusal is returned as it is.
func unread(err error) error {
	if unknown, ok := err.(*UnknownOutcomeError); ok {
		return &readError{unknown}
	}
	return err
}

// Unwrap returns the UnknownOutcomeError.
func (e *readError) Unwrap() error { return e.unknown }

// Error returns the act, what went wrong and, where it may be at fault, the address.
func (e *readError) Error() string {
	u := e.unknown
	var refused *APIError
	switch {
	case u.Status == 0 && errors.Is(u.Err, context.Canceled):
		return fmt.Sprintf("orbit: %s: canceled: %v", u.Act, u.Err)
	case u.Status == 0:
		return fmt.Sprintf("orbit: %s: no answer from the server: %v", u.Act, u.Err)
	case errors.As(u.Err, &refused):
		return fmt.Sprintf("orbit: %s: server answered %d %s: %s (request %s)", u.Act, refused.Status, refused.Code, refused.Message, refused.RequestID)
	case u.Status >= 300 && u.Status < 400:
		return fmt.Sprintf("orbit: %s: server redirects (HTTP status %d), which is not followed: check the address", u.Act, u.Status)
	case u.Status >= 500:
		return fmt.Sprintf("orbit: %s: answer is of no use (HTTP status %d): %v", u.Act, u.Status, u.Err)
	}
	return fmt.Sprintf("orbit: %s: answer is of no use (HTTP status %d): %v: check the address", u.Act, u.Status, u.Err)
}

func readData(status int, data jsontext.Value, v any) error {
	if status != http.StatusOK {
		return errors.New("HTTP status is not the one of a read")
	}
	if err := jsonv2.Unmarshal(data, v); err != nil {
		return errors.New("data of the answer cannot be read")
	}
	return nil
}

package orbit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
)

// Bounds of a queue and an application.
const (
	MaxQueueName = 128           // bytes
	MaxLimit     = 1_000_000_000 // of max_backlog, max_concurrency, max_unfinished and max_active_attempts
)

const queuesPath = "/v1/queues"

// A Queue is a queue of the credential's namespace.
type Queue struct {
	ID             string
	NamespaceID    string
	Name           string
	MaxBacklog     uint64  // most unfinished tasks, those in review included; 0 means no limit
	MaxConcurrency uint64  // most attempts at one time; 0 means no limit
	Paused         bool    // nothing is dispatched; what runs goes on
	Unfinished     *uint64 // nil while MaxBacklog is 0: it is not counted then
	ActiveAttempts uint64
	Revision       uint64
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// AppendJSON appends the contract form of q.
func (q *Queue) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("id", q.ID)
	o.string("namespace_id", q.NamespaceID)
	o.string("name", q.Name)
	o.uint("max_backlog", q.MaxBacklog)
	o.uint("max_concurrency", q.MaxConcurrency)
	o.bool("paused", q.Paused)
	o.optionalCount("unfinished", q.Unfinished)
	o.uint("active_attempts", q.ActiveAttempts)
	o.decimal("revision", q.Revision)
	o.time("created_at", q.CreatedAt)
	o.time("updated_at", q.UpdatedAt)
	return o.end()
}

// MarshalJSON returns the contract form.
func (q Queue) MarshalJSON() ([]byte, error) { return q.AppendJSON(nil), nil }

// UnmarshalJSON reads the contract form. Unknown members are ignored.
func (q *Queue) UnmarshalJSON(data []byte) error {
	var w struct {
		ID             string      `json:"id"`
		NamespaceID    string      `json:"namespace_id"`
		Name           string      `json:"name"`
		MaxBacklog     uint64      `json:"max_backlog"`
		MaxConcurrency uint64      `json:"max_concurrency"`
		Paused         bool        `json:"paused"`
		Unfinished     *uint64     `json:"unfinished"`
		ActiveAttempts uint64      `json:"active_attempts"`
		Revision       decimalUint `json:"revision"`
		CreatedAt      wireTime    `json:"created_at"`
		UpdatedAt      wireTime    `json:"updated_at"`
	}
	if err := jsonv2.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("orbit: read queue: %w", err)
	}
	*q = Queue{
		ID: w.ID, NamespaceID: w.NamespaceID, Name: w.Name, MaxBacklog: w.MaxBacklog, MaxConcurrency: w.MaxConcurrency,
		Paused: w.Paused, Unfinished: w.Unfinished, ActiveAttempts: w.ActiveAttempts,
		Revision: uint64(w.Revision), CreatedAt: time.Time(w.CreatedAt), UpdatedAt: time.Time(w.UpdatedAt),
	}
	return nil
}

// ValidateQueueName refuses a name that is not 1 to 128 bytes of valid UTF-8 without
// control characters and without white space at either end. Its error is an
// [*InvalidArgumentError].
func ValidateQueueName(name string) error {
	const field = "name"
	switch {
	case name == "":
		return invalid(field, "is required")
	case len(name) > MaxQueueName:
		return invalid(field, "must be at most 128 bytes")
	case !utf8.ValidString(name):
		return invalid(field, "must be valid UTF-8")
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return invalid(field, "must not contain control characters")
	case strings.TrimSpace(name) != name:
		return invalid(field, "must not begin or end with white space")
	}
	return nil
}

func validLimit(field string, limit uint64) error {
	if limit > MaxLimit {
		return invalidf(field, "must be at most %d (0 means no limit)", MaxLimit)
	}
	return nil
}

// CreateQueueRequest asks for a new queue.
type CreateQueueRequest struct {
	Name           string
	MaxBacklog     uint64 // 0 means no limit
	MaxConcurrency uint64 // 0 means no limit
}

type wireCreateQueue struct {
	Name           string `json:"name" strict:"required"`
	MaxBacklog     uint64 `json:"max_backlog"`
	MaxConcurrency uint64 `json:"max_concurrency"`
}

// ParseCreateQueue reads the body of POST /v1/queues strictly (AMB-072) and returns the
// digest of its content. Its errors are [*InvalidArgumentError].
func ParseCreateQueue(body []byte) (CreateQueueRequest, Digest, error) {
	var w wireCreateQueue
	if err := decode(body, &w); err != nil {
		return CreateQueueRequest{}, Digest{}, err
	}
	r := CreateQueueRequest(w)
	if err := r.validate(); err != nil {
		return CreateQueueRequest{}, Digest{}, err
	}
	return r, digestOf(r.appendCanonical(nil)), nil
}

func (r CreateQueueRequest) validate() error {
	if err := ValidateQueueName(r.Name); err != nil {
		return err
	}
	if err := validLimit("max_backlog", r.MaxBacklog); err != nil {
		return err
	}
	return validLimit("max_concurrency", r.MaxConcurrency)
}

func (r CreateQueueRequest) appendCanonical(dst []byte) []byte {
	c := canonical{object{dst: append(dst, '{')}}
	c.uint("max_backlog", r.MaxBacklog)
	c.uint("max_concurrency", r.MaxConcurrency)
	c.string("name", r.Name)
	return c.end()
}

// CreateQueue makes a queue, once, under key. A name that exists gives an [*APIError] with
// CodeStateConflict; other errors are as for [Client.SubmitTask].
func (c *Client) CreateQueue(ctx context.Context, key string, r CreateQueueRequest) (Queue, error) {
	if err := r.validate(); err != nil {
		return Queue{}, err
	}
	o := object{dst: []byte{'{'}}
	o.string("name", r.Name)
	o.optionalUint("max_backlog", r.MaxBacklog)
	o.optionalUint("max_concurrency", r.MaxConcurrency)
	return c.runOnQueue(ctx, command{
		act: "create queue", method: http.MethodPost, path: queuesPath, key: key,
		body: o.end(), success: []int{http.StatusOK, http.StatusCreated},
	})
}

// UpdateQueueRequest changes a queue. What is nil stays as it is; something must be set.
type UpdateQueueRequest struct {
	ExpectedRevision uint64 // revision that the caller has seen; not zero
	Name             *string
	MaxBacklog       *uint64 // 0 means no limit; tasks over a lower one stay
	MaxConcurrency   *uint64 // 0 means no limit; attempts over a lower one go on
	Paused           *bool
}

type wireUpdateQueue struct {
	ExpectedRevision decimalUint `json:"expected_revision" strict:"required"`
	Name             *string     `json:"name"`
	MaxBacklog       *uint64     `json:"max_backlog"`
	MaxConcurrency   *uint64     `json:"max_concurrency"`
	Paused           *bool       `json:"paused"`
}

// ParseUpdateQueue reads the body of PATCH /v1/queues/{queue_id} strictly and returns the
// digest of its content. Its errors are [*InvalidArgumentError].
func ParseUpdateQueue(body []byte) (UpdateQueueRequest, Digest, error) {
	var w wireUpdateQueue
	if err := decode(body, &w); err != nil {
		return UpdateQueueRequest{}, Digest{}, err
	}
	r := UpdateQueueRequest{uint64(w.ExpectedRevision), w.Name, w.MaxBacklog, w.MaxConcurrency, w.Paused}
	if err := r.validate(); err != nil {
		return UpdateQueueRequest{}, Digest{}, err
	}
	return r, digestOf(r.append(nil, true)), nil
}

func (r UpdateQueueRequest) validate() error {
	if err := validRevision(r.ExpectedRevision); err != nil {
		return err
	}
	if r.Name == nil && r.MaxBacklog == nil && r.MaxConcurrency == nil && r.Paused == nil {
		return invalid("body", "must set name, max_backlog, max_concurrency or paused")
	}
	if r.Name != nil {
		if err := ValidateQueueName(*r.Name); err != nil {
			return err
		}
	}
	if err := validOptionalLimit("max_backlog", r.MaxBacklog); err != nil {
		return err
	}
	return validOptionalLimit("max_concurrency", r.MaxConcurrency)
}

func validOptionalLimit(field string, limit *uint64) error {
	if limit == nil {
		return nil
	}
	return validLimit(field, *limit)
}

// append encodes a valid request, its members in the order of the canonical form.
func (r UpdateQueueRequest) append(dst []byte, canonical bool) []byte {
	o := object{dst: append(dst, '{')}
	o.decimal("expected_revision", r.ExpectedRevision)
	o.limit("max_backlog", r.MaxBacklog, canonical)
	o.limit("max_concurrency", r.MaxConcurrency, canonical)
	if r.Name != nil {
		o.string("name", *r.Name)
	}
	if r.Paused != nil {
		o.bool("paused", *r.Paused)
	}
	return o.end()
}

// UpdateQueue changes a queue, once, under key. A stale revision and a name that another
// queue has give an [*APIError] with CodeStateConflict; other errors are as for
// [Client.SubmitTask].
func (c *Client) UpdateQueue(ctx context.Context, queueID, key string, r UpdateQueueRequest) (Queue, error) {
	if !ValidID(queueID) {
		return Queue{}, invalid("queue_id", "must be 32 lower-case hexadecimal characters")
	}
	if err := r.validate(); err != nil {
		return Queue{}, err
	}
	return c.runOnQueue(ctx, command{
		act: "update queue", method: http.MethodPatch, path: queuesPath + "/" + queueID, key: key,
		body: r.append(nil, false), success: []int{http.StatusOK},
	})
}

func (c *Client) runOnQueue(ctx context.Context, cmd command) (Queue, error) {
	r, data, err := c.run(ctx, cmd)
	if err != nil {
		return Queue{}, err
	}
	var q Queue
	if err := q.UnmarshalJSON(data); err != nil || !ValidID(q.ID) {
		return Queue{}, &UnknownOutcomeError{Act: cmd.act, Status: r.status, Err: errors.New("data of the answer is not a queue")}
	}
	return q, nil
}

// GetQueue reads a queue. One that does not exist, lies in another namespace or outside
// the credential's queues gives an [*APIError] with CodeNotFound.
func (c *Client) GetQueue(ctx context.Context, queueID string) (Queue, error) {
	if !ValidID(queueID) {
		return Queue{}, invalid("queue_id", "must be 32 lower-case hexadecimal characters")
	}
	var q Queue
	return q, c.get(ctx, "read queue", queuesPath+"/"+queueID, maxSingleAnswer, &q)
}

// A QueuePage is one page of queues, in the order of their names.
type QueuePage struct {
	Items      []Queue `json:"items"`
	NextCursor string  `json:"next_cursor,omitempty"` // empty on the last page
}

// ListQueues reads the queues that the credential may use, one page at a time.
func (c *Client) ListQueues(ctx context.Context, r PageRequest) (QueuePage, error) {
	var page QueuePage
	return page, c.get(ctx, "list queues", withQuery(queuesPath, pageQuery(r.Limit, r.Cursor)), maxSingleAnswer, &page)
}

// Queues reads all pages of [Client.ListQueues] from r.Cursor on. It ends with the first
// error.
func (c *Client) Queues(ctx context.Context, r PageRequest) iter.Seq2[Queue, error] {
	return pages(r.Cursor, func(cursor string) ([]Queue, string, error) {
		r.Cursor = cursor
		page, err := c.ListQueues(ctx, r)
		return page.Items, page.NextCursor, err
	})
}

package orbit

import (
	"errors"
	"strings"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// A BatchEntry is one item of a batch as the server reads it. If Err is set, the
// item is refused with it and the other fields, Key aside, mean nothing.
type BatchEntry struct {
	Key         string // idempotency key; empty if it could not be read
	Submission  Submission
	Traceparent string // empty if not given
	Err         error  // an *InvalidArgumentError with a path inside the item
}

// ParseBatch reads the body of POST /v1/tasks:batch (REF-BATCH-002). It returns an
// error, an [*InvalidArgumentError], only if the document cannot be cut into 1 to
// 100 items; all that is wrong inside an item is that entry's own error and leaves
// the others alone.
func ParseBatch(body []byte) ([]BatchEntry, error) {
	if len(body) > MaxBodyBytes {
		return nil, invalid("body", "must be at most 524288 bytes")
	}
	items, err := strictjson.Cut(body, "items", MaxBatchItems)
	if err != nil {
		return nil, invalidDocument(err, "body")
	}
	entries := make([]BatchEntry, len(items))
	for i, item := range items {
		entries[i] = parseEntry(item)
	}
	return entries, nil
}

type wireItem struct {
	Key         string      `json:"idempotency_key" strict:"required"`
	Task        wireRequest `json:"task" strict:"required"`
	Traceparent *string     `json:"traceparent"`
}

func parseEntry(item []byte) (e BatchEntry) {
	var w wireItem
	if err := strictjson.DecodeInside(item, &w, 1); err != nil {
		e.Err = invalidDocument(err, "item")
		return e
	}
	if e.Err = ValidateIdempotencyKey(w.Key); e.Err != nil {
		return e
	}
	e.Key = w.Key
	if w.Traceparent != nil {
		e.Traceparent = *w.Traceparent
		if e.Err = ValidateTraceparent(e.Traceparent); e.Err != nil {
			return e
		}
	}
	s, err := w.Task.submission()
	e.Submission, e.Err = s, within("task", err)
	return e
}

// A FrozenItem is one item of a batch to be sent: a body from
// [SubmitTaskRequest.Freeze] under its idempotency key.
type FrozenItem struct {
	Key         string
	Body        []byte // spliced into the batch byte for byte
	Traceparent string // W3C trace context; empty means none
}

// BatchOverhead is what a batch has around its items, in bytes.
const BatchOverhead = len(`{"items":[]}`)

// Size returns how many bytes the item takes in the body of a batch, the comma
// that follows it included. A batch may have [MaxBodyBytes] in all.
func (f FrozenItem) Size() int {
	const names = len(`{"idempotency_key":"","task":},`)
	size := names + len(f.Key) + strings.Count(f.Key, `"`) + strings.Count(f.Key, `\`) + len(f.Body)
	if f.Traceparent != "" {
		size += len(`,"traceparent":""`) + len(f.Traceparent)
	}
	return size
}

// batchBody builds the body of a batch, or refuses one that no server would take.
func batchBody(items []FrozenItem) ([]byte, error) {
	if len(items) < 1 || len(items) > MaxBatchItems {
		return nil, invalid("items", "must hold 1 to 100 elements")
	}
	size := BatchOverhead
	for i, item := range items {
		if err := item.validate(); err != nil {
			return nil, within(itemPath(i), err)
		}
		size += item.Size()
	}
	if size--; size > MaxBodyBytes { // no comma after the last item
		return nil, invalid("items", "must take at most 524288 bytes in all")
	}
	body := append(make([]byte, 0, size), `{"items":[`...)
	for i, item := range items {
		if i > 0 {
			body = append(body, ',')
		}
		body = item.append(body)
	}
	return append(body, `]}`...), nil
}

func (f FrozenItem) validate() error {
	if err := ValidateIdempotencyKey(f.Key); err != nil {
		return err
	}
	if f.Traceparent != "" {
		if err := ValidateTraceparent(f.Traceparent); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(string(f.Body[:min(1, len(f.Body))]), "{") {
		return invalid("task", "must be a frozen request")
	}
	return nil
}

func (f FrozenItem) append(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("idempotency_key", f.Key)
	o.raw("task", f.Body)
	o.optionalString("traceparent", f.Traceparent)
	return o.end()
}

// A BatchItem is one request of [Client.SubmitTasks].
type BatchItem struct {
	Key         string // idempotency key
	Request     SubmitTaskRequest
	Traceparent string // W3C trace context; empty means that of ClientConfig.Traceparent
}

// A BatchResult is the server's answer to one item.
type BatchResult struct {
	Accepted Accepted // if Err is nil
	Err      error    // an *APIError or *UnknownOutcomeError
}

func freezeAll(items []BatchItem) ([]FrozenItem, []Submission, error) {
	frozen := make([]FrozenItem, len(items))
	submissions := make([]Submission, len(items))
	for i, item := range items {
		body, s, err := item.Request.Freeze()
		if err != nil {
			return nil, nil, within(itemPath(i)+".task", err)
		}
		frozen[i] = FrozenItem{Key: item.Key, Body: body, Traceparent: item.Traceparent}
		submissions[i] = s
	}
	return frozen, submissions, nil
}

var errItemCount = errors.New("answer does not have one item for each item sent")

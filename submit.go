package orbit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	submitPath = "/v1/tasks"
	batchPath  = "/v1/tasks:batch"
)

// SubmitTask freezes r and sends it once under key. A nil error means that the
// database has accepted the task, now or earlier under the same key. Errors are
// [*InvalidArgumentError] (nothing was sent), [*APIError] (the server refused) or
// [*UnknownOutcomeError] (it may have happened: repeat with the same key and
// content).
func (c *Client) SubmitTask(ctx context.Context, key string, r SubmitTaskRequest) (Accepted, error) {
	body, s, err := r.Freeze()
	if err != nil {
		return Accepted{}, err
	}
	a, err := c.SubmitFrozen(ctx, key, body, c.traceparent(ctx))
	if err != nil {
		return Accepted{}, err
	}
	return a.conclude("submit task", s)
}

// traceparent returns the trace context of a caller, or "".
func (c *Client) traceparent(ctx context.Context) string {
	if c.cfg.Traceparent == nil {
		return ""
	}
	return c.cfg.Traceparent(ctx)
}

// SubmitTasks sends up to 100 requests in one call, each under its own key. They
// are independent: each has its own result, in order. The error is for the call as
// a whole, as for [Client.SubmitTask]; then no item's outcome is known, unless it
// is an [*InvalidArgumentError] (nothing was sent) or an [*APIError] (none was
// accepted).
func (c *Client) SubmitTasks(ctx context.Context, items []BatchItem) ([]BatchResult, error) {
	const act = "submit tasks"
	frozen, submissions, err := freezeAll(items)
	if err != nil {
		return nil, err
	}
	trace := c.traceparent(ctx)
	for i := range frozen {
		if frozen[i].Traceparent == "" {
			frozen[i].Traceparent = trace
		}
	}
	b, err := c.submitBatch(ctx, frozen, false)
	if err != nil {
		return nil, err
	}
	if b.Items == nil {
		return nil, failed(act, b.Status, b.Err, b.Unreadable)
	}
	results := make([]BatchResult, len(items))
	for i := range results {
		results[i].Accepted, results[i].Err = b.Items[i].conclude(act, submissions[i])
	}
	return results, nil
}

// SubmitFrozen sends body, which must come from [SubmitTaskRequest.Freeze], once
// under key and reports what came back. Traceparent may be empty. The error is an
// [*InvalidArgumentError] (nothing was sent) or an [*UnknownOutcomeError] (no
// answer); every answer that has a status is an [Answer].
func (c *Client) SubmitFrozen(ctx context.Context, key string, body []byte, traceparent string) (Answer, error) {
	if err := (FrozenItem{Key: key, Body: body, Traceparent: traceparent}).validate(); err != nil {
		return Answer{}, err
	}
	if len(body) > MaxBodyBytes {
		return Answer{}, invalid("body", "must be at most 524288 bytes")
	}
	req, err := c.newRequest(ctx, http.MethodPost, submitPath, body)
	if err != nil {
		return Answer{}, fmt.Errorf("orbit: submit task: %w", err)
	}
	req.Header.Set(HeaderIdempotencyKey, key)
	if traceparent != "" {
		req.Header.Set(HeaderTraceparent, traceparent)
	}
	r, err := c.exchange(req, maxSingleAnswer)
	if err != nil {
		return Answer{}, &UnknownOutcomeError{Act: "submit task", Err: err}
	}
	return r.answer(http.StatusOK, http.StatusCreated), nil
}

// SubmitFrozenBatch sends up to 100 frozen requests in one body, built by splicing
// their bytes, and reports what came back. Its error is as for
// [Client.SubmitFrozen].
func (c *Client) SubmitFrozenBatch(ctx context.Context, items []FrozenItem) (BatchAnswer, error) {
	return c.submitBatch(ctx, items, c.cfg.MinimalBatchAnswers)
}

func (c *Client) submitBatch(ctx context.Context, items []FrozenItem, minimal bool) (BatchAnswer, error) {
	body, err := batchBody(items)
	if err != nil {
		return BatchAnswer{}, err
	}
	req, err := c.newRequest(ctx, http.MethodPost, batchPath, body)
	if err != nil {
		return BatchAnswer{}, fmt.Errorf("orbit: submit tasks: %w", err)
	}
	if minimal {
		req.Header.Set("Prefer", "return=minimal")
	}
	if trace := c.traceparent(ctx); ValidateTraceparent(trace) == nil { // of the request; items have their own
		req.Header.Set(HeaderTraceparent, trace)
	}
	r, err := c.exchange(req, maxBatchAnswer)
	if err != nil {
		return BatchAnswer{}, &UnknownOutcomeError{Act: "submit tasks", Err: err}
	}
	return r.batchAnswer(len(items)), nil
}

// conclude turns facts into a receipt or an error. A receipt for something else
// than was sent is no answer to it.
func (a *Answer) conclude(act string, s Submission) (Accepted, error) {
	if a.Accepted == nil {
		return Accepted{}, failed(act, a.Status, a.Err, a.Unreadable)
	}
	if err := a.Accepted.matches(s); err != nil {
		return Accepted{}, &UnknownOutcomeError{Act: act, Status: a.Status, Err: err}
	}
	return *a.Accepted, nil
}

// matches compares what the receipt echoes with what was sent.
func (a *Accepted) matches(s Submission) error {
	if a.Task.QueueID != s.Request.QueueID || a.Task.Handler != s.Request.Handler {
		return errors.New("receipt names another queue or handler")
	}
	if a.ContentDigest == "" {
		return nil
	}
	algorithm, d, err := ParseDigest(a.ContentDigest)
	if err != nil {
		return err
	}
	if algorithm == DigestAlgorithm && d != s.Digest {
		return errors.New("receipt has the digest of other content")
	}
	return nil
}

// failed makes the error of an answer that is no success. A refusal stands for
// itself; after a 5xx the outcome is unknown, even if Orbit says so itself.
func failed(act string, status int, refused *APIError, unreadable error) error {
	switch {
	case refused == nil:
		return &UnknownOutcomeError{Act: act, Status: status, Err: unreadable}
	case status >= 500:
		return &UnknownOutcomeError{Act: act, Status: status, Err: refused}
	}
	return refused
}

// A wireReceipt is the data of a submit that was accepted.
type wireReceipt struct {
	Deduplicated bool     `json:"deduplicated"`
	Task         wireTask `json:"task"`
}

// answer reads the answer to a single frozen command, which one of the two statuses accepts.
func (r *reply) answer(known, done int) Answer {
	a := Answer{
		Status:        r.status,
		RequestID:     r.requestID,
		ContentDigest: r.header.Get(HeaderContentDigest),
		Replayed:      r.header.Get(HeaderReplayed) == "true",
	}
	a.RetryAfter, a.HasRetryAfter = r.retryAfter()
	if receipt := openAs[wireReceipt](r); receipt != nil {
		a.accept(receipt, known, done)
		return a
	}
	var data jsontext.Value
	data, a.Err, a.Unreadable = r.open()
	if data != nil {
		a.acceptText(data, known, done)
	}
	return a
}

// openAs reads a success whose data is a T in one go, and returns nil for everything else:
// open tells what it is.
func openAs[T any](r *reply) *T {
	var e struct {
		RequestID string     `json:"request_id"`
		Data      *T         `json:"data"`
		Error     *errorBody `json:"error"`
	}
	success := r.broken == nil && r.status >= 200 && r.status < 300
	if !success || jsonv2.Unmarshal(r.body, &e) != nil || e.Error != nil || e.RequestID == "" || e.RequestID != r.requestID {
		return nil
	}
	return e.Data
}

// acceptText reads the data of a success into a.
func (a *Answer) acceptText(data []byte, known, done int) {
	var r wireReceipt
	if jsonv2.Unmarshal(data, &r) != nil {
		a.Unreadable = errors.New("data of the answer is not a receipt")
		return
	}
	a.accept(&r, known, done)
}

// accept takes a receipt for the answer, if its status is one of the two that accept.
func (a *Answer) accept(r *wireReceipt, known, done int) {
	switch {
	case a.Status != known && a.Status != done:
		a.Unreadable = errors.New("HTTP status is not one of this command")
	case !ValidID(r.Task.ID) || !ValidID(r.Task.QueueID) || r.Task.Handler == "":
		a.Unreadable = errors.New("receipt lacks the id, queue or handler of its task")
	default:
		a.Accepted = &Accepted{
			Deduplicated:  r.Deduplicated,
			Task:          r.Task.task(),
			RequestID:     a.RequestID,
			ContentDigest: a.ContentDigest,
			Replayed:      a.Replayed,
		}
	}
}

// acceptItem takes a receipt for an item of a batch.
func (a *Answer) acceptItem(r *wireReceipt) { a.accept(r, http.StatusOK, http.StatusCreated) }

// wireItemAnswer is one element of data.items in the answer to a batch, with its data in
// the form D.
type wireItemAnswer[D any] struct {
	Status        int        `json:"status"`
	ContentDigest string     `json:"content_digest"`
	RetryAfter    *uint64    `json:"retry_after"`
	Data          D          `json:"data"`
	Error         *errorBody `json:"error"`
}

// batchAnswer reads the answer to a batch of n items.
func (r *reply) batchAnswer(n int) BatchAnswer {
	b := BatchAnswer{Status: r.status, RequestID: r.requestID}
	b.RetryAfter, b.HasRetryAfter = r.retryAfter()
	if b.Items = r.acceptedBatch(n); b.Items != nil {
		return b
	}
	if b.Items = r.wholeBatch(n); b.Items != nil {
		return b
	}
	r.batchAnswerApart(&b, n)
	return b
}

// wholeBatch reads the answer to a batch in one go, and returns nil if anything of it cannot
// be read.
func (r *reply) wholeBatch(n int) []Answer {
	type items struct {
		Items []wireItemAnswer[*wireReceipt] `json:"items"`
	}
	known := openAs[items](r)
	if known == nil || len(known.Items) != n || r.status != http.StatusOK {
		return nil
	}
	answers := make([]Answer, n)
	for i := range known.Items {
		answers[i] = itemAnswer(&known.Items[i], r.requestID, known.Items[i].Data != nil, (*Answer).acceptItem)
	}
	return answers
}

// batchAnswerApart reads the items one by one: one that cannot be read leaves the others
// alone.
func (r *reply) batchAnswerApart(b *BatchAnswer, n int) {
	var data jsontext.Value
	data, b.Err, b.Unreadable = r.open()
	if data == nil {
		return
	}
	var w struct {
		Items []jsontext.Value `json:"items"`
	}
	switch {
	case b.Status != http.StatusOK:
		b.Unreadable = errors.New("HTTP status is not the one of a batch")
	case jsonv2.Unmarshal(data, &w) != nil:
		b.Unreadable = errors.New("data of the answer is not a list of items")
	case len(w.Items) != n:
		b.Unreadable = errItemCount
	default:
		b.Items = make([]Answer, n)
		for i, item := range w.Items {
			b.Items[i] = itemText(item, b.RequestID)
		}
	}
}

func itemText(item []byte, requestID string) Answer {
	var w wireItemAnswer[jsontext.Value]
	if jsonv2.Unmarshal(item, &w) != nil {
		return Answer{RequestID: requestID, Unreadable: errors.New("item of the answer cannot be read")}
	}
	hasData := w.Data.Kind() == '{' || w.Error != nil && len(w.Data) > 0
	return itemAnswer(&w, requestID, hasData, func(a *Answer, data jsontext.Value) { a.acceptText(data, http.StatusOK, http.StatusCreated) })
}

// itemAnswer makes the answer of one item. HasData tells that its data is an object, which
// accept reads.
func itemAnswer[D any](w *wireItemAnswer[D], requestID string, hasData bool, accept func(*Answer, D)) Answer {
	a := Answer{RequestID: requestID, Status: w.Status, ContentDigest: w.ContentDigest}
	if w.RetryAfter != nil {
		a.RetryAfter, a.HasRetryAfter = retrySeconds(strconv.FormatUint(*w.RetryAfter, 10)), true
	}
	success := w.Status >= 200 && w.Status < 300
	switch {
	case success && w.Error == nil && hasData:
		accept(&a, w.Data)
		if a.Accepted != nil {
			a.Replayed = a.Accepted.Deduplicated // API-031: a batch has no header per item
			a.Accepted.Replayed = a.Replayed
		}
	case success || w.Error == nil || hasData:
		a.Unreadable = errNoEnvelope
	default:
		a.Err, a.Unreadable = w.Error.apiError(w.Status, requestID)
		if a.Err != nil {
			a.Err.RetryAfter, a.Err.HasRetryAfter = a.RetryAfter, a.HasRetryAfter
		}
	}
	return a
}

func itemPath(i int) string { return "items[" + strconv.Itoa(i) + "]" }

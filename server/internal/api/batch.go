package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// submitBatch serves POST /v1/tasks:batch (REF-BATCH-002). The request as a whole fails
// only if it cannot be cut into items; everything else is the answer of an item.
func (c *call) submitBatch() error {
	body, release, err := c.readBody()
	defer release()
	if err != nil {
		return err
	}
	b, err := c.parseBatch(body)
	if err != nil {
		return err
	}
	if err := c.require(auth.TasksSubmit); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	b.refuse(c.checkQueues(ctx, b.items))
	leave, err := c.batches.enter(ctx, c.principal.Application, len(b.items))
	if err != nil {
		return err
	}
	defer leave()
	end := c.traceItems(ctx, b)
	b.submit(ctx, c.cfg.Committer)
	end()
	return c.respondBatch(b)
}

// A batch is the items of one request, in order. Outcomes[i].Err is set as soon as the
// item is refused.
type batch struct {
	items    []accept.Item
	outcomes []accept.Outcome
}

func (c *call) parseBatch(body []byte) (*batch, error) {
	if err := c.noQuery(); err != nil {
		return nil, err
	}
	if len(c.r.Header.Values(orbit.HeaderIdempotencyKey)) > 0 {
		return nil, badRequest("header Idempotency-Key is not for a batch: each item carries its own key")
	}
	entries, err := orbit.ParseBatch(body)
	if err != nil {
		return nil, err
	}
	b := &batch{items: make([]accept.Item, len(entries)), outcomes: make([]accept.Outcome, len(entries))}
	minimal := prefersMinimal(c.r.Header)
	for i, e := range entries {
		if b.outcomes[i].Err = e.Err; e.Err != nil {
			continue
		}
		b.items[i], b.outcomes[i].Err = c.item(e.Key, e.Submission, e.Traceparent)
		b.items[i].Minimal = minimal
	}
	return b, nil
}

// refuse takes over the errors of items that have none yet.
func (b *batch) refuse(errs []error) {
	for i, err := range errs {
		if b.outcomes[i].Err == nil {
			b.outcomes[i].Err = err
		}
	}
}

// submit hands the items on that have not been refused.
func (b *batch) submit(ctx context.Context, committer *accept.Committer) {
	var left []accept.Item
	var at []int
	for i := range b.items {
		if b.outcomes[i].Err == nil {
			left, at = append(left, b.items[i]), append(at, i)
		}
	}
	for i, o := range committer.Submit(ctx, left) {
		b.outcomes[at[i]] = o
	}
}

// respondBatch answers. If nothing is known of any item, the whole request is answered
// so.
func (c *call) respondBatch(b *batch) error {
	var failed error
	failures := 0
	data := []byte(`{"items":[`)
	for i := range b.items {
		if i > 0 {
			data = append(data, ',')
		}
		var err error
		if data, err = appendItem(data, b.items[i], b.outcomes[i]); err != nil {
			failed = err
			failures++
		}
	}
	if failures == len(b.items) {
		return failed
	}
	if failed != nil {
		c.logFailure(failed)
	}
	if prefersMinimal(c.r.Header) {
		c.w.Header().Set("Preference-Applied", "return=minimal")
	}
	return c.respond(http.StatusOK, append(data, `]}`...))
}

// appendItem appends the answer to one item. The error tells that the item was answered
// with UNAVAILABLE, and why.
func appendItem(dst []byte, item accept.Item, o accept.Outcome) ([]byte, error) {
	if o.Err == nil {
		full, err := appendAcceptedItem(dst, item, o)
		if err == nil {
			return full, nil
		}
		o.Err = err
	}
	e, foreseen := refusalOf(o.Err)
	dst = strconv.AppendInt(append(dst, `{"status":`...), int64(e.status), 10)
	if e.retryAfter > 0 {
		dst = append(append(dst, `,"retry_after":`...), seconds(e.retryAfter)...)
	}
	dst = append(e.appendJSON(append(dst, `,"error":`...)), '}')
	if foreseen {
		return dst, nil
	}
	return dst, o.Err
}

func appendAcceptedItem(dst []byte, item accept.Item, o accept.Outcome) ([]byte, error) {
	dst = strconv.AppendInt(append(dst, `{"status":`...), int64(acceptedStatus(o)), 10)
	dst = append(append(dst, `,"content_digest":"`...), item.Submission.Digest.String()...)
	dst, err := appendAccepted(append(dst, `","data":`...), item, o)
	return append(dst, '}'), err
}

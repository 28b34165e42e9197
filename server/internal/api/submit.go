package api

import (
	"context"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// submit serves POST /v1/tasks. The order of its checks is that of IDEM-019; what depends
// on the time or on state is checked by package accept.
func (c *call) submit() error {
	body, release, err := c.readBody()
	defer release()
	if err != nil {
		return err
	}
	item, err := c.parseSubmit(body)
	if err != nil {
		return err
	}
	if err := c.require(auth.TasksSubmit); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	if err := c.checkQueues(ctx, []accept.Item{item})[0]; err != nil {
		return err
	}
	return c.respondSubmit(item, c.accept(ctx, item))
}

func (c *call) parseSubmit(body []byte) (accept.Item, error) {
	if err := c.noQuery(); err != nil {
		return accept.Item{}, err
	}
	key, err := idempotencyKey(c.r.Header)
	if err != nil {
		return accept.Item{}, err
	}
	trace, err := traceparent(c.r.Header)
	if err != nil {
		return accept.Item{}, err
	}
	s, err := orbit.ParseSubmission(body)
	if err != nil {
		return accept.Item{}, err
	}
	return c.item(key, s, trace)
}

// item joins a submission with who sends it.
func (c *call) item(key string, s orbit.Submission, traceparent string) (accept.Item, error) {
	queue, err := sqldb.ParseID(s.Request.QueueID)
	return accept.Item{
		Namespace:   c.principal.Namespace,
		Queue:       queue,
		Credential:  c.principal.Credential,
		Request:     c.id,
		Key:         key,
		Submission:  s,
		Traceparent: traceparent,
	}, err
}

// checkQueues returns for each item why its queue may not be used. With a restricted
// credential that is 403 whether the queue exists or not, else 404 (AMB-029).
func (c *call) checkQueues(ctx context.Context, items []accept.Item) []error {
	queues := make([]sqldb.ID, len(items))
	for i, item := range items {
		queues[i] = item.Queue
	}
	existing, err := c.queues.existing(ctx, c.principal.Namespace, queues)
	refused := make([]error, len(items))
	for i, queue := range queues {
		switch {
		case !c.principal.MayUse(queue):
			refused[i] = denied("queue_id: lies outside the queues of the credential")
		case err != nil:
			refused[i] = err
		case !existing[queue]:
			refused[i] = notFound("queue_id: the namespace has no such queue")
		}
	}
	return refused
}

// accept has one item accepted.
func (c *call) accept(ctx context.Context, item accept.Item) accept.Outcome {
	traced(ctx, &item)
	o := c.cfg.Committer.Submit(ctx, []accept.Item{item})[0]
	accepted(trace.SpanFromContext(ctx), item, o)
	return o
}

func (c *call) respondSubmit(item accept.Item, o accept.Outcome) error {
	if o.Err != nil {
		return o.Err
	}
	h := c.w.Header()
	h.Set(orbit.HeaderContentDigest, item.Submission.Digest.String())
	if o.Deduplicated {
		h.Set(orbit.HeaderReplayed, "true")
	}
	data, err := appendAccepted(nil, item, o)
	if err != nil {
		return err
	}
	return c.respond(acceptedStatus(o), data)
}

func acceptedStatus(o accept.Outcome) int {
	if o.Deduplicated {
		return http.StatusOK
	}
	return http.StatusCreated
}

// appendAccepted appends {"deduplicated":…,"task":…}.
func appendAccepted(dst []byte, item accept.Item, o accept.Outcome) (_ []byte, err error) {
	dst = strconv.AppendBool(append(dst, `{"deduplicated":`...), o.Deduplicated)
	dst = append(dst, `,"task":`...)
	if item.Minimal {
		dst, err = o.Receipt.AppendMinimalTask(dst)
	} else {
		dst = o.Receipt.AppendTask(dst)
	}
	return append(dst, '}'), err
}

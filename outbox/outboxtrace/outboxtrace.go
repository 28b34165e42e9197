// Package outboxtrace joins the outbox to the traces of OpenTelemetry, which package outbox
// itself does not depend on. The trace of the business transaction is frozen with its
// messages; a relay sends each of them under it, the server accepts and the worker executes
// the task under it.
//
// [Traceparent] is all that is needed for one trace to lead from the business into the
// handler. An [Outbox] has a span for each enqueue besides.
package outboxtrace

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// Traceparent returns the W3C trace context of the span in ctx, or "" without one. It is for
// [outbox.Config], and for [orbit.ClientConfig] of a service that submits or relays.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// An Enqueuer is an [*outbox.Outbox], or the Fake of package outboxtest.
type Enqueuer interface {
	Enqueue(context.Context, outbox.Tx, outbox.Message) (outbox.Receipt, error)
	EnqueueBatch(context.Context, outbox.Tx, []outbox.Message) ([]outbox.Receipt, error)
	EnqueueCancel(context.Context, outbox.Tx, outbox.Cancel) (outbox.Receipt, error)
}

// An Outbox is an outbox whose enqueues are spans of the caller's trace: what becomes of a
// message comes under the span of its enqueue. A span tells that a message was enqueued, not
// that the transaction committed. It holds no payload and no key.
type Outbox struct {
	box    Enqueuer
	tracer trace.Tracer
}

// scope names this library to whoever collects its spans.
const scope = "github.com/orbitkit/orbit/outbox"

// New returns an outbox that makes spans of the enqueues of box. Without a provider that of
// otel.GetTracerProvider makes them.
func New(box Enqueuer, provider trace.TracerProvider) *Outbox {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Outbox{box: box, tracer: provider.Tracer(scope)}
}

// Enqueue is [outbox.Outbox.Enqueue] in a span. A message that names a trace of its own keeps
// it.
func (o *Outbox) Enqueue(ctx context.Context, tx outbox.Tx, m outbox.Message) (outbox.Receipt, error) {
	ctx, span := o.start(ctx, "enqueue message")
	defer span.End()
	join(ctx, &m.Traceparent)
	r, err := o.box.Enqueue(ctx, tx, m)
	if conclude(span, err) {
		span.SetAttributes(attrTarget.String(m.Target), attrQueue.String(m.Request.QueueID), attrHandler.String(m.Request.Handler))
		describe(span, r)
	}
	return r, err
}

// EnqueueBatch is [outbox.Outbox.EnqueueBatch] in one span.
func (o *Outbox) EnqueueBatch(ctx context.Context, tx outbox.Tx, messages []outbox.Message) ([]outbox.Receipt, error) {
	ctx, span := o.start(ctx, "enqueue messages")
	defer span.End()
	span.SetAttributes(attrItems.Int(len(messages)))
	joined := make([]outbox.Message, len(messages))
	for i, m := range messages {
		join(ctx, &m.Traceparent)
		joined[i] = m
	}
	receipts, err := o.box.EnqueueBatch(ctx, tx, joined)
	conclude(span, err)
	return receipts, err
}

// EnqueueCancel is [outbox.Outbox.EnqueueCancel] in a span.
func (o *Outbox) EnqueueCancel(ctx context.Context, tx outbox.Tx, c outbox.Cancel) (outbox.Receipt, error) {
	ctx, span := o.start(ctx, "enqueue cancel")
	defer span.End()
	join(ctx, &c.Traceparent)
	r, err := o.box.EnqueueCancel(ctx, tx, c)
	if conclude(span, err) {
		span.SetAttributes(attrTarget.String(c.Target), attrTask.String(c.TaskID))
		describe(span, r)
	}
	return r, err
}

func (o *Outbox) start(ctx context.Context, name string) (context.Context, trace.Span) {
	return o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer))
}

// join gives a message without a trace that of ctx.
func join(ctx context.Context, traceparent *string) {
	if *traceparent == "" {
		*traceparent = Traceparent(ctx)
	}
}

// Attributes of spans, as the relay and the server call them.
const (
	attrTarget    = attribute.Key("orbit.outbox.target")
	attrRow       = attribute.Key("orbit.outbox.row")
	attrExisting  = attribute.Key("orbit.outbox.existing")
	attrItems     = attribute.Key("orbit.batch.items")
	attrQueue     = attribute.Key("orbit.queue.id")
	attrHandler   = attribute.Key("orbit.handler.name")
	attrTask      = attribute.Key("orbit.task.id")
	attrErrorType = attribute.Key("error.type")
)

func describe(span trace.Span, r outbox.Receipt) {
	span.SetAttributes(attrRow.Int64(r.Seq), attrExisting.Bool(r.Existing))
}

// conclude tells a span how the enqueue ended, without the error's words, and reports whether
// it succeeded: names in it are then within the rules.
func conclude(span trace.Span, err error) bool {
	if err == nil {
		return true
	}
	span.SetAttributes(attrErrorType.String(kindOf(err)))
	span.SetStatus(codes.Error, "")
	return false
}

func kindOf(err error) string {
	var invalid *orbit.InvalidArgumentError
	switch {
	case errors.As(err, &invalid):
		return "invalid_argument"
	case errors.Is(err, outbox.ErrConflict):
		return "conflict"
	case errors.Is(err, outbox.ErrNoTransaction):
		return "no_transaction"
	case errors.Is(err, outbox.ErrRetry):
		return "retry"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return "database"
}

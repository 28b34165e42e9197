package relay

import (
	"context"
	"errors"
	"net"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// scope names this library to whoever collects its spans.
const scope = "github.com/orbitkit/orbit/relay"

// Attributes of spans. None holds a payload, a key or a word of anybody's but names and ids.
const (
	attrTarget       = attribute.Key("orbit.outbox.target")
	attrRow          = attribute.Key("orbit.outbox.row")
	attrAttempt      = attribute.Key("orbit.outbox.attempt")
	attrOutcome      = attribute.Key("orbit.outbox.outcome")
	attrLag          = attribute.Key("orbit.outbox.lag_ms")
	attrItems        = attribute.Key("orbit.batch.items")
	attrQueue        = attribute.Key("orbit.queue.id")
	attrHandler      = attribute.Key("orbit.handler.name")
	attrTask         = attribute.Key("orbit.task.id")
	attrRequest      = attribute.Key("orbit.request.id")
	attrDeduplicated = attribute.Key("orbit.deduplicated")
	attrCode         = attribute.Key("orbit.error.code")
	attrStatus       = attribute.Key("http.response.status_code")
	attrErrorType    = attribute.Key("error.type")
)

func (c *Config) tracer() trace.Tracer {
	provider := c.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(scope)
}

// A requestTrace holds the spans of one request. A row sent alone has that of the request,
// under the trace that was frozen with it. In a batch each row that was frozen with a trace
// has a span of its own there, linked to that of the request and the other way round; the
// request stands for the others.
type requestTrace struct {
	request trace.Span
	rows    []trace.Span // nil for a row without one; empty if nobody traces
}

// trace starts the spans of a request with rows, in a context of their own: that of Run has
// nothing to do with them.
func (l *lead) trace(ctx context.Context, target string, rows []*entry) (context.Context, *requestTrace) {
	t := &requestTrace{}
	about := trace.WithAttributes(attrTarget.String(target), attrItems.Int(len(rows)))
	client := trace.WithSpanKind(trace.SpanKindClient)
	if len(rows) == 1 {
		ctx, t.request = l.relay.tracer.Start(remote(ctx, rows[0].row.Traceparent), "send outbox row", client, about)
		t.rows = []trace.Span{t.request}
		describeRow(t.request, rows[0])
		return ctx, t
	}
	ctx, t.request = l.relay.tracer.Start(remote(ctx, ""), "send outbox rows", client, about)
	if !t.request.SpanContext().IsValid() {
		return ctx, t
	}
	t.rows = make([]trace.Span, len(rows))
	link := trace.WithLinks(trace.Link{SpanContext: t.request.SpanContext()})
	for i, e := range rows {
		if e.row.Traceparent == "" {
			continue
		}
		_, t.rows[i] = l.relay.tracer.Start(remote(ctx, e.row.Traceparent), "send outbox row", client, link, about)
		if t.rows[i].IsRecording() {
			t.request.AddLink(trace.Link{SpanContext: t.rows[i].SpanContext()})
			describeRow(t.rows[i], e)
		}
	}
	return ctx, t
}

// remote returns ctx as the continuation of a trace, or, without one, of none.
func remote(ctx context.Context, traceparent string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

func describeRow(span trace.Span, e *entry) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attrRow.Int64(e.row.Seq), attrAttempt.Int(e.row.Attempts+1), attrLag.Int64(e.lag().Milliseconds()))
	if e.row.Operation == outbox.OperationCancel {
		span.SetAttributes(attrTask.String(e.row.CancelTaskID))
		return
	}
	span.SetAttributes(attrQueue.String(e.row.QueueID), attrHandler.String(e.row.Handler))
}

// traceparent returns the trace context that goes along with a row: that of its span, so that
// what the server does comes under it, or what was frozen if the row has no span.
func (t *requestTrace) traceparent(i int, e *entry) string {
	if i >= len(t.rows) || t.rows[i] == nil || !t.rows[i].IsRecording() {
		return e.row.Traceparent
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), t.rows[i]), carrier)
	return carrier["traceparent"]
}

// answered tells the span of a row what the answer to it means.
func (t *requestTrace) answered(i int, v verdict, a orbit.Answer) {
	if i >= len(t.rows) || t.rows[i] == nil || !t.rows[i].IsRecording() {
		return
	}
	span := t.rows[i]
	span.SetAttributes(attrOutcome.String(v.outcome(a).String()))
	describeAnswer(span, a)
	switch {
	case v == mismatch:
		fail(span, outbox.OutcomeMismatch.String())
	case v == unknown && a.Accepted != nil:
		fail(span, "no_digest")
	case a.Accepted != nil:
		span.SetAttributes(attrTask.String(a.Accepted.Task.ID), attrDeduplicated.Bool(a.Accepted.Deduplicated))
	}
}

// wholly tells the span of a batch how it was answered, and those of its rows if there is no
// answer of their own.
func (t *requestTrace) wholly(b orbit.BatchAnswer, whole orbit.Answer) {
	describeAnswer(t.request, whole)
	if b.Items != nil {
		return
	}
	for _, span := range t.rows {
		if span != nil {
			span.SetAttributes(attrOutcome.String(unknown.outcome(whole).String()))
			describeAnswer(span, whole)
		}
	}
}

// unanswered tells all spans why there is no answer.
func (t *requestTrace) unanswered(err error) {
	kind := "no_answer"
	var network net.Error
	var invalid *orbit.InvalidArgumentError
	switch {
	case errors.As(err, &invalid):
		kind = "unsent"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		kind = "timeout"
	}
	fail(t.request, kind)
	for _, span := range t.rows {
		if span == nil {
			continue
		}
		fail(span, kind)
		if invalid == nil {
			span.SetAttributes(attrOutcome.String(outbox.OutcomeUnknown.String()))
		}
	}
}

// describeAnswer sets what may be said of an answer by everyone. Its words stay out of it:
// they may hold anything.
func describeAnswer(span trace.Span, a orbit.Answer) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attrStatus.Int(a.Status))
	if a.RequestID != "" {
		span.SetAttributes(attrRequest.String(a.RequestID))
	}
	switch {
	case a.Err != nil:
		span.SetAttributes(attrCode.String(a.Err.Code))
		fail(span, a.Err.Code)
	case a.Unreadable != nil:
		fail(span, strconv.Itoa(a.Status))
	}
}

// fail marks a span. The kinds are few: codes of Orbit's, HTTP statuses, and words of this
// file.
func fail(span trace.Span, kind string) {
	span.SetAttributes(attrErrorType.String(kind))
	span.SetStatus(codes.Error, "")
}

// end ends the spans.
func (t *requestTrace) end() {
	for _, span := range t.rows {
		if span != nil {
			span.End()
		}
	}
	t.request.End() // of a row alone it is the same: a second end is none
}

package api

import (
	"context"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/accept"
)

// Attributes of spans. None holds a payload, a key or anything else that a client wrote but
// names and ids.
const (
	attrRequest      = attribute.Key("orbit.request.id")
	attrTask         = attribute.Key("orbit.task.id")
	attrQueue        = attribute.Key("orbit.queue.id")
	attrHandler      = attribute.Key("orbit.handler.name")
	attrVersion      = attribute.Key("orbit.handler.version")
	attrDeduplicated = attribute.Key("orbit.deduplicated")
	attrItems        = attribute.Key("orbit.batch.items")
	attrCode         = attribute.Key("orbit.error.code")
)

var propagator propagation.TraceContext

// untraced are the paths that get no span: probes, and the connections of workers, which
// last.
var untraced = []string{"/healthz", "/readyz", wire.Path}

// begin starts the span of a request, under the trace context that its sender gave, and
// puts it into the request's context.
func (c *call) begin() trace.Span {
	route := Pattern(c.r)
	if slices.Contains(untraced, route) {
		return trace.SpanFromContext(context.Background())
	}
	ctx := propagator.Extract(c.r.Context(), propagation.HeaderCarrier(c.r.Header))
	ctx, span := c.cfg.Tracer.Start(ctx, methodName(c.r.Method)+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", methodName(c.r.Method)), attribute.String("http.route", route), attrRequest.String(c.id.String()),
	))
	c.r = c.r.WithContext(ctx)
	return span
}

// methodName keeps methods that somebody made up out of names.
func methodName(method string) string {
	if method == http.MethodGet || method == http.MethodHead || method == http.MethodPost || method == http.MethodPatch {
		return method
	}
	return "_OTHER"
}

// conclude ends the span of a request.
func (c *call) conclude(span trace.Span) {
	span.SetAttributes(attribute.Int("http.response.status_code", c.status))
	if c.status >= http.StatusInternalServerError || c.status == 0 {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// traced gives the items that came without a trace context of their own that of the request.
func traced(ctx context.Context, item *accept.Item) {
	if item.Traceparent == "" {
		carrier := propagation.MapCarrier{}
		propagator.Inject(ctx, carrier)
		item.Traceparent = carrier["traceparent"]
	}
}

// accepted tells a span what became of an item.
func accepted(span trace.Span, item accept.Item, o accept.Outcome) {
	if !span.IsRecording() {
		return
	}
	r := item.Submission.Request
	span.SetAttributes(attrQueue.String(r.QueueID), attrHandler.String(r.Handler), attrVersion.String(r.HandlerVersion))
	if o.Err != nil {
		e, _ := refusalOf(o.Err)
		span.SetAttributes(attrCode.String(e.code))
		if e.status >= http.StatusInternalServerError { // what its sender did wrong is no error of ours
			span.SetStatus(codes.Error, "")
		}
		return
	}
	span.SetAttributes(attrTask.String(o.Task.String()), attrDeduplicated.Bool(o.Deduplicated))
}

// traceItems starts a span for each item that came with a trace context of its own: it
// belongs to the trace of that item and is linked to the request. The span of the request
// stands for the others. The function that it returns ends them.
func (c *call) traceItems(ctx context.Context, b *batch) (end func()) {
	request := trace.SpanFromContext(ctx)
	request.SetAttributes(attrItems.Int(len(b.items)))
	spans := make([]trace.Span, len(b.items))
	for i := range b.items {
		item := &b.items[i]
		if own := item.Traceparent; b.outcomes[i].Err == nil && own != "" {
			parent := propagator.Extract(context.Background(), propagation.MapCarrier{"traceparent": own})
			_, spans[i] = c.cfg.Tracer.Start(parent, "accept task", trace.WithSpanKind(trace.SpanKindServer),
				trace.WithLinks(trace.Link{SpanContext: request.SpanContext()}), trace.WithAttributes(attrRequest.String(c.id.String())))
		}
		traced(ctx, item)
	}
	return func() {
		for i, span := range spans {
			if span != nil {
				accepted(span, b.items[i], b.outcomes[i])
				span.End()
			}
		}
	}
}

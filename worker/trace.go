package worker

import (
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
)

// scope names this library to whoever collects its spans.
const scope = "github.com/orbitkit/orbit/worker"

func (c Config) tracer() trace.Tracer {
	provider := c.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(scope)
}

// remote returns ctx as the continuation of the trace that the submitter gave, or, if it
// gave none, of no trace: that of the context of Run has nothing to do with the task.
func remote(ctx context.Context, traceparent string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// trace starts the span of an execution. Its context is that of the handler.
func (a *attempt) trace(ctx context.Context) (context.Context, trace.Span) {
	t := &a.offer.Task
	ctx, span := a.w.tracer.Start(remote(ctx, a.offer.Traceparent), "execute "+t.Handler,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("orbit.task.id", t.ID), attribute.String("orbit.attempt.id", a.id.ID),
			attribute.Int64("orbit.attempt.number", int64(t.AttemptNumber)), attribute.String("orbit.queue.id", t.QueueID),
			attribute.String("orbit.handler.name", t.Handler), attribute.String("orbit.handler.version", t.HandlerVersion),
		))
	a.set(func() { a.span = span.SpanContext() })
	return ctx, span
}

// outcomeAbandoned is what a span has for an outcome whose handler did not return before
// Run gave it up. The server calls it UNKNOWN once the lease has ended.
const outcomeAbandoned = "ABANDONED"

// concludeSpan ends the span of an execution. What a handler says of its error stays out of
// it: it may hold anything.
func concludeSpan(span trace.Span, outcome string, retryable, panicked bool) {
	span.SetAttributes(attribute.String("orbit.outcome", outcome))
	if outcome != orbit.OutcomeSucceeded && outcome != orbit.OutcomeCancelled {
		kind := strings.ToLower(outcome)
		if panicked {
			kind = "panic"
		}
		span.SetAttributes(attribute.String("error.type", kind), attribute.Bool("orbit.retryable", retryable))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// log names the attempt in each line, and its span, if there is one.
func (a *attempt) log() *slog.Logger {
	log := a.w.log.With("attempt_id", a.id.ID)
	if a.offer != nil {
		log = log.With("task_id", a.offer.Task.ID)
	}
	var span trace.SpanContext
	a.set(func() { span = a.span })
	if span.IsValid() {
		log = log.With("trace_id", span.TraceID().String(), "span_id", span.SpanID().String())
	}
	return log
}

package outboxtrace_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
	"github.com/orbitkit/orbit/outbox/outboxtrace"
)

const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func message(key string) outbox.Message {
	return outbox.Message{Key: key, Target: "shop", Request: orbit.SubmitTaskRequest{
		QueueID: strings.Repeat("a", 32), Handler: "h", HandlerVersion: "1", PayloadVersion: "1", Payload: json.RawMessage(`{"secret":1}`),
	}}
}

// What is enqueued joins the span of its enqueue, unless it names a trace of its own, and no
// span tells a key, a payload or the words of an error.
func TestEnqueuesAreSpansOfTheBusiness(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	var fake outboxtest.Fake
	box, tx := outboxtrace.New(&fake, provider), fake.Begin()
	ctx, order := provider.Tracer("shop").Start(t.Context(), "order")
	named := message("secret-named")
	named.Traceparent = own
	conflicting := message("secret-named")
	conflicting.Request.Handler = "other"
	withdraw := outbox.Cancel{Key: "secret", Target: "shop", TaskID: strings.Repeat("b", 32), Request: orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "secret"}}
	steps := []struct {
		do   func() error
		kind string // of the error
	}{
		{func() error { _, err := box.Enqueue(ctx, tx, message("secret-one")); return err }, ""},
		{func() error {
			_, err := box.EnqueueBatch(ctx, tx, []outbox.Message{message("secret-two"), named})
			return err
		}, ""},
		{func() error { _, err := box.EnqueueCancel(ctx, tx, withdraw); return err }, ""},
		{func() error { _, err := box.Enqueue(ctx, tx, conflicting); return err }, "conflict"},
		{func() error { _, err := box.Enqueue(ctx, tx, message("secret key")); return err }, "invalid_argument"},
		{func() error { _, err := box.Enqueue(ctx, nil, message("secret")); return err }, "no_transaction"},
	}
	var contexts []trace.SpanContext
	for i, step := range steps {
		if err := step.do(); (err != nil) != (step.kind != "") {
			t.Fatalf("step %d: %v", i, err)
		}
		span := spans.GetSpans()[i]
		contexts = append(contexts, span.SpanContext)
		kind := ""
		for _, a := range span.Attributes {
			if a.Key == "error.type" {
				kind = a.Value.String()
			}
		}
		if kind != step.kind || (span.Status.Code == codes.Error) != (kind != "") || span.Parent.SpanID() != order.SpanContext().SpanID() {
			t.Errorf("span %d: %v, %v, want error.type %q", i, span.Attributes, span.Status, step.kind)
		}
		if text, _ := json.Marshal(span); strings.Contains(string(text), "secret") {
			t.Errorf("span %d tells more than it may: %s", i, text)
		}
	}
	at := func(sc trace.SpanContext) string {
		return outboxtrace.Traceparent(trace.ContextWithSpanContext(context.Background(), sc))
	}
	for key, want := range map[string]string{"secret-one": at(contexts[0]), "secret-two": at(contexts[1]), "secret-named": own} {
		if got := outboxtest.RequireEnqueued(t, tx, outboxtest.Match{Key: key}).Traceparent; got != want {
			t.Errorf("%s: trace %q was frozen, want %q", key, got, want)
		}
	}
	if got := outboxtest.RequireCancelEnqueued(t, tx, outboxtest.CancelMatch{}).Traceparent; got != at(contexts[2]) {
		t.Errorf("cancel: trace %q was frozen, want %q", got, at(contexts[2]))
	}
}

// Without a tracer the trace of the caller is frozen all the same, and none if there is none.
func TestWithoutATracerTheTraceOfTheCallerIsFrozen(t *testing.T) {
	var fake outboxtest.Fake
	box, tx := outboxtrace.New(&fake, noop.NewTracerProvider()), fake.Begin()
	ids := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(ids))
	for key, ctx := range map[string]context.Context{"traced": ctx, "untraced": t.Context()} {
		if _, err := box.Enqueue(ctx, tx, message(key)); err != nil {
			t.Fatal(err)
		}
		if got := outboxtest.RequireEnqueued(t, tx, outboxtest.Match{Key: key}).Traceparent; got != outboxtrace.Traceparent(ctx) {
			t.Errorf("%s: %q was frozen", key, got)
		}
	}
}

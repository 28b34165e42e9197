package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// traceparent is what a program gives to [orbit.ClientConfig].
func traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// A tracing world: submitter, server and worker over real sockets, one collector of spans.
type tracing struct {
	spans    *tracetest.InMemoryExporter
	provider *trace.TracerProvider
	client   *orbit.Client
	creds    orbit.Credentials
	log      *lockedBuffer
	// handled are the span contexts that handlers found in their context, by payload.
	mu      sync.Mutex
	handled map[string]api.SpanContext
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startTracing starts it; the worker's spans are made by workers, which may be nil.
func startTracing(t *testing.T, db *dbtest.DB, workers func(*tracing) api.TracerProvider) *tracing {
	t.Helper()
	w := &tracing{spans: tracetest.NewInMemoryExporter(), creds: bootstrap(t, db), log: &lockedBuffer{}, handled: map[string]api.SpanContext{}}
	w.provider = trace.NewTracerProvider(trace.WithSyncer(w.spans))
	n := start(t, db.DB, server.Config{TracerProvider: w.provider, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	var err error
	w.client, err = orbit.NewClient(n.url, w.creds.Token, orbit.ClientConfig{Traceparent: traceparent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.CloseIdleConnections)
	runner, err := worker.NewWorker(n.url, w.creds.Token, worker.Config{
		Queues: []string{w.creds.QueueID}, Log: slog.New(slog.DiscardHandler), TracerProvider: workers(w), OnError: func(error) {},
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: "v1"}: w.handle},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); runner.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return w
}

// handle makes a span of its own and ends as the payload says.
func (w *tracing) handle(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	w.mu.Lock()
	w.handled[string(e.Task.Payload)] = api.SpanContextFromContext(ctx)
	w.mu.Unlock()
	_, span := w.provider.Tracer("handler").Start(ctx, "inside "+string(e.Task.Payload))
	defer span.End()
	switch string(e.Task.Payload) {
	case `"fails"`:
		return nil, worker.Failed(errors.New("the card 4111 was refused"))
	case `"panics"`:
		panic("4111")
	}
	return nil, nil
}

func (w *tracing) request(payload string) orbit.SubmitTaskRequest {
	r := request(w.creds)
	r.Payload = json.RawMessage(`"` + payload + `"`)
	return r
}

// await waits for the ended span whose name begins with one and that has an attribute with
// the value of another, if that is given.
func (w *tracing) await(t *testing.T, name string, holds ...string) tracetest.SpanStub {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		for _, span := range w.spans.GetSpans() {
			if strings.HasPrefix(span.Name, name) && (len(holds) == 0 || hasValue(span, holds[0])) {
				return span
			}
		}
	}
	t.Fatalf("no span %q %v", name, holds)
	return tracetest.SpanStub{}
}

func hasValue(span tracetest.SpanStub, value string) bool {
	for _, a := range span.Attributes {
		if a.Value.String() == value {
			return true
		}
	}
	return false
}

func attributeOf(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

func wantParent(t *testing.T, child tracetest.SpanStub, parent api.SpanContext) {
	t.Helper()
	if child.SpanContext.TraceID() != parent.TraceID() || child.Parent.SpanID() != parent.SpanID() {
		t.Errorf("span %q: trace %s under %s, want trace %s under %s", child.Name, child.SpanContext.TraceID(), child.Parent.SpanID(), parent.TraceID(), parent.SpanID())
	}
}

// API-033, REF-WRK-005: one trace leads from the submitter over the acceptance into the handler, and
// what a handler says stays out of it.
func TestATraceLeadsFromTheSubmitterIntoTheHandler(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := startTracing(t, db, func(w *tracing) api.TracerProvider { return w.provider })
		tracer := w.provider.Tracer("submitter")

		ctx, order := tracer.Start(t.Context(), "order")
		accepted, err := w.client.SubmitTask(ctx, "one", w.request("good"))
		if err != nil {
			t.Fatal(err)
		}
		order.End()
		accept := w.await(t, "POST /v1/tasks", accepted.Task.ID)
		wantParent(t, accept, order.SpanContext())
		attempt := w.await(t, "execute h", accepted.Task.ID)
		wantParent(t, attempt, order.SpanContext())
		wantParent(t, w.await(t, `inside "good"`), attempt.SpanContext)
		if attributeOf(attempt, "orbit.outcome") != "SUCCEEDED" || attributeOf(attempt, "orbit.attempt.number") != "1" || attempt.Status.Code == codes.Error {
			t.Errorf("span of the attempt: %v, %v", attempt.Attributes, attempt.Status)
		}

		ctx, own := tracer.Start(t.Context(), "item")
		batchCtx, whole := tracer.Start(t.Context(), "batch")
		results, err := w.client.SubmitTasks(batchCtx, []orbit.BatchItem{
			{Key: "b1", Request: w.request("fails"), Traceparent: traceparent(ctx)}, {Key: "b2", Request: w.request("panics")},
		})
		if err != nil || results[0].Err != nil || results[1].Err != nil {
			t.Fatal(results, err)
		}
		fails, panics := results[0].Accepted.Task.ID, results[1].Accepted.Task.ID
		item := w.await(t, "accept task", fails)
		wantParent(t, item, own.SpanContext())
		if batch := w.await(t, "POST /v1/tasks:batch"); len(item.Links) != 1 || item.Links[0].SpanContext.SpanID() != batch.SpanContext.SpanID() {
			t.Errorf("the span of an item is linked to %v, not to its request", item.Links)
		}
		wantParent(t, w.await(t, "accept task", panics), whole.SpanContext())
		for task, kind := range map[string]string{fails: "failed", panics: "panic"} {
			attempt := w.await(t, "execute h", task)
			if attempt.Status.Code != codes.Error || attributeOf(attempt, "error.type") != kind || len(attempt.Events) > 0 {
				t.Errorf("span of what %s: %v, %v, %v", kind, attempt.Status, attempt.Attributes, attempt.Events)
			}
		}
		wantParent(t, w.await(t, "execute h", fails), own.SpanContext())

		plain, err := w.client.SubmitTask(t.Context(), "plain", w.request("alone"))
		if err != nil {
			t.Fatal(err)
		}
		root := w.await(t, "POST /v1/tasks", plain.Task.ID)
		wantParent(t, w.await(t, "execute h", plain.Task.ID), root.SpanContext)

		for _, span := range w.spans.GetSpans() {
			if text, _ := json.Marshal(span.Attributes); bytes.Contains(text, []byte("4111")) || strings.Contains(span.Status.Description, "4111") {
				t.Errorf("span %q tells what a handler said", span.Name)
			}
		}
	}, migrations.Server)
}

// A trace that is not sampled stays so, and a program without tracing hands the submitter's
// trace on.
func TestWhatIsNotSampledStaysSo(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	w := startTracing(t, db, func(*tracing) api.TracerProvider { return nil })
	unsampled := api.NewSpanContext(api.SpanContextConfig{TraceID: api.TraceID{1}, SpanID: api.SpanID{2}})
	sampled := unsampled.WithTraceFlags(api.FlagsSampled)
	for name, parent := range map[string]api.SpanContext{"no": unsampled, "yes": sampled} {
		if _, err := w.client.SubmitTask(api.ContextWithSpanContext(t.Context(), parent), name, w.request(name)); err != nil {
			t.Fatal(err)
		}
	}
	w.await(t, `inside "yes"`)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		w.mu.Lock()
		done := len(w.handled) == 2
		w.mu.Unlock()
		if done {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the tasks do not run")
		}
	}
	for name, parent := range map[string]api.SpanContext{`"no"`: unsampled, `"yes"`: sampled} {
		w.mu.Lock()
		got := w.handled[name]
		w.mu.Unlock()
		if got.TraceID() != parent.TraceID() || got.SpanID() != parent.SpanID() || got.IsSampled() != parent.IsSampled() {
			t.Errorf("handler %s found %s %s, sampled %v", name, got.TraceID(), got.SpanID(), got.IsSampled())
		}
	}
	for _, span := range w.spans.GetSpans() {
		if !span.Parent.IsSampled() {
			t.Errorf("span %q of a trace that is not sampled was exported", span.Name)
		}
	}
}

// A submit that is refused for what its sender did is no error of the server's.
func TestARefusedSubmitIsNoErrorOfTheServer(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	w := startTracing(t, db, func(*tracing) api.TracerProvider { return nil })
	if _, err := w.client.SubmitTask(t.Context(), "k", w.request("first")); err != nil {
		t.Fatal(err)
	}
	var refused *orbit.APIError
	if _, err := w.client.SubmitTask(t.Context(), "k", w.request("second")); !errors.As(err, &refused) || refused.Status != http.StatusConflict {
		t.Fatalf("submit = %v, want a conflict", err)
	}
	if root := w.await(t, "POST /v1/tasks", refused.Code); root.Status.Code != codes.Unset {
		t.Errorf("status of the span is %v, want it unset", root.Status)
	}
}

// Lines of the log name the trace that they belong to.
func TestLinesOfTheLogNameTheirTrace(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	w := startTracing(t, db, func(*tracing) api.TracerProvider { return nil })
	ctx, span := w.provider.Tracer("t").Start(t.Context(), "refused")
	bad := w.request("bad")
	bad.QueueID = strings.Repeat("0", 32)
	var refused *orbit.APIError
	if _, err := w.client.SubmitTask(ctx, "k", bad); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Fatalf("submit = %v", err)
	}
	line := "trace_id=" + span.SpanContext().TraceID().String()
	if log := w.log.String(); !strings.Contains(log, line) || !strings.Contains(log, "span_id=") {
		t.Errorf("no %s in the log:\n%s", line, log)
	}
}

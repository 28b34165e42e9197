package relay_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtrace"
	"github.com/orbitkit/orbit/relay"
	"github.com/orbitkit/orbit/server"
	"github.com/orbitkit/orbit/worker"
)

// Spans are what one collector got of all programs.
type spans struct {
	t   *testing.T
	all *tracetest.InMemoryExporter
}

func newSpans(t *testing.T) (spans, trace.TracerProvider) {
	s := spans{t, tracetest.NewInMemoryExporter()}
	return s, sdk.NewTracerProvider(sdk.WithSyncer(s.all))
}

// await waits for the ended span of a name in which every want is so.
func (s spans) await(name string, wants ...func(tracetest.SpanStub) bool) (found tracetest.SpanStub) {
	s.t.Helper()
	eventually(s.t, "span "+name+" has ended", func() bool {
		for _, span := range s.all.GetSpans() {
			if span.Name == name && !slices.ContainsFunc(wants, func(want func(tracetest.SpanStub) bool) bool { return !want(span) }) {
				found = span
				return true
			}
		}
		return false
	})
	return found
}

func under(parent trace.SpanContext) func(tracetest.SpanStub) bool {
	return func(span tracetest.SpanStub) bool {
		return span.Parent.SpanID() == parent.SpanID() && span.SpanContext.TraceID() == parent.TraceID()
	}
}

func linkedTo(span tracetest.SpanStub, other trace.SpanContext) bool {
	return slices.ContainsFunc(span.Links, func(l sdk.Link) bool { return l.SpanContext.SpanID() == other.SpanID() })
}

func attributeOf(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// serveTraced runs a task server and a worker.
func serveTraced(t *testing.T, engine string, provider trace.TracerProvider) (url string, creds orbit.Credentials) {
	t.Helper()
	db := dbtest.Open(t, engine, migrations.Server)
	creds, err := server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
		Application: "app", Namespace: "default", Environment: "test", Queue: "first", WorkerAccess: true, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	node, err := server.New(db.DB, server.Config{TracerProvider: provider, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url = "http://" + listener.Addr().String()
	runs, err := worker.NewWorker(url, creds.Token, worker.Config{
		Queues: []string{creds.QueueID}, TracerProvider: provider, Log: slog.New(slog.DiscardHandler), OnError: func(error) {},
		Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "orders.ship", Version: "1"}: func(context.Context, worker.Execution) (json.RawMessage, error) {
			return nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) { node.Run(ctx, listener) })
	background(t, func(ctx context.Context) { runs.Run(ctx) })
	return url, creds
}

func background(t *testing.T, run func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
}

// API-033: one trace leads from the business transaction over the outbox, the send and the
// acceptance into the handler, for rows that were sent alone and in a batch; and no span tells
// a key or a payload.
func TestATraceLeadsFromTheBusinessIntoTheHandler(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		spans, provider := newSpans(t)
		url, creds := serveTraced(t, w.db.Engine, provider)
		box := outboxtrace.New(w.box, provider)
		business := map[string]trace.SpanContext{}
		seqs := map[string]string{}
		if err := w.db.Tx(t.Context(), func(tx *sqldb.Tx) error {
			for _, key := range []string{"secret-alone", "secret-one", "secret-two", "secret-untraced"} {
				m := message(key)
				m.Request.QueueID = creds.QueueID
				if key == "secret-untraced" {
					_, err := w.box.Enqueue(t.Context(), tx.Tx, m)
					if err != nil {
						return err
					}
					continue
				}
				ctx, order := provider.Tracer("shop").Start(t.Context(), "order")
				r, err := box.Enqueue(ctx, tx.Tx, m)
				if err != nil {
					return err
				}
				order.End()
				business[key], seqs[key] = order.SpanContext(), attribute.Int64Value(r.Seq).String()
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		client, err := orbit.NewClient(url, creds.Token, orbit.ClientConfig{MinimalBatchAnswers: true, Traceparent: outboxtrace.Traceparent})
		if err != nil {
			t.Fatal(err)
		}
		r, err := relay.New(w.store, []relay.Target{{Name: "main", Client: client}}, relay.Config{TracerProvider: provider})
		if err != nil {
			t.Fatal(err)
		}
		w.start(r)

		request := spans.await("send outbox rows")
		for _, key := range []string{"secret-alone", "secret-one", "secret-two"} {
			enqueue := spans.await("enqueue message", under(business[key]))
			send := spans.await("send outbox row", under(enqueue.SpanContext))
			if attributeOf(send, "orbit.outbox.row") != seqs[key] || attributeOf(send, "orbit.outbox.outcome") != "accepted" || attributeOf(send, "orbit.task.id") == "" || send.Status.Code == codes.Error {
				t.Errorf("span of row %s: %v, %v", seqs[key], send.Attributes, send.Status)
			}
			accept := "accept task"
			if key == "secret-alone" {
				accept = "POST /v1/tasks"
			} else if !linkedTo(send, request.SpanContext) || !linkedTo(request, send.SpanContext) {
				t.Errorf("spans of the batch and of row %s are not linked to each other", seqs[key])
			}
			spans.await(accept, under(send.SpanContext))
			spans.await("execute orders.ship", under(send.SpanContext))
		}
		if request.Parent.IsValid() || attributeOf(request, "orbit.batch.items") != "3" {
			t.Errorf("the span of the batch has the parent %v and %v", request.Parent, request.Attributes)
		}
		spans.await("execute orders.ship", under(spans.await("POST /v1/tasks:batch", under(request.SpanContext)).SpanContext))
		for _, span := range spans.all.GetSpans() {
			if text, _ := json.Marshal(span); strings.Contains(string(text), "secret") || strings.Contains(string(text), "9007199254740993") {
				t.Errorf("span %q tells a key or a payload: %s", span.Name, text)
			}
		}
	})
}

// Every span says what came of the row, in few words of its own.
func TestSpansTellWhatCameOfARow(t *testing.T) {
	tests := map[string]struct {
		reply         reply
		outcome, kind string
	}{
		"known from an earlier send": {reply{accept: true}, "accepted", ""},
		"refused":                    {reply{status: 400, code: orbit.CodeInvalidArgument}, "refused", orbit.CodeInvalidArgument},
		"queue full":                 {reply{status: 429, code: orbit.CodeQueueFull}, "not_accepted", orbit.CodeQueueFull},
		"bad credential":             {reply{status: 401, code: orbit.CodeUnauthenticated}, "not_accepted", orbit.CodeUnauthenticated},
		"unavailable":                {reply{status: 503, code: orbit.CodeUnavailable}, "unknown", orbit.CodeUnavailable},
		"proxy":                      {reply{status: 403, raw: "secret words of a proxy"}, "unknown", "403"},
		"login page":                 {reply{status: 302, header: map[string]string{"Location": "/secret"}}, "unknown", "302"},
		"other queue":                {reply{queue: queueB}, "mismatch", "mismatch"},
		"receipt without digest":     {reply{digest: "-"}, "unknown", "no_digest"},
		"no answer":                  {reply{cut: true}, "unknown", "no_answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSQLite(t, func(t *testing.T, w *world) {
				spans, provider := newSpans(t)
				w.fake.answer = func(send) reply { return test.reply }
				cfg := quick()
				cfg.TracerProvider = provider
				w.start(w.relay(cfg))
				w.enqueueKeys("secret")
				w.hook.Notify()
				span := spans.await("send outbox row")
				if attributeOf(span, "orbit.outbox.outcome") != test.outcome || attributeOf(span, "error.type") != test.kind || (span.Status.Code == codes.Error) != (test.kind != "") {
					t.Errorf("%v, %v; want outcome %q, error.type %q", span.Attributes, span.Status, test.outcome, test.kind)
				}
				if text, _ := json.Marshal(span); strings.Contains(string(text), "secret") {
					t.Errorf("span tells more than it may: %s", text)
				}
			})
		})
	}
}

// A relay that makes no span of a row sends the trace context that was frozen, to the byte.
func TestWithoutASpanTheFrozenTraceIsSent(t *testing.T) {
	const frozen = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"
	sampledOut := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()), sdk.WithSyncer(tracetest.NewInMemoryExporter()))
	for name, provider := range map[string]trace.TracerProvider{"none": nil, "sampled out": sampledOut} {
		onSQLite(t, func(t *testing.T, w *world) {
			var messages []outbox.Message
			for _, key := range []string{"alone", "a", "b"} {
				m := message(key)
				m.Traceparent = frozen
				messages = append(messages, m)
			}
			w.enqueue(messages...)
			cfg := quick()
			cfg.TracerProvider = provider
			w.start(w.relay(cfg))
			w.eventually("all are delivered", func() bool { return w.count(outbox.Delivered) == 3 })
			for _, key := range []string{"alone", "a", "b"} {
				if s := w.fake.sendsOf(key)[0]; s.trace != frozen || (s.batch == 1) != (key == "alone") {
					t.Errorf("provider %s: %s was sent with %q among %d", name, key, s.trace, s.batch)
				}
			}
		})
	}
}

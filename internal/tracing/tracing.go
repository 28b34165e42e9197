// Package tracing sends the spans of Orbit's programs to the collector that the environment
// names.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/orbitkit/orbit/internal/version"
)

// The environment variables that decide whether there are traces. All others of
// OpenTelemetry are read by its own libraries.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envHeaders        = "OTEL_EXPORTER_OTLP_HEADERS"
	envTracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envDisabled       = "OTEL_SDK_DISABLED"
)

const (
	otlpProtocol = "http/protobuf"
	flushTimeout = 3 * time.Second // at the end, for a collector that may not answer
)

// An About tells collectors who sends.
type About struct {
	Service  string // such as the program's name; OTEL_SERVICE_NAME has the last word
	Instance string // unlike that of any other process
}

// Start makes what sends spans to a collector, or nothing if the environment names none. Stop
// sends what is left, and waits no longer than three seconds for it. An error is a mistake in
// the environment; nothing is sent yet.
func Start(ctx context.Context, getenv func(string) string, about About, log *slog.Logger) (provider trace.TracerProvider, stop func(), err error) {
	nothing := func() {}
	if wanted, err := wanted(getenv); err != nil {
		return nil, nothing, err
	} else if !wanted {
		return noop.NewTracerProvider(), nothing, nil
	}
	exporter, err := otlptracehttp.New(ctx) // it does not connect yet
	if err != nil {
		return nil, nothing, fmt.Errorf("traces: %w", err)
	}
	sender, err := about.resource(ctx)
	if err != nil {
		return nil, nothing, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	sending := sdk.NewTracerProvider(sdk.WithBatcher(&toldExporter{SpanExporter: exporter, log: log}), sdk.WithResource(sender))
	log.InfoContext(ctx, "sending traces") // the address may hold a secret
	return sending, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := sending.Shutdown(ctx); err != nil {
			log.WarnContext(ctx, "not all spans could be sent")
		}
	}, nil
}

// wanted reports whether the environment names a collector. It refuses what this
// program cannot do, rather than sending spans where they are not understood.
func wanted(getenv func(string) string) (bool, error) {
	name, endpoint := envTracesEndpoint, getenv(envTracesEndpoint)
	if endpoint == "" {
		name, endpoint = envEndpoint, getenv(envEndpoint)
	}
	exporter := cmp.Or(getenv(envExporter), "otlp")
	switch {
	case endpoint == "", strings.EqualFold(getenv(envDisabled), "true"), exporter == "none":
		return false, nil
	case exporter != "otlp":
		return false, fmt.Errorf("%s: must be otlp or none", envExporter)
	}
	if protocol := cmp.Or(getenv(envTracesProtocol), getenv(envProtocol), otlpProtocol); protocol != otlpProtocol {
		return false, fmt.Errorf("%s, %s: must be %s", envTracesProtocol, envProtocol, otlpProtocol)
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("%s: must be a URL such as http://127.0.0.1:4318", name)
	}
	for _, name := range []string{envHeaders, envTracesHeaders} {
		if !validHeaders(getenv(name)) {
			return false, fmt.Errorf("%s: must be name=value, several with commas, values as in a URL", name)
		}
	}
	return true, nil
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// validHeaders judges headers as the exporter will. It would print what it does not take,
// which may be a secret, and go on without.
func validHeaders(text string) bool {
	if text == "" {
		return true
	}
	for header := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(header, "=")
		if _, err := url.PathUnescape(value); !found || err != nil || !headerName.MatchString(strings.TrimSpace(name)) {
			return false
		}
	}
	return true
}

// resource says it in OpenTelemetry's words. The environment has the last word.
func (a About) resource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", a.Service), attribute.String("service.version", version.String()), attribute.String("service.instance.id", a.Instance),
	), resource.WithFromEnv())
}

// A toldExporter logs when exports begin to fail and when they work again. Spans that a
// collector does not take are lost; nothing else is.
type toldExporter struct {
	sdk.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements [sdk.SpanExporter].
func (e *toldExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && e.failing.CompareAndSwap(false, true):
		e.log.WarnContext(ctx, "spans cannot be sent; they are lost until this works again", "cause", causeOf(err))
	case err == nil && e.failing.CompareAndSwap(true, false):
		e.log.InfoContext(ctx, "spans can be sent again")
	}
	return nil // it has been told
}

var statusLine = regexp.MustCompile(`\b[1-5][0-9]{2} [A-Z][A-Za-z -]*`)

// causeOf tells what failed without the address, which may hold a secret.
func causeOf(err error) string {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		return inner.Err.Error()
	}
	return cmp.Or(statusLine.FindString(err.Error()), fmt.Sprintf("%T", err))
}

package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
)

// The spans of requests are sent to the collector of the environment before the process ends,
// without keys and payloads.
func TestSpansAreSentToTheCollectorOfTheEnvironment(t *testing.T) {
	var mu sync.Mutex
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		mu.Lock()
		defer mu.Unlock()
		io.Copy(&got, body)
	}))
	defer collector.Close()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	t.Setenv(endpoint, collector.URL) // OpenTelemetry reads it by itself
	s := newSite(t, dbtest.SQLite)
	s.target = "default"
	s.enqueue("sesame-1", "sesame-2", "sesame-3")
	env := s.env()
	env[endpoint] = collector.URL
	if code, out, errs := call(t.Context(), env, "once"); code != 0 {
		t.Fatalf("exit %d: %s %s", code, out, errs)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"orbit-relay", "send outbox row", "send outbox rows", "service.version", s.credentials.QueueID} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q was not sent", want)
		}
	}
	for _, secret := range []string{"sesame", "9007199254740993", s.credentials.Token} {
		if strings.Contains(got.String(), secret) {
			t.Errorf("%q was sent", secret)
		}
	}
}

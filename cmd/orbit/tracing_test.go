package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// Variables of OpenTelemetry.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// A collector takes OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies bytes.Buffer
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.Method == http.MethodPost && r.URL.Path == "/v1/traces" {
			io.Copy(&c.bodies, body)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

const testTrace = "0af7651916cd43dd8448eb211c80319c"

// ask sends a request of a trace to a node.
func askTraced(t *testing.T, addr string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/v1/tasks", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("traceparent", "00-"+testTrace+"-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d, want 401", resp.StatusCode)
	}
}

// Spans that are left at the end of a node are sent before it ends.
func TestSpansAreSentToTheCollectorOfTheEnvironment(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	c := newCollector(t)
	t.Setenv(envEndpoint, c.URL)
	t.Setenv("OTEL_SERVICE_NAME", "orbit-of-the-test")
	addr, errs, stop := runNode(t, map[string]string{"ORBIT_DATABASE": db.Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0", envEndpoint: c.URL})
	askTraced(t, addr)
	if code := stop(); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	trace, _ := hex.DecodeString(testTrace)
	for _, want := range [][]byte{trace, []byte("GET /v1/tasks"), []byte("orbit-of-the-test"), []byte("service.version"), []byte("service.instance.id")} {
		if !bytes.Contains(c.bodies.Bytes(), want) {
			t.Errorf("%q was not sent", want)
		}
	}
}

// A collector that is away costs its spans and nothing else, and is told of once.
func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://secret:word@" + nowhere.Addr().String()
	nowhere.Close()
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	t.Setenv(envTracesEndpoint, url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	addr, errs, stop := runNode(t, map[string]string{"ORBIT_DATABASE": db.Address, "ORBIT_HTTP_ADDR": "127.0.0.1:0", envTracesEndpoint: url})
	for range 5 {
		askTraced(t, addr)
	}
	if code := stop(); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if text := errs.String(); strings.Contains(text, "word") || strings.Count(text, "spans") == 0 || strings.Count(text, "spans cannot be sent") > 1 {
		t.Errorf("log: %s", text)
	}
}

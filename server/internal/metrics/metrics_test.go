package metrics_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/server/internal/metrics"
	"github.com/orbitkit/orbit/server/internal/retention"
)

// shown returns what /metrics shows.
func shown(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET /metrics = %d", w.Code)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q in the metrics", line)
		}
	}
}

// Two nodes of one process count apart: nothing is global.
func TestEachServerHasItsOwnRegistry(t *testing.T) {
	a, b := metrics.New(), metrics.New()
	a.Accept.Committed(7)
	a.Accept.Committed(3)
	wantLines(t, shown(t, a), "orbit_accept_commits_total 2", "orbit_accept_tasks_total 10")
	wantLines(t, shown(t, b), "orbit_accept_commits_total 0", "orbit_accept_tasks_total 0")
}

func TestRetentionIsCounted(t *testing.T) {
	m := metrics.New()
	m.Retention.Removed(retention.Counts{Tasks: 2, Records: 5, Events: 9})
	m.Retention.Removed(retention.Counts{Records: 1})
	for _, series := range []string{"last_run", "oldest"} {
		if strings.Contains(shown(t, m), series) {
			t.Errorf("a node that has run nothing shows orbit_retention_%s…", series)
		}
	}
	m.Retention.Ran(retention.Report{At: time.UnixMicro(1_000_000)})
	m.Retention.Ran(retention.Report{At: time.UnixMicro(1_500_000), Oldest: 90 * time.Second})
	wantLines(t, shown(t, m), "orbit_retention_tasks_purged_total 2", "orbit_retention_records_purged_total 6",
		"orbit_retention_last_run_timestamp_seconds 1.5", "orbit_retention_oldest_purgeable_seconds 90")
}

func TestNothingButMetricsIsServed(t *testing.T) {
	h := metrics.New().Handler()
	for _, path := range []string{"/", "/metrics/", "/debug/pprof/", "/debug/vars"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics = %d, want 405", w.Code)
	}
}

// Whatever clients send, the number of labels stays small; and each kind of answer has its
// class.
func TestRequestsAreCountedByFewLabels(t *testing.T) {
	m := metrics.New()
	h := m.HTTP.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/created":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		case "/text":
			w.Write([]byte("x"))
		case "/bad":
			w.WriteHeader(http.StatusBadRequest)
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/deadline":
			if err := http.NewResponseController(w).SetReadDeadline(time.Now()); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	}), func(r *http.Request) string { return r.URL.Path })
	web := httptest.NewServer(h)
	defer web.Close()
	web.Client().Transport.(*http.Transport).DisableKeepAlives = true // so that it does not repeat what was cut off
	for _, path := range []string{"/created", "/text", "/empty", "/bad", "/cut", "/deadline"} {
		if resp, err := web.Client().Get(web.URL + path); err == nil {
			resp.Body.Close()
		}
	}
	for i := range 5 {
		r, err := http.NewRequest(fmt.Sprintf("MADEUP%d", i), web.URL+"/text", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := web.Client().Do(r); err == nil {
			resp.Body.Close()
		}
	}
	web.Close() // waits for what is under way
	count := func(method, route, status string, n int) string {
		return fmt.Sprintf("orbit_http_requests_total{method=%q,route=%q,status=%q} %d", method, route, status, n)
	}
	wantLines(t, shown(t, m), count("GET", "/created", "2xx", 1), count("GET", "/text", "2xx", 1), count("GET", "/empty", "2xx", 1),
		count("GET", "/bad", "4xx", 1), count("GET", "/cut", "aborted", 1), count("GET", "/deadline", "2xx", 1), count("other", "/text", "2xx", 5),
		`orbit_http_request_duration_seconds_count{method="GET",route="/bad"} 1`)
}

// A connection that becomes a WebSocket is counted and not timed.
func TestHijackedConnectionsAreNotTimed(t *testing.T) {
	m := metrics.New()
	h := m.HTTP.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		rw.Flush()
	}), func(*http.Request) string { return "/ws" })
	web := httptest.NewServer(h)
	conn, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatalf("answer = %q, %v", line, err)
	}
	if _, err := r.ReadString('\x00'); err == nil || errors.Is(err, net.ErrClosed) {
		t.Fatalf("the connection goes on: %v", err)
	}
	web.Close()
	for range 1000 { // the handler has closed the connection and is about to return
		if strings.Contains(shown(t, m), `route="/ws"`) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	text := shown(t, m)
	wantLines(t, text, `orbit_http_requests_total{method="GET",route="/ws",status="1xx"} 1`)
	if strings.Contains(text, `duration_seconds_count{method="GET",route="/ws"`) {
		t.Error("a connection that was taken over was timed")
	}
}

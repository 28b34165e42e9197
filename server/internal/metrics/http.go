package metrics

import (
	"bufio"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HTTP counts requests and how long they took.
type HTTP struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newHTTP(r prometheus.Registerer) *HTTP {
	h := &HTTP{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_http_requests_total",
			Help: `Requests that were answered, by method, pattern of the path and class of the status ("aborted" if the answer was cut off).`,
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "orbit_http_request_duration_seconds",
			Help:    "From the head of a request to the end of its answer, connections of workers left out.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route"}),
	}
	r.MustRegister(h.requests, h.duration)
	return h
}

// Handler counts the requests that next answers. route returns the pattern of a request's
// path, one of few.
func (h *HTTP) Handler(next http.Handler, route func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		rec := &recorder{ResponseWriter: w, class: "aborted"}
		defer func() { h.observe(rec, methodOf(r), route(r), time.Since(began)) }()
		next.ServeHTTP(rec, r)
		rec.ended()
	})
}

func (h *HTTP) observe(rec *recorder, method, route string, took time.Duration) {
	h.requests.WithLabelValues(method, route, rec.class).Inc()
	if !rec.hijacked {
		h.duration.WithLabelValues(method, route).Observe(took.Seconds())
	}
}

// methodOf keeps methods that somebody made up out of the labels.
func methodOf(r *http.Request) string {
	known := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete, http.MethodOptions}
	if slices.Contains(known, r.Method) {
		return r.Method
	}
	return "other"
}

// A recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status   int
	class    string // of the status, once the answer has ended
	hijacked bool
}

// ended notes that the answer was not cut off.
func (w *recorder) ended() {
	status := w.status
	if status == 0 {
		status = http.StatusOK // of an empty answer
	}
	w.class = strconv.Itoa(status/100) + "xx"
}

// WriteHeader implements [http.ResponseWriter].
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // others are not the last word
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Hijack implements [http.Hijacker], which WebSockets ask for.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked, w.status = true, http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Package metrics counts what a node does, for Prometheus. Each group of instruments has a
// file and is joined to the others in New. Names begin with orbit_, labels have few values:
// a route's pattern is one, an id never.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	gatherTimeout = 10 * time.Second
	maxGathers    = 4 // at one time
)

// Metrics are the instruments of one node. They are safe for concurrent use.
type Metrics struct {
	HTTP      *HTTP
	Accept    *Accept
	Retention *Retention

	registry *prometheus.Registry
}

// New returns instruments at zero, with those of the Go runtime and of the process.
func New() *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{
		HTTP:      newHTTP(registry),
		Accept:    newAccept(registry),
		Retention: newRetention(registry),
		registry:  registry,
	}
}

// Handler serves the instruments at /metrics and nothing else.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Timeout: gatherTimeout, MaxRequestsInFlight: maxGathers,
	}))
	return mux
}

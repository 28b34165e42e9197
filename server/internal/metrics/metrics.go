// Package metrics counts what a node does, for Prometheus. Each group of instruments has a
// file and is joined to the others in New. Names begin with orbit_, labels have few values:
// a route's pattern is one, an id never.
package metrics

import (
	"database/sql"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orbitkit/orbit/server/internal/depth"
)

const (
	gatherTimeout = 10 * time.Second
	maxGathers    = 4 // at one time
)

// Metrics are the instruments of one node. They are safe for concurrent use.
type Metrics struct {
	HTTP      *HTTP
	Accept    *Accept
	Attempts  *Attempts
	Worker    *Worker
	Recovery  *Recovery
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
		Attempts:  newAttempts(registry),
		Worker:    newWorker(registry),
		Recovery:  newRecovery(registry),
		Retention: newRetention(registry),
		registry:  registry,
	}
}

var (
	// fast are the bounds of what should take some milliseconds.
	fast = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
	// sizes are the bounds of what shares a transaction.
	sizes = []float64{1, 2, 5, 10, 20, 50, 100}
)

// ShowNode shows which node and release this is. It is called once.
func (m *Metrics) ShowNode(id, version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "orbit_build_info", Help: "1; tells the node's id, its release and the version of Go.",
		ConstLabels: prometheus.Labels{"node_id": strings.ToValidUTF8(id, "\uFFFD"), "version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// ShowPool shows what the connections of a pool do. It is called once for each name.
func (m *Metrics) ShowPool(name string, pool *sql.DB) {
	m.registry.MustRegister(collectors.NewDBStatsCollector(pool, name))
}

// ShowQueues shows the last reading of what waits. It is called once.
func (m *Metrics) ShowQueues(last func() (depth.Reading, bool)) {
	m.registry.MustRegister(&queues{last})
}

// Describe tells of all instruments of our own, with or without a value.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) { m.registry.Describe(to) }

// Handler serves the instruments at /metrics and nothing else.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Timeout: gatherTimeout, MaxRequestsInFlight: maxGathers,
	}))
	return mux
}

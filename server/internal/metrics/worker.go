package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/server/internal/session"
)

// Worker counts the messages and connections of workers.
type Worker struct {
	messages  *prometheus.HistogramVec
	refusals  *prometheus.CounterVec
	items     *prometheus.HistogramVec
	batches   *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	closed    *prometheus.CounterVec
	registry  prometheus.Registerer
	perNumber []numbered
}

// A numbered gauge shows one number of the moment.
type numbered struct {
	desc *prometheus.Desc
	of   func(session.Stats) int
}

func newWorker(r prometheus.Registerer) *Worker {
	message := []string{"message"}
	w := &Worker{
		registry: r,
		messages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_worker_message_duration_seconds", Help: "From the arrival of a worker's message to its answer, by type: the wait for the batch before it included.", Buckets: fast,
		}, message),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_worker_message_refusals_total", Help: "Messages that were not done as asked, by type and code: refusals, and reports and resumes that came too late.",
		}, []string{"message", "code"}),
		items: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_worker_batch_messages", Help: "Messages that shared a batch, by type.", Buckets: sizes,
		}, message),
		batches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_worker_batch_duration_seconds", Help: "How long a batch took in the database, by type.", Buckets: fast,
		}, message),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_worker_batch_failures_total", Help: "Batches of unknown outcome, by type: their messages are repeated.",
		}, message),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_worker_connections_closed_total", Help: "Connections that ended, by cause.",
		}, []string{"cause"}),
		perNumber: []numbered{
			{gauge("orbit_worker_connections", "Open connections of workers, those included that have not registered yet."), func(s session.Stats) int { return s.Connections }},
			{gauge("orbit_worker_sessions", "Worker processes that are connected and registered."), func(s session.Stats) int { return s.Sessions }},
			{gauge("orbit_worker_free_slots", "Assignments that the connected workers take now."), func(s session.Stats) int { return s.FreeSlots }},
			{gauge("orbit_worker_held_attempts", "Attempts that the connected workers hold, as far as this node knows."), func(s session.Stats) int { return s.Held }},
		},
	}
	for _, cause := range []string{session.ClosedByWorker, session.ClosedWrite, session.ClosedOverflow, session.ClosedReplaced,
		session.ClosedCredential, session.ClosedProtocol, session.ClosedRefused, session.ClosedStop} {
		w.closed.WithLabelValues(cause)
	}
	r.MustRegister(w.messages, w.refusals, w.items, w.batches, w.failures, w.closed)
	return w
}

// Watch returns what a hub is to tell.
func (w *Worker) Watch() session.Watch {
	return session.Watch{Answered: w.answered, Batched: w.batched, Closed: func(cause string) { w.closed.WithLabelValues(cause).Inc() }}
}

func (w *Worker) answered(message string, took time.Duration, code string) {
	w.messages.WithLabelValues(message).Observe(took.Seconds())
	if code != "" {
		w.refusals.WithLabelValues(message, code).Inc()
	}
}

func (w *Worker) batched(message string, items int, took time.Duration, err error) {
	w.items.WithLabelValues(message).Observe(float64(items))
	w.batches.WithLabelValues(message).Observe(took.Seconds())
	if err != nil {
		w.failures.WithLabelValues(message).Inc()
	}
}

// Show has the numbers of the moment asked for at each scrape. It is called once.
func (w *Worker) Show(stats func() session.Stats) {
	w.registry.MustRegister(&sessions{w.perNumber, stats})
}

// sessions is a [prometheus.Collector].
type sessions struct {
	numbers []numbered
	stats   func() session.Stats
}

// Describe implements [prometheus.Collector].
func (s *sessions) Describe(to chan<- *prometheus.Desc) {
	for _, n := range s.numbers {
		to <- n.desc
	}
}

// Collect implements [prometheus.Collector].
func (s *sessions) Collect(to chan<- prometheus.Metric) {
	now := s.stats()
	for _, n := range s.numbers {
		to <- prometheus.MustNewConstMetric(n.desc, prometheus.GaugeValue, float64(n.of(now)))
	}
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

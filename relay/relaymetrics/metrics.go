// Package relaymetrics shows what a relay does as Prometheus metrics. It is apart from
// package relay, so that who embeds a relay without them carries no client library.
//
// Every label has few values: targets are those that the relay was made with, outcomes
// and states are lists in the code.
package relaymetrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Metrics observes a relay and the outbox. It implements [relay.Observer] (REL-021).
type Metrics struct {
	requests  *prometheus.CounterVec
	batch     *prometheus.HistogramVec
	answers   *prometheus.CounterVec
	took      *prometheus.HistogramVec
	lag       *prometheus.HistogramVec
	lost      prometheus.Counter
	rows      *prometheus.GaugeVec
	oldest    prometheus.Gauge
	readAt    prometheus.Gauge
	registry  prometheus.Registerer
	readFails prometheus.Counter
}

// New returns metrics that are registered with r. It panics if they are already.
func New(r prometheus.Registerer) *Metrics {
	target := []string{"target"}
	m := &Metrics{
		registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_relay_requests_total", Help: "Requests to the task server, single and batch.",
		}, target),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_relay_request_rows", Help: "Rows in a request.",
			Buckets: []float64{1, 2, 5, 10, 25, 50, 100},
		}, target),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_relay_answers_total", Help: "Rows answered, or left without an answer, by what that means for the row.",
		}, []string{"target", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_relay_request_duration_seconds", Help: "From dialling to the end of the answer, or of the patience for it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, target),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_relay_lag_seconds", Help: "From enqueue, or the earliest time to send, to the accepted answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400},
		}, target),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_relay_leases_lost_total", Help: "Leads that ended because another relay leads.",
		}),
		rows: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "orbit_outbox_rows", Help: "Rows in the outbox by state; delivered ones are not counted.",
		}, []string{"state"}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "orbit_outbox_oldest_due_age_seconds", Help: "How long the oldest due row has been waiting; 0 without one.",
		}),
		readAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "orbit_outbox_read_timestamp_seconds", Help: "When the metrics of the outbox were last read, by this machine's clock.",
		}),
		readFails: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_outbox_read_failures_total", Help: "Times that the metrics of the outbox could not be read.",
		}),
	}
	r.MustRegister(m.requests, m.batch, m.answers, m.took, m.lag, m.lost, m.rows, m.oldest, m.readAt, m.readFails)
	return m
}

// Requested implements [relay.Observer].
func (m *Metrics) Requested(target string, rows int, took time.Duration) {
	m.requests.WithLabelValues(target).Inc()
	m.batch.WithLabelValues(target).Observe(float64(rows))
	m.took.WithLabelValues(target).Observe(took.Seconds())
}

// Answered implements [relay.Observer].
func (m *Metrics) Answered(target string, outcome outbox.Outcome) {
	m.answers.WithLabelValues(target, outcome.String()).Inc()
}

// Accepted implements [relay.Observer].
func (m *Metrics) Accepted(target string, lag time.Duration) {
	m.lag.WithLabelValues(target).Observe(lag.Seconds())
}

// LeaseLost implements [relay.Observer].
func (m *Metrics) LeaseLost(int) { m.lost.Inc() }

// Show adds what r tells of itself: shards led, rows in flight, and the breaker of each
// target. It panics if that was done already.
func (m *Metrics) Show(r *relay.Relay) { m.registry.MustRegister(&standing{relay: r}) }

const (
	readEvery   = 15 * time.Second
	readTimeout = 10 * time.Second
)

// Watch reads counts and the oldest due row from the database every 15 seconds, until ctx
// ends.
func (m *Metrics) Watch(ctx context.Context, s *outbox.Store, log *slog.Logger) {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := m.read(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			log.Warn("metrics of the outbox cannot be read", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (m *Metrics) read(ctx context.Context, s *outbox.Store) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := s.Depth(ctx)
	if err != nil {
		m.readFails.Inc()
		return err
	}
	for state, n := range st.Count {
		m.rows.WithLabelValues(state.String()).Set(float64(n))
	}
	age := 0.0
	if !st.OldestDue.IsZero() {
		age = st.At.Sub(st.OldestDue).Seconds()
	}
	m.oldest.Set(age)
	m.readAt.SetToCurrentTime()
	return nil
}

// Package workermetrics shows what a worker does to Prometheus. It is a package of its own so
// that who measures otherwise does not depend on the client library: [worker.Worker.Stats]
// has the same numbers.
package workermetrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/worker"
)

// A Collector is a [prometheus.Collector] of the [worker.Stats] of one worker. All that it
// shows is in docs/observability.md.
type Collector struct {
	stats func() worker.Stats
	descs descs
}

type descs struct {
	executions, panics, duration           *prometheus.Desc
	roundTrips                             *prometheus.Desc
	connects, connected, leasesLost        *prometheus.Desc
	capacity, slots, stuck, unacknowledged *prometheus.Desc
}

// New returns a collector for w. Labels are put on everything; a program that runs several
// workers tells them apart by one. They may be nil.
func New(w *worker.Worker, labels prometheus.Labels) *Collector {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, variable, labels)
	}
	return &Collector{stats: w.Stats, descs: descs{
		executions: desc("orbit_executions_total", "Executions of handlers that ended, by handler, version and outcome.", "handler", "version", "outcome"),
		panics:     desc("orbit_execution_panics_total", "Executions that panicked; their outcome is unknown.", "handler", "version"),
		duration:   desc("orbit_execution_duration_seconds", "From the call of a handler to its return.", "handler", "version"),
		roundTrips: desc("orbit_message_round_trip_seconds", "From a message to the server until its answer, by type.", "message"),
		connects:   desc("orbit_connects_total", "Tries to connect to a server, by result: ok or failed.", "result"),
		connected:  desc("orbit_connections", "Connections to a server now: 1 if all is well."),
		leasesLost: desc("orbit_leases_lost_total", "Rights to execute that ended before the end of the attempt was told."),
		capacity:   desc("orbit_slots_capacity", "Attempts that the worker holds at most."),
		slots:      desc("orbit_slots", "Attempts that the worker holds, by phase: starting, running, reporting or returning.", "phase"),
		stuck:      desc("orbit_slots_stuck", "Running handlers that ignore the end of their context."),
		unacknowledged: desc("orbit_unacknowledged_results",
			"Executions that are over and whose result the server has not confirmed yet; the same as orbit_slots{phase=\"reporting\"}."),
	}}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	d := &c.descs
	for _, one := range []*prometheus.Desc{d.executions, d.panics, d.duration, d.roundTrips, d.connects, d.connected, d.leasesLost,
		d.capacity, d.slots, d.stuck, d.unacknowledged} {
		to <- one
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	s, d := c.stats(), &c.descs
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(desc *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	for h, one := range s.Handlers {
		for outcome, n := range one.Outcomes {
			counter(d.executions, n, h.Name, h.Version, strings.ToLower(outcome))
		}
		counter(d.panics, one.Panics, h.Name, h.Version)
		to <- histogram(d.duration, one.Duration, h.Name, h.Version)
	}
	for message, h := range s.RoundTrips {
		to <- histogram(d.roundTrips, h, message)
	}
	counter(d.connects, s.Connects, "ok")
	counter(d.connects, s.ConnectFailures, "failed")
	counter(d.leasesLost, s.LeasesLost)
	gauge(d.connected, s.Connected)
	gauge(d.capacity, s.Capacity)
	gauge(d.slots, s.Starting, worker.SlotStarting)
	gauge(d.slots, s.Running, worker.SlotRunning)
	gauge(d.slots, s.Reporting, worker.SlotReporting)
	gauge(d.slots, s.Returning, worker.SlotReturning)
	gauge(d.stuck, s.Stuck)
	gauge(d.unacknowledged, s.Reporting)
}

func histogram(desc *prometheus.Desc, h worker.Histogram, labels ...string) prometheus.Metric {
	buckets, upTo := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		upTo += h.Counts[i]
		buckets[float64(bound)/float64(time.Second)] = upTo
	}
	return prometheus.MustNewConstHistogram(desc, h.Count, h.Sum.Seconds(), buckets, labels...)
}

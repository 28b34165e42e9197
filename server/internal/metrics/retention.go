package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/server/internal/retention"
)

// Retention counts what was deleted, and tells whether the deletion keeps up. What it tells
// of runs is shown from the first run on: a node that never runs one shows nothing that an
// alarm could take for a run long ago.
type Retention struct {
	tasks, records  prometheus.Counter
	lastRun, oldest prometheus.Gauge

	registry prometheus.Registerer
	ran      sync.Once
}

func newRetention(r prometheus.Registerer) *Retention {
	m := &Retention{
		registry: r,
		tasks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_retention_tasks_purged_total", Help: "Tasks deleted because of their age.",
		}),
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_retention_records_purged_total", Help: "Records of idempotency keys deleted, with their task or alone.",
		}),
		lastRun: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "orbit_retention_last_run_timestamp_seconds", Help: "When the last run that came to its end began; absent if there was none.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "orbit_retention_oldest_purgeable_seconds", Help: "How long the first thing that the last run found had been due; grows if runs do not keep up.",
		}),
	}
	r.MustRegister(m.tasks, m.records)
	return m
}

// Removed counts what one transaction deleted.
func (m *Retention) Removed(c retention.Counts) {
	m.tasks.Add(float64(c.Tasks))
	m.records.Add(float64(c.Records))
}

// Ran notes a run that came to its end.
func (m *Retention) Ran(r retention.Report) {
	m.lastRun.Set(float64(r.At.UnixMicro()) / 1e6)
	m.oldest.Set(r.Oldest.Seconds())
	m.ran.Do(func() { m.registry.MustRegister(m.lastRun, m.oldest) })
}

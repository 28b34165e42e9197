package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/recovery"
)

// Recovery counts what the sweeps of this node look at and move.
type Recovery struct {
	sweeps *prometheus.CounterVec
	took   *prometheus.HistogramVec
	moved  *prometheus.CounterVec
}

func newRecovery(r prometheus.Registerer) *Recovery {
	m := &Recovery{
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_recovery_sweeps_total", Help: "Looks of the sweeps, by step and result: ok or failed.",
		}, []string{"step", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_recovery_sweep_duration_seconds", Help: "How long a look took, by step, with what it moved.", Buckets: fast,
		}, []string{"step"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_recovery_moved_total", Help: "Tasks that waited and were ended or put in line, by step; lanes with such tasks, for promote_stranded.",
		}, []string{"step"}),
	}
	for _, step := range []string{recovery.StepLeases, recovery.StepWaiting, recovery.StepDelayed, recovery.StepStranded} {
		m.sweeps.WithLabelValues(step, "ok")
		m.sweeps.WithLabelValues(step, "failed")
		m.took.WithLabelValues(step)
		if step != recovery.StepLeases {
			m.moved.WithLabelValues(step)
		}
	}
	r.MustRegister(m.sweeps, m.took, m.moved)
	return m
}

// Watch returns what a recovery is to tell; settled counts attempts.
func (m *Recovery) Watch(settled func(settle.Tally)) recovery.Watch {
	return recovery.Watch{
		Swept:   m.swept,
		Moved:   func(step string, n int) { m.moved.WithLabelValues(step).Add(float64(n)) },
		Settled: settled,
	}
}

func (m *Recovery) swept(step string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.sweeps.WithLabelValues(step, result).Inc()
	m.took.WithLabelValues(step).Observe(took.Seconds())
}

package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/server/internal/depth"
)

// queues shows the last reading of what waits. Without a recent one it shows nothing: what
// is not known is not told as zero.
type queues struct {
	last func() (depth.Reading, bool)
}

var (
	queueLabels  = []string{"application", "namespace", "queue"}
	queueTasks   = gauge("orbit_queue_tasks", "Tasks of a queue that are not finished, by state, as of the last reading. Counting stops at 10000: that means so many or more.", append(queueLabels, "state")...)
	queueOldest  = gauge("orbit_queue_oldest_ready_seconds", "For how long the next task of a queue could have been claimed, as of the last reading; 0 if none is in line.", queueLabels...)
	delayedTasks = gauge("orbit_delayed_tasks", "Tasks of all queues whose time has not come. Counting stops at 10000.")
	queuesBeyond = gauge("orbit_queues_left_out", "1 if there are more than the 500 queues that are read, else 0.")
	queuesRead   = gauge("orbit_queue_reading_timestamp_seconds", "When the last reading of queues ended.")
	queuesTook   = gauge("orbit_queue_reading_duration_seconds", "How long it took.")
)

// Describe implements [prometheus.Collector].
func (*queues) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queueTasks, queueOldest, delayedTasks, queuesBeyond, queuesRead, queuesTook} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (q *queues) Collect(to chan<- prometheus.Metric) {
	r, known := q.last()
	if !known {
		return
	}
	show := func(d *prometheus.Desc, v float64, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD") // somebody may have written it by hand
		}
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, one := range r.Queues {
		for _, state := range depth.States {
			show(queueTasks, float64(one.Tasks[state]), one.Application, one.Namespace, one.Name, strings.ToLower(state.String()))
		}
		show(queueOldest, one.OldestReady.Seconds(), one.Application, one.Namespace, one.Name)
	}
	beyond := 0.0
	if r.More {
		beyond = 1
	}
	show(delayedTasks, float64(r.Delayed))
	show(queuesBeyond, beyond)
	show(queuesRead, float64(r.At.UnixMicro())/1e6)
	show(queuesTook, r.Took.Seconds())
}

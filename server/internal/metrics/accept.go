package metrics

import "github.com/prometheus/client_golang/prometheus"

// Accept counts what acceptance costs: commits by tasks tells how well submits share
// transactions.
type Accept struct {
	commits prometheus.Counter
	tasks   prometheus.Counter
	sizes   prometheus.Histogram
}

func newAccept(r prometheus.Registerer) *Accept {
	a := &Accept{
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_accept_commits_total", Help: "Transactions that accepted tasks.",
		}),
		tasks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_accept_tasks_total", Help: "Tasks accepted, by submit or manual retry; repeats are not counted.",
		}),
	}
	a.sizes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "orbit_accept_commit_tasks", Help: "Tasks accepted by one transaction.", Buckets: sizes,
	})
	r.MustRegister(a.commits, a.tasks, a.sizes)
	return a
}

// Committed counts a transaction that accepted tasks.
func (a *Accept) Committed(tasks int) {
	a.commits.Inc()
	a.tasks.Add(float64(tasks))
	a.sizes.Observe(float64(tasks))
}

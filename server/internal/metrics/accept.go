package metrics

import "github.com/prometheus/client_golang/prometheus"

// Accept counts what acceptance costs: commits by tasks tells how well submits share
// transactions.
type Accept struct {
	commits prometheus.Counter
	tasks   prometheus.Counter
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
	r.MustRegister(a.commits, a.tasks)
	return a
}

// Committed counts a transaction that accepted tasks.
func (a *Accept) Committed(tasks int) {
	a.commits.Inc()
	a.tasks.Add(float64(tasks))
}

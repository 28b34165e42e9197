package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Attempts counts what becomes of attempts on this node, each once and after the commit.
type Attempts struct {
	claimed, started prometheus.Counter
	ended            *prometheus.CounterVec
	claims           *prometheus.CounterVec
	claimTime        prometheus.Histogram
	claimTasks       prometheus.Histogram
}

func newAttempts(r prometheus.Registerer) *Attempts {
	a := &Attempts{
		claimed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_attempts_claimed_total", Help: "Attempts made by claims of this node.",
		}),
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orbit_attempts_started_total", Help: "Attempts whose start was confirmed by this node, each once.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_attempts_ended_total", Help: "Attempts ended by this node, by outcome and by what ended them.",
		}, []string{"outcome", "cause"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_claims_total", Help: "Looks of this node for tasks to give to its workers, by result: granted, empty or failed.",
		}, []string{"result"}),
		claimTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "orbit_claim_duration_seconds", Help: "How long such a look took, commit included.", Buckets: fast,
		}),
		claimTasks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "orbit_claim_tasks", Help: "Tasks given to workers by one look that found some.", Buckets: sizes,
		}),
	}
	for _, result := range []string{"granted", "empty", "failed"} {
		a.claims.WithLabelValues(result)
	}
	for outcome, causes := range endings {
		for _, cause := range causes {
			a.ended.WithLabelValues(nameOf(outcome), cause)
		}
	}
	r.MustRegister(a.claimed, a.started, a.ended, a.claims, a.claimTime, a.claimTasks)
	return a
}

// Watch returns what a dispatcher is to tell.
func (a *Attempts) Watch() dispatch.Watch {
	return dispatch.Watch{Claimed: a.Claimed, Settled: a.Settled}
}

// byWorker is the cause of an end that the worker told of.
const byWorker = "worker"

// endings are the usual ends, shown from the beginning: a rate of what has not happened yet
// is zero.
var endings = map[task.Outcome][]string{
	task.OutcomeSucceeded:  {byWorker},
	task.OutcomeFailed:     {byWorker},
	task.OutcomeUnknown:    {byWorker, settle.ReasonLeaseExpired, settle.ReasonAttemptTimeout, settle.ReasonDeadline},
	task.OutcomeCancelled:  {byWorker, settle.ReasonCancelled},
	task.OutcomeNotStarted: {settle.ReasonLeaseExpired, settle.ReasonReturned, settle.ReasonDeadline, settle.ReasonStartDeadline},
}

func nameOf(o task.Outcome) string { return strings.ToLower(o.String()) }

// Claimed counts a claim.
func (a *Attempts) Claimed(tasks int, took time.Duration, err error) {
	result := "empty"
	switch {
	case err != nil:
		result = "failed"
	case tasks > 0:
		result = "granted"
	}
	a.claims.WithLabelValues(result).Inc()
	a.claimTime.Observe(took.Seconds())
	if tasks > 0 {
		a.claimed.Add(float64(tasks))
		a.claimTasks.Observe(float64(tasks))
	}
}

// Settled counts what a transaction did.
func (a *Attempts) Settled(t settle.Tally) {
	a.started.Add(float64(t.Started))
	for end, n := range t.Ended {
		cause := end.Reason
		if cause == "" {
			cause = byWorker
		}
		a.ended.WithLabelValues(nameOf(end.Outcome), cause).Add(float64(n))
	}
}

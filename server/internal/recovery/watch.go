package recovery

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// The steps of a recovery.
const (
	StepLeases   = "expire_leases"    // ends attempts whose lease has passed
	StepWaiting  = "expire_waiting"   // ends tasks that wait past a deadline
	StepDelayed  = "promote_delayed"  // puts tasks in line whose time has come
	StepStranded = "promote_stranded" // lets parked tasks go that were left behind
)

// A Watch is told what a recovery did, after the commit. Its functions must not block; one
// that is left out is not called.
type Watch struct {
	// Swept is told of each look of Run, whether it found anything or not.
	Swept func(step string, took time.Duration, err error)
	// Moved is told how many tasks a step ended or put in line; for StepStranded, in how
	// many lanes. Attempts are told of by Settled.
	Moved func(step string, n int)
	// Settled is told what a transaction did to attempts, which may be nothing.
	Settled func(settle.Tally)
}

func (w Watch) orNobody() Watch {
	if w.Swept == nil {
		w.Swept = func(string, time.Duration, error) {}
	}
	if w.Moved == nil {
		w.Moved = func(string, int) {}
	}
	if w.Settled == nil {
		w.Settled = func(settle.Tally) {}
	}
	return w
}

// logged bounds the lines about one batch of lost leases.
const logged = 20

// logLost names the attempts that a batch has ended, by their ids.
func (r *Recovery) logLost(ctx context.Context, lost []*settle.Attempt) {
	for i, a := range lost {
		if i == logged {
			r.cfg.Log.WarnContext(ctx, "more leases lost", "attempts", len(lost)-logged)
			return
		}
		r.cfg.Log.WarnContext(ctx, "lease lost", "attempt_id", a.ID.String(), "task_id", a.Task.String(),
			"process_id", a.Process.String(), "outcome", a.Outcome.String())
	}
}

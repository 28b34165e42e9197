package relay

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// tellEvery is how often a leader writes down what has changed. Nothing is written while
// nothing does.
const tellEvery = 5 * time.Second

// A teller writes down how a leader finds its targets, so that a status needs nothing but
// the database (REL-021).
type teller struct {
	lead *lead
	at   time.Time                      // of the last look
	told map[string]outbox.TargetReport // by target
}

// tell runs until ctx ends.
func (l *lead) tell(ctx context.Context) {
	t := teller{lead: l, at: time.Now(), told: map[string]outbox.TargetReport{}}
	var down outage
	for sleep(ctx, tellEvery) {
		err := t.look(ctx)
		if ctx.Err() != nil {
			return
		}
		down.report(l.log, "report targets", err)
	}
}

func (t *teller) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	elapsed := time.Since(t.at)
	t.at = time.Now()
	for _, r := range t.reports() {
		before, told := t.told[r.Target]
		r.PerMinute = perMinute(r.Accepted-before.Accepted, elapsed)
		if told && before == r {
			continue
		}
		if err := t.lead.store.ReportTarget(ctx, t.lead.term.now(), r); err != nil {
			return err
		}
		t.told[r.Target] = r
	}
	return nil
}

// perMinute is never zero for some rows.
func perMinute(rows int64, d time.Duration) int64 {
	if rows <= 0 || d <= 0 {
		return 0
	}
	return max(1, int64(float64(rows)*float64(time.Minute)/float64(d)))
}

func (t *teller) reports() (all []outbox.TargetReport) {
	r := t.lead.relay
	for name, g := range r.gates {
		s := g.stats()
		all = append(all, outbox.TargetReport{Target: name, Gate: s.State, Error: s.LastError, Accepted: t.lead.accepted[name].Load()})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.unclaimed {
		if !slices.ContainsFunc(all, func(o outbox.TargetReport) bool { return o.Target == name }) {
			all = append(all, outbox.TargetReport{Target: name, Gate: outbox.GateUnclaimed})
		}
	}
	return all
}

func newAccepted(gates map[string]*gate) map[string]*atomic.Int64 {
	accepted := make(map[string]*atomic.Int64, len(gates))
	for name := range gates {
		accepted[name] = new(atomic.Int64)
	}
	return accepted
}

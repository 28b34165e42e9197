package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// A lead is what a relay does for a shard while it has the shard's lease.
type lead struct {
	relay    *Relay
	store    *outbox.Store
	cfg      Config
	log      *slog.Logger
	count    *counters
	term     *term
	since    time.Time
	flight   *flight
	lanes    *laneHolds
	ledger   *ledger
	ramp     ramp
	accepted map[string]*atomic.Int64 // rows of each target
	drain    bool                     // end when nothing is left that can be sent now
	space    chan struct{}            // a pipe has room, or nothing is in flight any more
	rewind   atomic.Bool              // rows were given back behind the reader

	mu      sync.Mutex
	holds   []outbox.Hold
	heldAt  time.Time // when the holds were read
	senders sync.WaitGroup
	left    []Left
}

func newLead(r *Relay, lease outbox.Lease, drain bool) *lead {
	l := &lead{
		relay:    r,
		store:    r.store,
		cfg:      r.cfg,
		log:      r.cfg.Log.With("shard", lease.Shard, "epoch", lease.Epoch),
		count:    &r.count,
		term:     newTerm(r.store, lease, r.cfg.Lease),
		since:    time.Now(),
		flight:   newFlight(),
		lanes:    newLaneHolds(r.cfg),
		drain:    drain,
		accepted: newAccepted(r.gates),
		space:    make(chan struct{}, 1),
	}
	l.ledger = newLedger(l)
	l.ramp.rows.Store(steep)
	if lease.TookOver {
		l.ramp.rows.Store(1)
	}
	return l
}

// ErrLeftToLease reports that the end of a lead left rows or its lease behind. Nothing
// is lost: the next leader sends those rows again when the lease has ended.
var ErrLeftToLease = errors.New("relay: not everything was settled in time, the rest is left to the lease")

// run leads until ctx is canceled (or, to drain, until nothing can be sent), finishes
// what is under way and gives the shard back. It returns outbox.ErrLeaseLost, or
// ErrLeftToLease if the end was not in order.
func (l *lead) run(ctx context.Context) error {
	stop, cancelStop := context.WithCancel(ctx)
	defer cancelStop()
	hard, cancelHard := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelHard(nil)
	lose := func(err error) { cancelHard(err); cancelStop() }

	var upkeep sync.WaitGroup
	upkeep.Go(func() {
		var down outage
		if err := l.term.keep(hard, func(err error) { down.report(l.log, "renew lease", err) }); err != nil {
			lose(err)
		}
	})
	settled := make(chan error, 1)
	upkeep.Go(func() {
		err := l.ledger.keep(hard)
		if errors.Is(err, outbox.ErrLeaseLost) {
			lose(err)
		}
		settled <- err
	})

	upkeep.Go(func() { l.watchHolds(hard) })
	if !l.drain {
		upkeep.Go(func() { l.tell(hard) })
	}
	if !l.drain && l.cfg.Retain > 0 && l.term.now().Shard == 0 {
		upkeep.Go(func() { l.purge(stop) })
	}
	l.log.Info("shard led", "took_over", l.term.now().TookOver)
	newReader(l).run(stop, hard)
	err := l.finish(stop, cancelStop, cancelHard, settled)
	cancelHard(nil)
	upkeep.Wait()
	return l.giveUp(hard, err)
}

// finish waits for requests under way and their settling, but not for ever.
func (l *lead) finish(stop context.Context, cancelStop context.CancelFunc, cancelHard context.CancelCauseFunc, settled <-chan error) error {
	cancelStop()
	bound := time.AfterFunc(l.cfg.StopTimeout, func() { cancelHard(ErrLeftToLease) })
	defer bound.Stop()
	l.senders.Wait()
	l.ledger.close()
	return <-settled
}

// giveUp releases the lease if everything that was sent is settled. Otherwise the next
// leader must learn that it takes over.
func (l *lead) giveUp(hard context.Context, err error) error {
	if errors.Is(err, outbox.ErrLeaseLost) || errors.Is(context.Cause(hard), outbox.ErrLeaseLost) {
		l.log.Warn("lease lost")
		l.count.leasesLost.Add(1)
		l.cfg.Observer.LeaseLost(l.term.now().Shard)
		return outbox.ErrLeaseLost
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), releaseTimeout)
		defer cancel()
		if err = l.store.Release(ctx, l.term.now()); err == nil {
			l.log.Info("shard released")
			return nil
		}
	}
	l.log.Error("shard left to its lease", "err", err)
	return fmt.Errorf("%w: %w", ErrLeftToLease, err)
}

const (
	statementTimeout = 15 * time.Second
	releaseTimeout   = 5 * time.Second
)

// prepare marks rows that may have killed the leader before as sent with an unknown
// outcome, so that they are due later for the next one if they kill this one too.
func (l *lead) prepare(ctx context.Context, batch []*entry) bool {
	const cautious = 100
	if l.ramp.size() > cautious {
		return true
	}
	var seqs []int64
	for _, e := range batch {
		if e.suspect {
			seqs = append(seqs, e.row.Seq)
		}
	}
	if len(seqs) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	delay := delayAfter(batch[0].row.Attempts, l.cfg.RetryFirst, l.cfg.RetryMost)
	_, err := l.store.Postpone(ctx, l.term.now(), seqs, delay,
		outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Message: "sent again after a take-over"})
	if err != nil {
		l.log.Error("database fails", "act", "mark rows of a take-over", "err", err)
		return false
	}
	return true
}

// passes reports whether a row that was read earlier may still be sent.
func (l *lead) passes(g *gate, e *entry) bool {
	return g.passes(e.gateTrial) && l.lanes.passes(e.row.Lane, e.laneTrial) && !l.onHold(e.row.Target, e.row.QueueID)
}

// giveBack forgets rows that were not sent, or whose send says nothing about them.
func (l *lead) giveBack(entries ...*entry) {
	if len(entries) == 0 {
		return
	}
	for _, e := range entries {
		l.flight.drop(e.row.Seq)
		if e.laneTrial {
			l.lanes.endTrial(e.row.Lane)
		}
		if e.gateTrial {
			l.relay.gates[e.row.Target].endTrial()
		}
	}
	l.rewind.Store(true)
}

// giveBackAfter gives back rows after an answer that is about the target. Only Orbit's own says
// that no row was accepted: who else gave it may have passed them on, so that those without
// the mark of an unknown send get it first (OUT-013). No attempt is counted.
func (l *lead) giveBackAfter(a orbit.Answer, entries ...*entry) {
	for _, e := range entries {
		if a.Err != nil || e.row.Last.Unknown {
			l.giveBack(e)
			continue
		}
		l.endTrials(l.relay.gates[e.row.Target], e)
		l.count.unknown.Add(1)
		l.cfg.Observer.Answered(e.row.Target, outbox.OutcomeUnknown)
		l.ledger.enter(settling{act: actDoubt, answer: answerOf(outbox.OutcomeUnknown, a)}, e.row.Seq)
	}
}

// endTrials ends what a row was to find out, and will not.
func (l *lead) endTrials(g *gate, e *entry) {
	if e.gateTrial {
		g.endTrial()
	}
	if e.laneTrial {
		l.lanes.endTrial(e.row.Lane)
	}
}

// endLaneTrial tells the lane whether its queue has taken a row.
func (l *lead) endLaneTrial(e *entry, v verdict) {
	if v == accepted {
		l.lanes.freed(e.row.Lane)
	} else if e.laneTrial {
		l.lanes.endTrial(e.row.Lane)
	}
}

func (l *lead) deliver(e *entry, a orbit.Answer) {
	l.count.accepted.Add(1)
	l.accepted[e.row.Target].Add(1)
	l.cfg.Observer.Answered(e.row.Target, outbox.OutcomeAccepted)
	l.cfg.Observer.Accepted(e.row.Target, e.lag())
	if a.Accepted.Deduplicated {
		l.count.deduplicated.Add(1)
	}
	l.ledger.deliver(outbox.Delivery{
		Seq:          e.row.Seq,
		TaskID:       a.Accepted.Task.ID,
		Deduplicated: a.Accepted.Deduplicated,
		Status:       a.Status,
		RequestID:    a.RequestID,
		AcceptedAt:   e.acceptedAt(&a.Accepted.Task),
	})
}

func (l *lead) reject(e *entry, a outbox.Answer) {
	l.count.rejected.Add(1)
	l.cfg.Observer.Answered(e.row.Target, a.Outcome)
	a.Unknown = e.uncertain()
	l.ledger.enter(settling{act: actReject, answer: a}, e.row.Seq)
}

func (l *lead) block(e *entry, a outbox.Answer) {
	l.count.blocked.Add(1)
	l.cfg.Observer.Answered(e.row.Target, a.Outcome)
	a.Unknown = e.uncertain()
	l.ledger.enter(settling{act: actBlock, answer: a}, e.row.Seq)
}

// blockDamaged blocks a row that cannot be what was frozen, before anything is made of it:
// even its target may be wrong (OUT-008). The target given is that of its lane, empty if
// nobody can tell.
func (l *lead) blockDamaged(target string, e *entry) {
	l.count.blocked.Add(1)
	if target != "" {
		l.cfg.Observer.Answered(target, outbox.OutcomeDamaged)
	}
	l.log.Error("row blocked unsent", "seq", e.row.Seq, "outcome", outbox.OutcomeDamaged, "damage", e.row.Damage)
	a := outbox.Answer{Outcome: outbox.OutcomeDamaged, Unknown: e.uncertain(), Message: e.row.Damage}
	l.ledger.enter(settling{act: actBlock, answer: a}, e.row.Seq)
}

func (l *lead) postponeUnknown(e *entry, a outbox.Answer, least time.Duration) {
	l.count.unknown.Add(1)
	a.Outcome, a.Unknown = outbox.OutcomeUnknown, true
	l.cfg.Observer.Answered(e.row.Target, a.Outcome)
	l.ledger.enter(settling{act: actPostpone, answer: a, attempts: e.row.Attempts, least: least}, e.row.Seq)
}

func (l *lead) postponeFull(e *entry, a outbox.Answer, wait time.Duration) {
	l.count.notAccepted.Add(1)
	l.cfg.Observer.Answered(e.row.Target, a.Outcome)
	l.ledger.enter(settling{act: actPostpone, answer: a, attempts: -1, least: wait}, e.row.Seq)
}

// settled is called when rows are written.
func (l *lead) settled(seqs []int64) {
	l.flight.settle(seqs)
	if n := l.flight.open(); n == 0 || n+len(seqs) >= maxOpen {
		signal(l.space)
	}
}

package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/orbitkit/orbit/outbox"
)

// A Relay forwards the rows of one outbox to their targets. Several may run on the same
// database, in one process or many: each shard is led by one of them, the others stand
// by.
type Relay struct {
	store   *outbox.Store
	cfg     Config
	gates   map[string]*gate
	hook    *outbox.Hook // rings for new rows
	changed *outbox.Hook // rings when a gate lets more through
	tracer  trace.Tracer
	count   counters
	running atomic.Bool

	mu        sync.Mutex
	leads     map[int]*lead
	unclaimed map[string]struct{}
}

// New returns a relay for the outbox in store. It does no I/O. Rows for targets that
// are not among the given ones are left alone. The store's pool should allow at least
// four connections.
func New(store *outbox.Store, targets []Target, cfg Config) (*Relay, error) {
	if store == nil {
		return nil, errors.New("relay: store is nil")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := validateTargets(targets); err != nil {
		return nil, err
	}
	r := &Relay{
		store:     store,
		cfg:       cfg.withDefaults(),
		gates:     map[string]*gate{},
		hook:      cfg.Hook,
		changed:   &outbox.Hook{},
		tracer:    cfg.tracer(),
		leads:     map[int]*lead{},
		unclaimed: map[string]struct{}{},
	}
	if r.hook == nil {
		r.hook = &outbox.Hook{}
	}
	for _, t := range targets {
		r.gates[t.Name] = newGate(t, r.cfg, r.changed.Notify)
	}
	return r, nil
}

// Notify makes the relay look for due rows at once. It never blocks. Call it after the
// COMMIT of a business transaction, or use Config.Hook.
func (r *Relay) Notify() { r.hook.Notify() }

// subscribe returns the channels that wake a reader.
func (r *Relay) subscribe() (wake []<-chan struct{}, cancel func()) {
	rows, cancelRows := r.hook.Subscribe()
	gates, cancelGates := r.changed.Subscribe()
	return []<-chan struct{}{rows, gates}, func() { cancelRows(); cancelGates() }
}

// Run relays until ctx is canceled: it leads every shard that no other relay leads.
// Failures of the database and of targets are logged and outlived. After the cancel
// nothing new is sent; requests under way are finished and settled and the shards given
// back, within Config.StopTimeout. Run then returns nil, or an error that wraps
// ErrLeftToLease if something had to be left to the lease. A Relay runs once at a time.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("relay: is running already")
	}
	defer r.running.Store(false)
	stopProbes := r.startProbes(ctx)
	defer stopProbes()
	e := election{relay: r, ended: make(chan ended, 1)}
	return e.run(ctx)
}

// startProbes starts one prober per target. The returned function ends them.
func (r *Relay) startProbes(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	for _, g := range r.gates {
		probes.Go(func() { g.keepProbing(ctx) })
	}
	return func() {
		cancel()
		probes.Wait()
		for _, g := range r.gates {
			g.target.Client.CloseIdleConnections()
		}
	}
}

// noteUnclaimed remembers a target for which this relay has no credential.
func (r *Relay) noteUnclaimed(target string) {
	r.mu.Lock()
	_, known := r.unclaimed[target]
	r.unclaimed[target] = struct{}{}
	r.mu.Unlock()
	if !known {
		r.cfg.Log.Error("rows left alone: no credential for their target", "target", target)
	}
}

// begin makes the lead of a lease known while it lasts.
func (r *Relay) begin(lease outbox.Lease, drain bool) *lead {
	l := newLead(r, lease, drain)
	r.count.leads.Add(1)
	r.mu.Lock()
	r.leads[lease.Shard] = l
	r.mu.Unlock()
	return l
}

func (r *Relay) end(shard int) {
	r.mu.Lock()
	delete(r.leads, shard)
	r.mu.Unlock()
}

// shards returns what has to be led. A first row may come into shard 0 at any moment,
// so it is led before there is one.
func (r *Relay) shards(ctx context.Context) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	shards, err := r.store.Shards(ctx)
	if err != nil {
		return nil, err
	}
	if len(shards) == 0 || shards[0] != 0 {
		shards = append([]int{0}, shards...)
	}
	return shards, nil
}

func (r *Relay) tryLead(ctx context.Context, shard int) (outbox.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, min(statementTimeout, r.cfg.Lease))
	defer cancel()
	return r.store.Lead(ctx, shard, r.cfg.Name, r.cfg.Lease)
}

// An election tries to lead every shard.
type election struct {
	relay *Relay
	ended chan ended
	leads sync.WaitGroup
	led   map[int]*leading
	share *fairShare
	sleep time.Duration
	down  outage
	left  []int // shards whose end was not in order
}

// leading is a lead under way.
type leading struct {
	resign   context.CancelFunc // ends it gracefully
	resigned bool
}

// ended tells how a lead ended.
type ended struct {
	shard int
	err   error
}

const (
	// standBy is the longest time between looks at a lease that somebody else has.
	standBy = time.Second
	// lookForShards is the longest time between looks for new shards while this relay
	// leads all that there are.
	lookForShards = 3 * time.Second
)

func (e *election) run(ctx context.Context) error {
	e.led, e.share = map[int]*leading{}, newFairShare(e.relay)
	rows, unsubscribe := e.relay.hook.Subscribe()
	defer unsubscribe()
	retry := newBackOff(100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		e.sleep = lookForShards
		err := e.try(ctx)
		if ctx.Err() != nil {
			break
		}
		e.down.report(e.relay.cfg.Log, "lead shards", err)
		if err != nil {
			e.sleep = retry.NextBackOff() + minPoll
		} else {
			retry.Reset()
		}
		e.wait(ctx, rows)
	}
	e.share.leave(ctx)
	for len(e.led) > 0 {
		e.note(<-e.ended)
	}
	e.leads.Wait()
	if len(e.left) > 0 {
		return fmt.Errorf("%w: shards %v", ErrLeftToLease, e.left)
	}
	return nil
}

// wait sleeps until there may be a shard to lead. New rows may be in a new one; looks
// for that keep a distance.
func (e *election) wait(ctx context.Context, rows <-chan struct{}) {
	timer := time.NewTimer(max(e.sleep, minPoll))
	defer timer.Stop()
	apart := time.NewTimer(standBy)
	defer apart.Stop()
	var wake <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-wake:
			return
		case end := <-e.ended:
			e.note(end)
			return
		case <-apart.C:
			wake = rows
		}
	}
}

func (e *election) note(end ended) {
	handedOver := e.led[end.shard].resigned // to whom the shard has gone by now sees to the rest
	delete(e.led, end.shard)
	if errors.Is(end.err, ErrLeftToLease) && !handedOver {
		e.left = append(e.left, end.shard)
	}
}

// try leads what nobody leads, up to this relay's share, gives back what is over it, and notes
// when the lease of somebody else may end.
func (e *election) try(ctx context.Context) error {
	shards, err := e.relay.shards(ctx)
	if err != nil {
		return err
	}
	most := e.share.most(ctx, len(shards))
	if len(shards) > 1 {
		e.sleep = min(e.sleep, e.share.every())
	}
	e.giveBack(most)
	for _, shard := range shards {
		if e.led[shard] != nil || len(e.led) >= most {
			continue
		}
		lease, err := e.relay.tryLead(ctx, shard)
		var held *outbox.LeaseHeldError
		switch {
		case errors.As(err, &held):
			e.sleep = min(e.sleep, standBy, held.Left+time.Millisecond)
		case err != nil:
			return err
		default:
			e.lead(ctx, lease)
		}
	}
	return nil
}

// giveBack ends leads until no more than most are left: those of the highest shards. What is
// under way is finished and settled, and the lease released.
func (e *election) giveBack(most int) {
	kept := 0
	for _, shard := range slices.Sorted(maps.Keys(e.led)) {
		l := e.led[shard]
		if l.resigned {
			continue
		}
		if kept++; kept > most {
			l.resigned = true
			l.resign()
		}
	}
}

func (e *election) lead(ctx context.Context, lease outbox.Lease) {
	ctx, resign := context.WithCancel(ctx)
	e.led[lease.Shard] = &leading{resign: resign}
	l := e.relay.begin(lease, false)
	e.leads.Go(func() {
		defer resign()
		err := l.run(ctx)
		e.relay.end(lease.Shard)
		e.ended <- ended{shard: lease.Shard, err: err}
	})
}

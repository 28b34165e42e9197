package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/quota"
)

const (
	maxExamined   = 1000    // tasks that one transaction of a claim looks at, about
	maxClaimBytes = 4 << 20 // payload bytes that one transaction gives away (LIC-014)
)

// Claim gives tasks of lanes to takers, each to the taker with the most slots left that
// can take it. It takes at most two transactions, one for lanes whose live attempts are
// limited and one for the others, each of which gives away up to MaxBatch tasks of up to
// 4 MiB together. What a transaction gives away and looks at is shared out evenly between
// the applications that have ready tasks and takers for them, and what one does not use
// goes to the others; within an application the best order value comes first
// (REF-PRI-001, REF-PRI-002). Tasks whose key is busy or exhausted are parked, and the
// claim goes on to the next (KEY-011). Takers must differ in their process.
//
// An error means that nothing is known to have been given away; a lease that was taken
// nevertheless ends by itself.
func (d *Dispatcher) Claim(ctx context.Context, lanes []Lane, takers []Taker) (Claimed, error) {
	began := time.Now()
	all := Claimed{Lanes: make(map[int64]LaneEnd, len(lanes))}
	first, second, err := d.byLimits(ctx, lanes)
	if d.turn.Add(1)%2 == 0 { // neither may always take what the other leaves
		first, second = second, first
	}
	if err == nil {
		err = d.claim(ctx, &all, first, takers)
	}
	if err == nil {
		err = d.claim(ctx, &all, second, takers)
	}
	d.watch.Claimed(len(all.Grants), time.Since(began), err)
	if err != nil && len(all.Grants) == 0 {
		return Claimed{}, fmt.Errorf("claim tasks: %w", err)
	}
	if err != nil { // what is given is given
		d.log.ErrorContext(ctx, "second half of a claim failed", "err", err)
	}
	return all, nil
}

// byLimits sets the lanes apart whose queue or application is known to limit live
// attempts: what they lock for themselves is not held while others are claimed.
func (d *Dispatcher) byLimits(ctx context.Context, lanes []Lane) (open, limited []Lane, err error) {
	queues := make([]sqldb.ID, len(lanes))
	for i, l := range lanes {
		queues[i] = l.Queue
	}
	if len(queues) == 0 {
		return nil, nil, nil
	}
	owners, err := d.modes.OwnersOf(ctx, d.db.Read(), settle.SortedIDs(queues))
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lanes {
		if d.active.Limited(l.Queue) || d.active.Limited(owners[l.Queue]) {
			limited = append(limited, l)
		} else {
			open = append(open, l)
		}
	}
	return open, limited, nil
}

// claim runs one transaction and adds what it gave away to all.
func (d *Dispatcher) claim(ctx context.Context, all *Claimed, lanes []Lane, takers []Taker) error {
	if len(lanes) == 0 {
		return nil
	}
	var c *claim
	err := d.db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		c = newClaim(d, tx, lanes, takers, all.Grants)
		return c.run(ctx)
	}, func(ctx context.Context, q sqldb.Querier) (bool, error) {
		return c.committed(ctx, q)
	})
	if err != nil {
		return err
	}
	all.Grants = append(all.Grants, c.grants...)
	all.Replaced = append(all.Replaced, c.replaced...)
	all.Barred = append(all.Barred, c.barred...)
	for id, l := range c.lanes {
		all.Lanes[id] = l.result()
	}
	if err := d.missed.add(ctx, c.missed); err != nil { // what is given is given
		d.log.ErrorContext(ctx, "look for lost resource keys failed", "err", err)
	}
	return nil
}

// A claim is one claim transaction.
type claim struct {
	d        *Dispatcher
	tx       *sqldb.Tx
	now      int64
	lanes    map[int64]*laneClaim
	order    []int64 // lanes, as given
	takers   []takerRoom
	slots    int              // left in the batch
	bytes    int              // left in the batch
	examined map[sqldb.ID]int // tasks looked at, by application
	keys     settle.Keys
	missed   map[[32]byte]keyrow.Key // that somebody holds, or that are lost
	looked   bool                    // whether takers may have something still
	timed    bool                    // the time was read with the gates, for the first round
	want     map[process]int         // takers whose session has not been seen
	replaced []int
	barred   []int

	grants []Grant
	taken  []*candidate
	parked []sqldb.ID
}

// laneClaim is how far the claim is in one lane.
type laneClaim struct {
	Lane
	gate    *gate
	after   *place
	stopped bool    // for the reason end, before its end was reached
	end     LaneEnd // if stopped
	atEnd   bool    // read to its end
	skipped bool    // somebody else held a candidate or its key
}

func (l *laneClaim) stop(end LaneEnd) { l.end, l.stopped = end, true }

func (l *laneClaim) done() bool { return l.stopped || l.atEnd }

// result tells why nothing more was taken.
func (l *laneClaim) result() LaneEnd {
	switch {
	case l.stopped:
		return l.end
	case l.skipped:
		return LaneSkipped
	case l.atEnd:
		return LaneEmpty
	}
	return LaneMore
}

// newClaim begins a claim of lanes for takers, who have been given something before.
func newClaim(d *Dispatcher, tx *sqldb.Tx, lanes []Lane, takers []Taker, given []Grant) *claim {
	c := &claim{
		d: d, tx: tx, lanes: make(map[int64]*laneClaim), slots: MaxBatch, bytes: maxClaimBytes,
		examined: make(map[sqldb.ID]int), keys: settle.Keys{}, missed: map[[32]byte]keyrow.Key{},
	}
	for _, l := range lanes {
		c.lanes[l.ID()] = &laneClaim{Lane: l}
		c.order = append(c.order, l.ID())
	}
	for i := range takers {
		c.takers = append(c.takers, newTakerRoom(&takers[i]))
	}
	for i := range given {
		g := &given[i]
		c.takers[g.Taker].use(g.Lane().ID(), len(g.Payload))
	}
	return c
}

// run takes no waiting lock on a task or a key: queues are locked before the first task,
// everything else with SKIP LOCKED, and sessions are read plainly, before anything is given
// to them.
func (c *claim) run(ctx context.Context) error {
	if err := c.openGates(ctx); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = c.round(ctx); err != nil {
			return err
		}
	}
	if !c.looked { // there was nothing to give, but who may not have it is to hear of it
		if err := c.turnAway(ctx); err != nil {
			return err
		}
	}
	return c.write(ctx)
}

func (c *claim) readClock(ctx context.Context) (err error) {
	if c.now, err = c.tx.Dialect().ClockNow(ctx, c.tx); err != nil {
		return fmt.Errorf("read database clock: %w", err)
	}
	return nil
}

// openGates leaves out the lanes of queues that may not dispatch, before any task is read.
func (c *claim) openGates(ctx context.Context) error {
	var queues []sqldb.ID
	for _, l := range c.lanes {
		queues = append(queues, l.Queue)
	}
	var also []quota.Row
	if !c.keyed() {
		also, c.timed = c.sessionRows(), true
	}
	asked := time.Now()
	gates, err := c.d.openGates(ctx, c.tx, settle.SortedIDs(queues), also, c.sees)
	if err != nil {
		return err
	}
	switch {
	case !c.timed:
	case time.Since(asked) > settle.Freshness: // it waited for the gates, after it had seen the sessions
		c.timed, c.barred = false, nil
	default:
		c.turnedAway()
	}
	for _, l := range c.lanes {
		l.gate = gates[l.Queue]
		switch {
		case l.gate == nil || !l.gate.open:
			l.stop(LaneClosed)
		case l.gate.full():
			l.stop(l.gate.why())
		}
	}
	return nil
}

// keyed reports whether a lane has tasks with resource keys. If none has, the claim waits for
// nothing after its gates, and what it reads without a lock it can read with them.
func (c *claim) keyed() bool {
	for _, l := range c.lanes {
		if l.Keyed {
			return true
		}
	}
	return false
}

// round reads and judges one set of candidates and reports whether another may find more.
func (c *claim) round(ctx context.Context) (more bool, err error) {
	lanes := c.openLanes()
	if len(lanes) == 0 {
		return false, nil
	}
	list, err := c.read(ctx, lanes)
	if err != nil || len(list) == 0 {
		return false, err
	}
	if err := c.lockKeys(ctx, list); err != nil {
		return false, err
	}
	// Read after the keys are locked: a permit never begins before the last one ended.
	switch {
	case c.timed:
		c.timed = false
	case c.looked:
		err = c.readClock(ctx)
	default:
		err = c.turnAway(ctx)
	}
	if err != nil {
		return false, err
	}
	for _, x := range list {
		l := c.lanes[x.lane]
		if c.examined[l.gate.application]++; !l.stopped {
			c.judge(l, x)
		}
	}
	c.stopExamined()
	return true, nil
}

// openLanes returns the lanes that are not at an end and that a taker can still take.
func (c *claim) openLanes() []int64 {
	var lanes []int64
	for _, id := range c.order {
		switch l := c.lanes[id]; {
		case l.done():
		case c.slots <= 0 || c.demand(id) == 0:
			l.stop(LaneMore)
		default:
			lanes = append(lanes, id)
		}
	}
	return lanes
}

// stopExamined ends the looking for applications that have looked at their part of
// maxExamined. What those leave that are at an end belongs to the others.
func (c *claim) stopExamined() {
	looking := make(map[sqldb.ID]bool)
	for _, l := range c.lanes {
		if !l.done() {
			looking[l.gate.application] = true
		}
	}
	left := maxExamined
	for app, n := range c.examined {
		if !looking[app] {
			left -= n
		}
	}
	for _, l := range c.lanes {
		if !l.done() && c.examined[l.gate.application] >= left/len(looking) {
			l.stop(LaneMore)
		}
	}
}

// read locks the next candidates of lanes and puts them in the order in which they are
// judged.
func (c *claim) read(ctx context.Context, lanes []int64) ([]*candidate, error) {
	share := make(map[int64]int, len(lanes))
	counted := len(c.examined) == 0 && len(lanes) > 1 // by shareOut: the rows were there
	if len(c.examined) == 0 {
		var err error
		if share, err = c.shareOut(ctx, lanes); err != nil {
			return nil, err
		}
	} else { // something was parked or passed over: go on in every lane
		for _, id := range lanes {
			share[id] = c.demand(id)
		}
	}
	var all []*candidate
	for _, id := range lanes {
		l := c.lanes[id]
		n, some := share[id]
		if !some {
			l.atEnd = true
			continue
		}
		if n == 0 {
			continue // others are better this time
		}
		list, err := readCandidates(ctx, c.tx, id, l.after, n)
		if err != nil {
			return nil, err
		}
		l.advance(list, n)
		// Where rows were seen and not got, somebody else has them, perhaps only for now.
		l.skipped = l.skipped || counted && len(list) < n
		all = append(all, list...)
	}
	return c.inTurn(all), nil
}

// advance notes how far a lane was read, and whether to its end.
func (l *laneClaim) advance(list []*candidate, wanted int) {
	if len(list) > 0 {
		last := list[len(list)-1]
		l.after = &place{last.order, last.grant.Task}
	}
	if len(list) < wanted {
		l.atEnd = true
	}
}

// lockKeys locks the keys of candidates that are not locked yet.
func (c *claim) lockKeys(ctx context.Context, list []*candidate) error {
	var digests []settle.Digest
	for _, x := range list {
		if x.task.Keyed && c.keys[x.task.Key] == nil {
			digests = append(digests, x.task.Key)
		}
	}
	keys, err := settle.LockKeys(ctx, c.tx, digests, c.tx.Dialect().SkipLocked)
	for digest, k := range keys {
		c.keys[digest] = k
	}
	return err
}

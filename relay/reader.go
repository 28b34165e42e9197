package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

const (
	minPoll = 20 * time.Millisecond
	// lookAgain is how long a place in a lane, the list of lanes and the operator's
	// holds are good for. A transaction that commits late leaves a row behind the
	// place.
	lookAgain = time.Second
	// readRows is how many index entries one look at a lane reads.
	readRows  = 500
	manyLanes = 32
	// maxOpen bounds the rows between reader and ledger.
	maxOpen = 8000
)

// A reader finds due rows of a shard and puts them into the pipes of their targets. It
// takes the lanes in turn and writes nothing.
type reader struct {
	*lead
	stop, hard context.Context
	pipes      map[string]*pipe

	lanes    []outbox.Lane
	listed   time.Time // when lanes were listed; zero to list them again
	restUnto time.Time // not to list them again before
	heldAt   time.Time // when the operator's holds were read
	rewound  time.Time // when every lane was begun anew
	places   map[int64]outbox.Cursor
	ended    map[int64]bool // nothing due behind the place
	turn     int
	blocked  bool          // pipes or ledger have no room
	sleep    time.Duration // until something known is due
	lone     map[string]bool
	passedBy map[string]int // targets of which only shunned rows were met
}

func newReader(l *lead) *reader {
	return &reader{
		lead:   l,
		pipes:  map[string]*pipe{},
		places: map[int64]outbox.Cursor{},
		ended:  map[int64]bool{},
		lone:   map[string]bool{},
	}
}

// run reads until stop is done or, to drain, until nothing can be sent. What it puts
// into pipes is sent by senders that it starts.
func (r *reader) run(stop, hard context.Context) {
	r.stop, r.hard = stop, hard
	wake, unsubscribe := r.relay.subscribe()
	defer unsubscribe()
	retry := newBackOff(50*time.Millisecond, 5*time.Second)
	idle := minPoll
	var down outage
	for stop.Err() == nil {
		found, err := r.step()
		if stop.Err() != nil {
			return
		}
		down.report(r.log, "read due rows", err)
		switch {
		case err != nil:
			r.wait(wake, retry.NextBackOff()+minPoll)
			continue
		case found:
			idle = minPoll
		case r.drain && r.drained():
			return
		case r.blocked:
			r.waitForRoom(wake)
		default:
			r.wait(wake, min(idle, r.sleep))
			idle = min(2*idle, r.cfg.Poll)
		}
		retry.Reset()
	}
}

// wait sleeps until it is woken, for at most d, and makes the next step look anew.
func (r *reader) wait(wake []<-chan struct{}, d time.Duration) {
	var settled chan struct{}
	if r.drain {
		settled = r.space
	}
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-r.stop.Done():
	case <-settled:
	case <-wake[0]:
	case <-wake[1]:
	case <-timer.C:
	}
	r.listed = time.Time{}
	r.rest()
}

// rest keeps the list of many lanes, which costs a look-up for each, from being read
// all the time.
func (r *reader) rest() {
	if d := time.Until(r.restUnto); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-r.stop.Done():
		case <-timer.C:
		}
	}
}

// waitForRoom sleeps until pipes and ledger may take more. Work is at hand, so new work
// only wakes it when some time has passed: it may be in another lane.
func (r *reader) waitForRoom(wake []<-chan struct{}) {
	timer := time.NewTimer(lookAgain / 5)
	defer timer.Stop()
	select {
	case <-r.stop.Done():
		return
	case <-r.space:
		return
	case <-timer.C:
	}
	timer.Reset(lookAgain)
	select {
	case <-r.stop.Done():
	case <-r.space:
	case <-wake[0]:
		r.listed = time.Time{}
	case <-timer.C:
	}
}

// step reads once: it reports whether it has put rows into pipes.
func (r *reader) step() (found bool, err error) {
	ctx, cancel := context.WithTimeout(r.stop, statementTimeout)
	defer cancel()
	if time.Since(r.listed) >= lookAgain {
		if err := r.list(ctx); err != nil {
			return false, err
		}
	}
	r.blocked, r.sleep, r.passedBy = false, r.cfg.Poll, map[string]int{}
	picked, err := r.pick(ctx)
	if err != nil {
		return false, err
	}
	if len(picked) == 0 {
		return r.forgiveShunned(), nil
	}
	return true, r.fetch(ctx, picked)
}

// list reads which lanes have rows, and the holds if there are any to be held.
func (r *reader) list(ctx context.Context) error {
	r.flight.beginRead()
	now := time.Now()
	lanes, err := r.store.Lanes(ctx, r.term.now().Shard)
	if err != nil {
		return err
	}
	r.lanes, r.listed = lanes, now
	if len(lanes) > manyLanes {
		r.restUnto = time.Now().Add(4 * time.Since(now))
	}
	if r.rewind.Swap(false) || now.Sub(r.rewound) >= lookAgain {
		clear(r.places)
		r.rewound = now
	}
	for lane := range r.ended {
		delete(r.places, lane)
	}
	clear(r.ended)
	if len(lanes) > 0 && now.Sub(r.heldAt) >= lookAgain {
		return r.readHolds(ctx, now)
	}
	return nil
}

func (r *reader) readHolds(ctx context.Context, now time.Time) error {
	holds, err := r.store.Holds(ctx)
	if err != nil {
		return err
	}
	r.lead.mu.Lock()
	r.lead.holds = holds
	r.lead.mu.Unlock()
	r.heldAt = now
	return nil
}

// A picked row has room in its pipe.
type picked struct {
	due                  outbox.Due
	lane                 int64
	pipe                 *pipe
	gateTrial, laneTrial bool
}

// pick goes once round the lanes and reserves room for what fits.
func (r *reader) pick(ctx context.Context) (all []picked, err error) {
	var size int
	for range r.lanes {
		lane := r.lanes[r.turn%len(r.lanes)]
		r.turn++
		some, err := r.pickLane(ctx, lane)
		if err != nil {
			r.unpick(all)
			return nil, err
		}
		all = append(all, some...)
		for _, p := range some {
			size += p.due.Size
		}
		if len(all) >= readRows || size >= r.cfg.BufferBytes {
			break // one Fetch takes no more
		}
	}
	return all, nil
}

// unpick undoes a pick: the rows will be found again.
func (r *reader) unpick(all []picked) {
	for _, p := range all {
		r.release(p)
	}
	r.rewind.Store(true)
}

// release gives back what was reserved for a row.
func (r *reader) release(p picked) {
	p.pipe.free(p.due.Size)
	if p.gateTrial {
		p.pipe.gate.endTrial()
	}
	if p.laneTrial {
		r.lead.lanes.endTrial(p.lane)
	}
}

// pickLane looks at one lane, if anything of it may be sent.
func (r *reader) pickLane(ctx context.Context, lane outbox.Lane) ([]picked, error) {
	p, most := r.laneRoom(lane)
	if most == roomNone {
		return nil, nil
	}
	due, err := r.store.ReadDue(ctx, r.term.now().Shard, lane.ID, r.places[lane.ID], readRows)
	if err != nil {
		return nil, err
	}
	return r.choose(lane, p, due, most), nil
}

// laneRoom returns the pipe of a lane and how much of the lane may be sent now. It
// notes when to look again.
func (r *reader) laneRoom(lane outbox.Lane) (*pipe, int) {
	if left := lane.Wait - time.Since(r.listed); left > 0 {
		r.sleep = min(r.sleep, left)
		return nil, roomNone
	}
	if r.ended[lane.ID] {
		return nil, roomNone
	}
	p := r.pipeOf(lane.Target)
	if p == nil {
		return nil, roomNone
	}
	if r.onHold(lane.Target, lane.QueueID) {
		r.sleep = min(r.sleep, lookAgain)
		return nil, roomNone
	}
	atGate, until := p.gate.room()
	r.wakeAt(until)
	atLane, until := r.lead.lanes.room(lane.ID)
	r.wakeAt(until)
	most := min(atGate, atLane)
	if most != roomNone && (!p.vacant() || r.flight.open() >= maxOpen) {
		r.blocked = true
		return nil, roomNone
	}
	return p, most
}

func (r *reader) wakeAt(t time.Time) {
	if !t.IsZero() {
		r.sleep = min(r.sleep, max(0, time.Until(t)))
	}
}

// pipeOf returns the pipe of a target, with senders behind it, or nil if this relay has
// no credential for the target: such rows are left alone.
func (r *reader) pipeOf(target string) *pipe {
	if p := r.pipes[target]; p != nil {
		return p
	}
	g := r.relay.gates[target]
	if g == nil {
		if !r.lone[target] {
			r.lone[target] = true
			r.relay.noteUnclaimed(target)
		}
		return nil
	}
	p := newPipe(r.lead, g)
	r.pipes[target] = p
	for range r.cfg.Senders {
		r.senders.Go(func() { p.send(r.stop, r.hard) })
	}
	return p
}

// choose reserves room for rows of a lane and moves its place behind them.
func (r *reader) choose(lane outbox.Lane, p *pipe, due []outbox.Due, most int) (all []picked) {
	for _, d := range due {
		switch {
		case r.flight.has(d.Seq):
		case p.gate.shuns(d.Seq):
			r.passedBy[lane.Target]++
		case !p.reserve(d.Size):
			r.blocked = true
			return all
		default:
			row, ok := r.onTrial(lane, p, d, most)
			if !ok {
				p.free(d.Size)
				return all
			}
			all = append(all, row)
		}
		r.places[lane.ID] = d.Cursor()
		if most == roomTrial && len(all) == 1 {
			return all
		}
	}
	r.ended[lane.ID] = len(due) < readRows
	return all
}

// onTrial begins the trials that the row is to be; false if another shard was faster.
func (r *reader) onTrial(lane outbox.Lane, p *pipe, d outbox.Due, most int) (picked, bool) {
	row := picked{due: d, lane: lane.ID, pipe: p}
	if most != roomTrial {
		return row, true
	}
	if atGate, _ := p.gate.room(); atGate != roomAll {
		if !p.gate.beginTrial() {
			return row, false
		}
		row.gateTrial = true
	}
	if atLane, _ := r.lead.lanes.room(lane.ID); atLane != roomAll {
		r.lead.lanes.beginTrial(lane.ID)
		row.laneTrial = true
	}
	return row, true
}

// forgiveShunned lets rows that closed a gate through where no others are left.
func (r *reader) forgiveShunned() (any bool) {
	for target := range r.passedBy {
		if r.flight.open() == 0 {
			r.relay.gates[target].forgive()
			r.rewind.Store(true)
			r.listed = time.Time{}
			any = true
		}
	}
	return any
}

// fetch reads the picked rows and puts them into their pipes.
func (r *reader) fetch(ctx context.Context, all []picked) error {
	bySeq := make(map[int64]picked, len(all))
	seqs := make([]int64, len(all))
	for i, p := range all {
		bySeq[p.due.Seq], seqs[i] = p, p.due.Seq
	}
	rows, err := r.store.Fetch(ctx, seqs)
	if err != nil {
		r.unpick(all)
		return err
	}
	now := time.Now()
	lease := r.term.now()
	byPipe := map[*pipe][]*entry{}
	for i := range rows {
		p := bySeq[rows[i].Seq]
		delete(bySeq, rows[i].Seq)
		e := &entry{row: rows[i], read: now, gateTrial: p.gateTrial, laneTrial: p.laneTrial}
		e.alone = p.pipe.gate.sendsAlone(e.row.Seq)
		e.suspect = lease.TookOver && e.row.DueAt.Before(lease.Since)
		r.flight.add(e.row.Seq)
		byPipe[p.pipe] = append(byPipe[p.pipe], e)
	}
	for p, entries := range byPipe {
		p.push(false, entries...)
	}
	for _, gone := range bySeq { // settled or taken by an operator meanwhile
		r.release(gone)
	}
	return nil
}

// drained reports whether nothing is left that can be sent now, and notes what is left
// all the same.
func (r *reader) drained() bool {
	if r.blocked || r.flight.open() > 0 || r.rewind.Load() {
		return false
	}
	var left []Left
	for _, lane := range r.lanes {
		if lane.Wait > 0 {
			continue
		}
		reason, final := r.reason(lane)
		if !final {
			return false
		}
		if reason != "" {
			left = append(left, Left{Shard: r.term.now().Shard, Target: lane.Target, QueueID: lane.QueueID, Reason: reason})
		}
	}
	r.left = left
	return true
}

// reason tells why due rows of a lane are not sent, and whether that will not change
// soon.
func (r *reader) reason(lane outbox.Lane) (string, bool) {
	g := r.relay.gates[lane.Target]
	switch {
	case g == nil:
		return "no credential for this target", true
	case r.onHold(lane.Target, lane.QueueID):
		return "held by an operator", true
	}
	if s, why := g.standing(); s != gateOpen {
		return why, s != gateTrial && g.wasProbed()
	}
	if room, _ := r.lead.lanes.room(lane.ID); room == roomNone {
		return "queue is full", true
	}
	return "", r.ended[lane.ID]
}

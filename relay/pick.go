package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// A picked row has room in its pipe.
type picked struct {
	outbox.Ready
	read                 time.Time // when the row was read, if it was
	pipe                 *pipe
	gateTrial, laneTrial bool
}

// pick goes once round the lanes and reserves room for what fits. Each round begins one lane
// further: whose turn it is first gets the trial of a closed target (REL-019, REL-020).
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
			size += p.Size
		}
		if len(all) >= readRows || size >= r.cfg.BufferBytes {
			return all, nil // one Fetch takes no more
		}
	}
	r.turn++
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
	p.pipe.free(p.Size)
	if p.gateTrial {
		p.pipe.gate.endTrial()
	}
	if p.laneTrial {
		r.lead.lanes.endTrial(p.Lane)
	}
}

// pickLane looks at one lane, if anything of it may be sent.
func (r *reader) pickLane(ctx context.Context, lane outbox.Lane) ([]picked, error) {
	p, most := r.laneRoom(lane)
	if most == roomNone {
		return nil, nil
	}
	limit, maxBytes := r.reach(lane, p, most)
	ready, err := r.store.ReadReady(ctx, r.term.now().Shard, lane.ID, r.places[lane.ID], limit, maxBytes)
	if err != nil {
		return nil, err
	}
	return r.choose(lane, p, ready, most, len(ready) < limit), nil
}

// reach returns how many rows of a lane to look at, and up to which size to read them on
// that occasion: no more than fits the pipe, and not where most of them are known already
// or only one will be chosen.
func (r *reader) reach(lane outbox.Lane, p *pipe, most int) (limit, maxBytes int) {
	if most == roomTrial {
		return readRows, 0
	}
	limit = min(readRows, p.room())
	if r.places[lane.ID] == (outbox.Cursor{}) && r.flight.open() > fewOpen {
		return limit, 0
	}
	return limit, r.smallBytes()
}

// smallBytes is the size up to which a row is read together with its place in the index: as
// many of them as one look reads fit the buffer.
func (r *reader) smallBytes() int { return r.cfg.BufferBytes / readRows }

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

// choose reserves room for rows of a lane and moves its place behind them. Ended says that
// the lane has no more.
func (r *reader) choose(lane outbox.Lane, p *pipe, ready []outbox.Ready, most int, ended bool) (all []picked) {
	if most == roomTrial {
		return r.chooseOne(lane, p, ready, ended)
	}
	read := time.Now()
	for _, d := range ready {
		switch {
		case r.flight.has(d.Seq):
		case p.gate.shuns(d.Seq):
			r.passedBy[lane.Target]++
		case !p.reserve(d.Size):
			r.blocked = true
			return all
		default:
			all = append(all, picked{Ready: d, read: read, pipe: p})
		}
		r.places[lane.ID] = d.Cursor()
	}
	r.ended[lane.ID] = ended
	return all
}

// chooseOne chooses a row to be on trial.
func (r *reader) chooseOne(lane outbox.Lane, p *pipe, ready []outbox.Ready, ended bool) []picked {
	end := r.places[lane.ID]
	if len(ready) > 0 {
		end = ready[len(ready)-1].Cursor()
	}
	if p.gate.tryAny() {
		p.gate.leastBlamed(ready)
	}
	for _, d := range ready {
		switch {
		case r.flight.has(d.Seq):
		case p.gate.shuns(d.Seq):
			r.passedBy[lane.Target]++
		case !p.reserve(d.Size):
			r.blocked = true
			return nil
		default:
			row, ok := r.onTrial(p, d)
			if !ok {
				p.free(d.Size)
				return nil
			}
			return []picked{row}
		}
	}
	r.places[lane.ID], r.ended[lane.ID] = end, ended
	return nil
}

// onTrial begins the trials that the row is to be; false if another shard was faster.
func (r *reader) onTrial(p *pipe, d outbox.Ready) (picked, bool) {
	row := picked{Ready: d, read: time.Now(), pipe: p}
	if atGate, _ := p.gate.room(); atGate != roomAll {
		if !p.gate.beginTrial() {
			return row, false
		}
		row.gateTrial = true
	}
	if atLane, _ := r.lead.lanes.room(d.Lane); atLane != roomAll {
		r.lead.lanes.beginTrial(d.Lane)
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

// fetch puts the picked rows into their pipes. It reads those of which only the place in the
// index is known.
func (r *reader) fetch(ctx context.Context, all []picked) error {
	if err := r.complete(ctx, all); err != nil {
		r.unpick(all)
		return err
	}
	lease := r.term.now()
	byPipe := map[*pipe][]*entry{}
	for _, p := range all {
		if p.Row == nil { // settled or taken by an operator meanwhile
			r.release(p)
			continue
		}
		e := &entry{row: *p.Row, size: p.Size, read: p.read, gateTrial: p.gateTrial, laneTrial: p.laneTrial}
		e.alone = p.pipe.gate.sendsAlone(e.row.Seq)
		e.suspect = lease.TookOver && e.row.DueAt.Before(lease.Since)
		r.flight.add(e.row.Seq)
		if e.row.Damage != "" {
			r.release(p)
			r.blockDamaged(p.pipe.gate.target.Name, e)
			continue
		}
		byPipe[p.pipe] = append(byPipe[p.pipe], e)
	}
	for p, entries := range byPipe {
		p.push(false, entries...)
	}
	return nil
}

// complete reads the rows that were not read together with their index.
func (r *reader) complete(ctx context.Context, all []picked) error {
	var seqs []int64
	at := map[int64]*picked{}
	for i := range all {
		if p := &all[i]; p.Row == nil {
			at[p.Seq], seqs = p, append(seqs, p.Seq)
		}
	}
	rows, err := r.store.Fetch(ctx, seqs)
	if err != nil {
		return err
	}
	now := time.Now()
	for i := range rows {
		p := at[rows[i].Seq]
		p.Row, p.read = &rows[i], now
	}
	return nil
}

package session

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// orderLooks bounds how often one order asks whether a session takes a lane: what is left
// is for the next, so that others get the board between.
const orderLooks = 2048

// An order is what one claim is to do.
type order struct {
	lanes  []dispatch.Lane
	takers []dispatch.Taker
	to     []*session // by taker
	woken  uint64     // wakes seen when the order was made
	wait   time.Duration
}

// order makes the next claim. Without takers there is nothing to claim now, and wait
// tells when to ask again, if no nudge comes before.
func (b *board) order(now time.Time) order {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endRests(now)
	o := order{woken: b.woken, wait: time.Hour}
	if wait := b.sweepSome(now); wait > 0 {
		o.wait = wait
	}
	began := b.looks
	picked := b.ready.pick(claimLanes, func() bool { return b.looks-began < orderLooks }, b.findTaker)
	if b.looks-began >= orderLooks || len(b.sweeps) > 0 {
		o.wait = min(o.wait, time.Millisecond)
	}
	if len(b.resting) > 0 {
		o.wait = min(o.wait, b.resting[0].until.Sub(now))
	}
	o.choose(picked)
	b.underway = picked
	for _, l := range picked {
		o.lanes = append(o.lanes, l.Lane)
		l.taker = nil
	}
	return o
}

// choose finds the sessions that the claim gives to: one for each lane, and then more,
// in turn over the applications, until each has as many slots as the claim can fill.
func (o *order) choose(picked []*lane) {
	lanes := make(map[*class][]*lane)
	for _, l := range picked {
		for t := l.seats; t != nil; t = t.next {
			if len(t.class.free) > 0 {
				lanes[t.class] = append(lanes[t.class], l)
			}
		}
	}
	d := draft{order: o, lanes: lanes, chosen: make(map[*session]bool), slots: make(map[*application]int)}
	for _, l := range picked {
		if !d.covers(l) {
			d.add(l.taker)
		}
	}
	apps := make(map[*application][]*class)
	for c := range lanes {
		apps[c.app] = append(apps[c.app], c)
	}
	var more []iter.Seq[*session]
	for app, classes := range apps {
		more = append(more, d.inTurn(app, classes[:min(len(classes), max(1, claimTakers/len(apps)))]))
	}
	for s := range roundRobin(more) {
		if len(o.to) >= claimTakers {
			return
		}
		d.add(s)
	}
}

// A draft is an order that looks for takers.
type draft struct {
	*order
	lanes  map[*class][]*lane // of the claim, by who takes from them
	chosen map[*session]bool
	slots  map[*application]int // of the chosen, by application
}

// covers reports whether somebody chosen takes from a lane.
func (d *draft) covers(l *lane) bool {
	for _, s := range d.to {
		if slices.Contains(d.lanes[s.place.class], l) && s.takes(l) > 0 {
			return true
		}
	}
	return false
}

func (d *draft) add(s *session) {
	t, ok := s.taker(d.lanes[s.place.class])
	if !ok || d.chosen[s] {
		return
	}
	d.chosen[s] = true
	d.slots[s.place.class.app] += t.Slots
	d.takers, d.to = append(d.takers, t), append(d.to, s)
}

// inTurn goes over the free sessions of an application's classes, one of each after the
// other, until the chosen of the application have enough slots.
func (d *draft) inTurn(app *application, classes []*class) iter.Seq[*session] {
	return func(yield func(*session) bool) {
		var free []iter.Seq[*session]
		for _, c := range classes {
			free = append(free, maps.Keys(c.free))
		}
		for s := range roundRobin(free) {
			if d.slots[app] >= dispatch.MaxBatch || !yield(s) {
				return
			}
		}
	}
}

// roundRobin goes over several sequences, one element of each after the other.
func roundRobin(all []iter.Seq[*session]) iter.Seq[*session] {
	if len(all) == 1 {
		return all[0]
	}
	return func(yield func(*session) bool) {
		var pulls []func() (*session, bool)
		for _, one := range all {
			next, stop := iter.Pull(one)
			defer stop()
			pulls = append(pulls, next)
		}
		for len(pulls) > 0 {
			var left []func() (*session, bool)
			for _, next := range pulls {
				s, more := next()
				if !more {
					continue
				}
				if !yield(s) {
					return
				}
				left = append(left, next)
			}
			pulls = left
		}
	}
}

// taker is what a claim of lanes, all of its class, is told of the session. It reports
// false if the session takes nothing of them.
func (s *session) taker(lanes []*lane) (dispatch.Taker, bool) {
	t := dispatch.Taker{
		Process: s.process, Namespace: s.principal.Namespace, Credential: s.principal.Credential,
		ConnectedAt: s.connectedAt, Slots: s.slots(), Bytes: s.queue.room(),
	}
	if t.Slots <= 0 {
		return t, false // its socket does not keep up
	}
	for _, l := range lanes {
		t.Lanes = append(t.Lanes, l.id)
	}
	t.Groups = s.place.limits.groups(lanes, t.Slots)
	return t, true
}

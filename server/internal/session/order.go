package session

import (
	"iter"
	"maps"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

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
	o := order{woken: b.woken, wait: time.Hour}
	var unserved []*lane
	picked := b.hot.pick(claimLanes, func(l *lane) bool {
		if !l.wanted() {
			return false
		}
		if wait := l.notBefore.Sub(now); wait > 0 {
			o.wait = min(o.wait, wait)
			return false
		}
		if l.taker = l.anyTaker(); l.taker == nil {
			unserved = append(unserved, l)
		}
		return l.taker != nil
	})
	for _, l := range unserved {
		b.setAside(l)
	}
	o.choose(picked)
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
		for c := range l.classes {
			lanes[c] = append(lanes[c], l)
		}
	}
	d := draft{order: o, lanes: lanes, chosen: make(map[*session]bool), slots: make(map[sqldb.ID]int)}
	for _, l := range picked {
		if !d.covers(l) {
			d.add(l.taker)
		}
	}
	apps := make(map[sqldb.ID][]*class)
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
	slots  map[sqldb.ID]int // of the chosen, by application
}

// covers reports whether somebody chosen takes from a lane.
func (d *draft) covers(l *lane) bool {
	for _, s := range d.to {
		if _, may := l.classes[s.place.class]; may && s.takes(l) > 0 {
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
func (d *draft) inTurn(app sqldb.ID, classes []*class) iter.Seq[*session] {
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

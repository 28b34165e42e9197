package session

import (
	"maps"
	"time"
)

// What a session that becomes free, or that lifts a limit, may take of the lanes of its
// class is found out bit by bit, so that neither the size of a registration nor the number
// of words about credit holds the board up: all classes together have sweepRate looks a
// second, in turn, sweepTurn each, and at most sweepMost at once. Each look costs less than
// a microsecond.
const (
	sweepRate = 200_000
	sweepMost = 1024
	sweepTurn = 128
	mostAsked = 64 // sessions that are asked at once whether they take a lane
)

// A sweep is what is still to be found out about the lanes of a class.
type sweep struct {
	queued bool
	heat   int                   // lanes, from the first, that are to be looked into
	aside  int                   // lanes that are aside, from the first, that are to be judged
	loose  map[*session]struct{} // for these sessions
	next   map[*session]struct{} // and then all of them for these
	all    bool                  // and then for everybody free
}

func (w *sweep) done() bool { return w.heat == 0 && w.aside == 0 && len(w.next) == 0 && !w.all }

// forget takes out a session that is not free any more.
func (w *sweep) forget(s *session) {
	delete(w.loose, s)
	delete(w.next, s)
}

// heat has all lanes of a class looked into.
func (b *board) heat(c *class) {
	c.sweep.heat = len(c.seats)
	b.toSweep(c)
}

// loosen has the lanes that are aside in a class judged anew for one of its sessions. A
// judging that is under way goes on to its end before.
func (b *board) loosen(c *class, s *session) {
	if len(c.aside) == 0 {
		return
	}
	if c.sweep.next == nil {
		c.sweep.next = make(map[*session]struct{})
	}
	c.sweep.next[s] = struct{}{}
	b.toSweep(c)
}

func (b *board) toSweep(c *class) {
	if !c.sweep.queued && !c.sweep.done() {
		c.sweep.queued = true
		b.sweeps = append(b.sweeps, c)
	}
}

// sweepSome goes on with what is to be found out, as far as it may now, and tells after
// what time it may go on; 0 if nothing is left.
func (b *board) sweepSome(now time.Time) time.Duration {
	may := b.sweepPace.left(now)
	for len(b.sweeps) > 0 && may > 0 {
		c := b.sweeps[0]
		b.sweeps[0], b.sweeps = nil, b.sweeps[1:]
		c.sweep.queued = false
		n := b.sweepClass(c, min(may, sweepTurn))
		b.looks += n
		b.sweepPace.use(n)
		may -= n
		if len(c.free) > 0 { // else it goes on when somebody is free
			b.toSweep(c)
		}
	}
	if len(b.sweeps) == 0 {
		b.sweeps = nil
		return 0
	}
	return b.sweepPace.until(sweepTurn, now)
}

// sweepClass looks at about most lanes of a class and tells at how many it did.
func (b *board) sweepClass(c *class, most int) (n int) {
	w := &c.sweep
	for ; w.heat > 0 && n < most; n++ {
		w.heat--
		b.warm(c.seats[w.heat].lane)
	}
	if w.aside == 0 {
		w.aside, w.loose, w.next = len(c.aside), w.next, nil
		if w.all && len(w.loose) == 0 {
			w.loose, w.all = maps.Clone(c.free), false
		}
	}
	for w.aside = min(w.aside, len(c.aside)); w.aside > 0 && n < most; {
		w.aside--
		b.judge(c.aside[w.aside], &n)
		if len(w.loose) == 0 {
			w.aside = 0
		}
	}
	if w.aside == 0 {
		w.loose = nil
	}
	return n
}

// judge takes a lane back if one of the sessions takes it that it is judged for.
func (b *board) judge(s *seat, n *int) {
	for one := range s.class.sweep.loose {
		if *n++; one.takes(s.lane) > 0 {
			s.class.hint = one
			b.takeBack(s)
			return
		}
	}
}

// findTaker finds a free session that takes a lane in a class. If those that it asks do not,
// the lane is set aside, and left to a sweep if there are others.
func (b *board) findTaker(s *seat) bool {
	c := s.class
	asked := 0
	try := func(one *session) bool {
		asked++
		if one.takes(s.lane) > 0 {
			s.lane.taker, c.hint = one, one
			return true
		}
		return false
	}
	defer func() {
		b.looks += max(1, asked)
		b.sweepPace.use(max(0, asked-1))
	}()
	if c.hint != nil && try(c.hint) {
		return true
	}
	for one := range c.free {
		if try(one) {
			return true
		}
		if asked > mostAsked {
			c.sweep.all = true
			break
		}
	}
	b.setAside(s)
	b.toSweep(c)
	return false
}

// setAside leaves a lane out for a class until one of its sessions takes from it.
func (b *board) setAside(s *seat) {
	s.leave(&b.ready)
	s.class.aside = append(s.class.aside, s)
	s.aside = int32(len(s.class.aside))
}

// takeBack ends setAside. The last of those that are aside gets its place: a sweep goes from
// the last to the first and has judged that.
func (b *board) takeBack(s *seat) {
	c := s.class
	b.dropAside(s)
	if s.lane.state == laneReady {
		c.ready.add(s)
		b.ready.settle(c)
	}
}

func (b *board) dropAside(s *seat) {
	if s.aside == 0 {
		return
	}
	c := s.class
	i, last := int(s.aside)-1, len(c.aside)-1
	c.aside[i] = c.aside[last]
	c.aside[i].aside = int32(i + 1)
	c.aside[last], c.aside = nil, c.aside[:last]
	s.aside = 0
}

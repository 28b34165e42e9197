package session

import (
	"container/list"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A rotation gives out the lanes that may hold something and that somebody free takes: one
// of each application after the other, and of one application those first that have waited
// longest. So a lane is given out again after at most as many picks as its application has
// lanes here, whatever other applications do: while there are no more than claimLanes of
// those, each pick has one lane of each at least; with more, each pick has the next of them.
//
// Who waits longest is told by when it was given out last, not by when it came back: lanes,
// classes and applications go in and out, as sessions become free and busy, and lose nothing
// by it. A class goes in and out as a whole, whatever number of lanes it has.
type rotation struct {
	apps  ranked[*application]
	given uint64 // counts what is given out
}

// An application is what the board knows of those of one.
type application struct {
	id      sqldb.ID
	classes int            // of its sessions
	active  ranked[*class] // those with free sessions, and lanes to look into
	last    uint64         // when it was given out last
	spot    int32
	ended   uint64                  // of the last end of one of its attempts
	full    map[sqldb.ID]*list.List // lanes that rest since their queue, or with the zero id the application, is full
}

// A seat is a lane's part in a class.
type seat struct {
	lane  *lane
	class *class
	next  *seat // of the lane, in another class
	spot  int32 // in the class's heap of lanes to look into
	aside int32 // among those that none of its free sessions takes, counted from 1; 0 if not there
}

func (a *application) before(b *application) bool { return a.last < b.last }
func (a *application) at() *int32                 { return &a.spot }

func (c *class) before(d *class) bool { return c.ready[0].before(d.ready[0]) }
func (c *class) at() *int32           { return &c.spot }

func (s *seat) before(t *seat) bool { return s.lane.last < t.lane.last }
func (s *seat) at() *int32          { return &s.spot }

// add lets a lane be given out for all its classes but those that have it aside.
func (r *rotation) add(l *lane) {
	for s := l.seats; s != nil; s = s.next {
		if s.aside == 0 {
			s.class.ready.add(s)
			r.settle(s.class)
		}
	}
}

func (r *rotation) remove(l *lane) {
	for s := l.seats; s != nil; s = s.next {
		s.leave(r)
	}
}

// leave takes a lane out of what is looked into for a class.
func (s *seat) leave(r *rotation) {
	if s.spot == 0 {
		return
	}
	c := s.class
	if c.spot != 0 { // it may be of another rank then, or of none
		c.app.active.remove(c)
	}
	c.ready.remove(s)
	r.settle(c)
}

// settle puts a class, and with it its application, to where it belongs now.
func (r *rotation) settle(c *class) {
	a := c.app
	switch wanted := len(c.free) > 0 && len(c.ready) > 0; {
	case !wanted:
		a.active.remove(c)
	case c.spot == 0:
		a.active.add(c)
	default:
		a.active.fix(c)
	}
	if len(a.active) > 0 {
		r.apps.add(a)
	} else {
		r.apps.remove(a)
	}
}

// pick gives out up to most lanes, while more reports that another one may be judged. Taken
// tells who takes a lane in a class, or that nobody does: then it has to take the seat away.
// What is given out stays in the rotation, behind the others.
func (r *rotation) pick(most int, more func() bool, taken func(*seat) bool) (picked []*lane) {
	for len(picked) < most && len(r.apps) > 0 && more() {
		a := r.apps[0]
		s := a.active[0].ready[0]
		if !taken(s) {
			continue
		}
		r.remove(s.lane)
		picked = append(picked, s.lane)
		r.given++
		if a.last = r.given; a.spot != 0 {
			r.apps.fix(a)
		}
	}
	for _, l := range picked {
		r.given++
		l.last = r.given
		r.add(l)
	}
	return picked
}

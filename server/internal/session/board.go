package session

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

const (
	claimLanes  = 16 // lanes that one claim looks into
	claimTakers = 64 // sessions that one claim gives to

	// How long a lane is left alone after a claim that got nothing from it.
	afterNothing = 20 * time.Millisecond  // there was something, but not for these takers
	afterFull    = 500 * time.Millisecond // a limit; an end of an attempt here looks sooner
	afterClosed  = time.Second            // paused or stopped
	firstSkip    = 5 * time.Millisecond   // others held it; doubled while they do
	longestSkip  = 200 * time.Millisecond

	// staleAfter is how old the last look into a lane may be when somebody is free again
	// to take from it. Lanes that nobody takes are not polled.
	staleAfter = 200 * time.Millisecond
)

// A board knows which lanes may hold something and which sessions take from them. Only
// sessions that are free cost a claim anything, and only lanes that may hold something and
// that one of these takes: what is empty, rests, or is of busy sessions is not even passed
// over. It is safe for concurrent use.
type board struct {
	nudge chan struct{} // there may be something to claim

	mu        sync.Mutex
	apps      map[sqldb.ID]*application
	classes   map[string]*class
	lanes     map[int64]*lane
	room      laneRoom
	free      map[*class]struct{} // classes with free sessions
	ready     rotation            // lanes to look into
	resting   ranked[*rest]       // lanes that may hold something but are left alone
	sweeps    []*class            // classes that something is to be found out about
	sweepPace pace
	underway  []*lane // of the last order
	woken     uint64  // grows with each wake, end and opening
	looks     int     // work done: how often it was asked whether a session takes a lane, and the like
}

// A class is the sessions that take from the same lanes.
type class struct {
	key       string
	app       *application // whose lanes they are
	seats     []seat
	known     map[limitKey]bool // what limits of its sessions may name
	members   map[sqldb.ID]int  // how many there are, by credential
	free      map[*session]struct{}
	hint      *session      // who took a lane last
	ready     ranked[*seat] // lanes to look into
	spot      int32         // among the active classes of its application
	aside     []*seat       // lanes that none of the free sessions takes
	sweep     sweep
	busySince time.Time // when the last of them stopped being free
}

// A lane is kept once, for all classes that have it.
type lane struct {
	dispatch.Lane
	id     int64
	seats  *seat  // in classes; the first of them
	last   uint64 // when it was given out last
	gen    uint64 // of the last wake
	opened uint64 // of the last change of its queue's limits
	state  laneState
	misses uint8    // looks in a row that others spoiled
	rest   *rest    // if it rests
	taker  *session // while an order is made: somebody who takes from it
}

type laneState uint8

const (
	laneCold    laneState = iota // nobody has reason to look into it
	laneReady                    // it may hold something
	laneResting                  // the same, but it is left alone for a while
)

// A rest is for how long a lane is left alone.
type rest struct {
	lane  *lane
	until time.Time
	spot  int32
	full  *list.List    // those that wait for the same room; nil if it waits for none
	why   sqldb.ID      // the queue that is full; zero for the application
	place *list.Element // there
}

func (r *rest) before(o *rest) bool { return r.until.Before(o.until) }
func (r *rest) at() *int32          { return &r.spot }

// A place is a session's part of the board, guarded by its lock.
type place struct {
	class    *class
	credit   int
	limits   limits
	sent     uint64                // assignments written to the connection
	flights  []flight              // assignments since the last word about credit, in order
	held     map[sqldb.ID]held     // attempts that the process holds, as far as is known
	open     map[sqldb.ID]struct{} // attempts to be settled before anything is assigned
	draining bool
	swept    time.Time // when held was looked through for what is long over
	looser   bool      // a limit was lifted
	left     bool
}

// A held attempt counts towards the capacity of its process.
type held struct {
	epoch int64
	until time.Time     // about the end of its lease
	queue sqldb.ID      // zero if it is not known here
	hint  dispatch.Hint // of an attempt that was given away here
}

func newBoard() *board {
	return &board{
		nudge: make(chan struct{}, 1),
		apps:  make(map[sqldb.ID]*application), classes: make(map[string]*class), lanes: make(map[int64]*lane),
		free: make(map[*class]struct{}), room: newLaneRoom(), sweepPace: pace{rate: sweepRate, most: sweepMost},
	}
}

// warm has a lane looked into.
func (b *board) warm(l *lane) {
	if l.state == laneCold {
		l.state = laneReady
		b.ready.add(l)
	}
}

// cool has a lane that is ready not looked into any more.
func (b *board) cool(l *lane) {
	b.ready.remove(l)
	l.state = laneCold
}

// change runs f on a session's place and sees what follows from it.
func (b *board) change(s *session, f func(*place)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&s.place)
	b.update(s)
}

// update keeps the set of free sessions true.
func (b *board) update(s *session) {
	c := s.place.class
	_, was := c.free[s]
	is := s.slots() > 0
	if is && (!was || s.place.looser) {
		b.loosen(c, s)
	}
	s.place.looser = false
	switch {
	case is && !was:
		if c.free[s] = struct{}{}; len(c.free) == 1 {
			b.active(c)
		}
	case !is && was:
		c.sweep.forget(s)
		if delete(c.free, s); c.hint == s {
			c.hint = nil
		}
		if len(c.free) == 0 {
			c.busySince = time.Now()
			delete(b.free, c)
			b.ready.settle(c)
		}
	}
	if is {
		b.signalWork()
	}
}

// active notes that somebody of a class is free again, or for the first time.
func (b *board) active(c *class) {
	b.free[c] = struct{}{}
	b.ready.settle(c)
	if time.Since(c.busySince) > staleAfter {
		b.heat(c)
	}
	b.toSweep(c)
}

// signalWork has an order made, if there may be something in it.
func (b *board) signalWork() {
	if len(b.ready.apps)+len(b.sweeps) > 0 {
		b.signal()
	}
}

// slots is how many assignments the session takes now: what it gave credit for, within
// its capacity, while its socket keeps up.
func (s *session) slots() int {
	p := &s.place
	if p.left || p.draining || len(p.open) > 0 || s.queue.room() < orbit.MaxPayloadBytes {
		return 0
	}
	return min(p.credit, s.capacity-len(p.held))
}

// takes is how many tasks of a lane of its class the session takes now.
func (s *session) takes(l *lane) int {
	return s.place.limits.within(l.Lane, s.slots())
}

func (b *board) signal() {
	select {
	case b.nudge <- struct{}{}:
	default:
	}
}

// wake notes that lanes have got tasks. Lanes that nobody here takes are none of ours.
func (b *board) wake(lanes []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.woken++
	for _, id := range lanes {
		l := b.lanes[id]
		if l == nil {
			continue
		}
		l.gen = b.woken
		if l.misses > 0 {
			l.misses = 0
			b.endRest(l)
		}
		b.warm(l)
	}
	b.signalWork()
}

// learn takes what a claim found out about lanes.
func (b *board) learn(o order, c dispatch.Claimed, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, end := range c.Lanes {
		l := b.lanes[id]
		if l == nil || l.state != laneReady {
			continue
		}
		if end != dispatch.LaneSkipped {
			l.misses = 0
		}
		switch end {
		case dispatch.LaneEmpty:
			if l.gen <= o.woken {
				b.cool(l)
			}
		case dispatch.LaneMore:
			if len(c.Grants) == 0 {
				b.rest(l, now.Add(afterNothing))
			}
		case dispatch.LaneSkipped:
			b.rest(l, now.Add(min(firstSkip<<min(l.misses, 10), longestSkip)))
			l.misses = min(l.misses+1, 10)
		case dispatch.LaneClosed:
			if l.opened <= o.woken {
				b.rest(l, now.Add(afterClosed))
			}
		default:
			b.restFull(l, end, o, now)
		}
	}
	b.learnRoom(c)
	b.underway = nil
	b.signalWork()
}

// give hands a grant to a session and reports whether the session takes it still.
func (b *board) give(s *session, a assignment, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, lane := &s.place, a.grant.Lane()
	if p.limits.within(lane, s.slots()) <= 0 {
		return false
	}
	p.credit--
	p.limits.use(lane)
	p.flights = append(p.flights, flight{attempt: a.grant.Attempt, lane: lane})
	p.held[a.grant.Attempt] = held{a.grant.Epoch, until, a.grant.Queue, a.grant.Hint}
	s.queue.assign(a)
	b.update(s)
	return true
}

// cold returns the lanes that somebody takes and that nobody has reason to look into.
func (b *board) cold() []int64 {
	b.mu.Lock()
	classes := slices.Collect(maps.Keys(b.free))
	b.mu.Unlock()
	var ids []int64
	for _, c := range classes {
		b.mu.Lock() // anew for each: there may be many
		if len(c.free) > 0 {
			for i := range c.seats {
				if l := c.seats[i].lane; l.state == laneCold {
					ids = append(ids, l.id)
				}
			}
		}
		b.mu.Unlock()
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

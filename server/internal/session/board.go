package session

import (
	"container/list"
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
// sessions that are free cost a claim anything. It is safe for concurrent use.
type board struct {
	nudge chan struct{} // there may be something to claim

	mu      sync.Mutex
	classes map[string]*class
	lanes   map[int64]*lane
	hot     *rotation       // lanes that may hold something
	limited map[int64]*lane // lanes that wait for an attempt to end
	woken   uint64          // grows with each wake
}

// A class is the sessions that take from the same lanes.
type class struct {
	key       string
	app       sqldb.ID // whose lanes they are
	lanes     []*lane
	known     map[limitKey]bool // what limits of its sessions may name
	members   int
	free      map[*session]struct{}
	aside     map[*lane]struct{} // lanes that were set aside
	busySince time.Time          // when the last of them stopped being free
}

type lane struct {
	dispatch.Lane
	id        int64
	app       sqldb.ID
	classes   map[*class]struct{}
	spot      *list.Element // in the rotation; nil if it is not there
	aside     bool          // it may hold something that no free session takes
	gen       uint64        // of the last wake
	opened    uint64        // of the last change of its limits
	notBefore time.Time     // of the next look
	misses    int           // looks in a row that others spoiled
	taker     *session      // while an order is made: somebody who takes from it
}

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
	left     bool
}

// A held attempt counts towards the capacity of its process.
type held struct {
	epoch int64
	until time.Time     // about the end of its lease
	hint  dispatch.Hint // of an attempt that was given away here
}

func newBoard() *board {
	return &board{
		nudge:   make(chan struct{}, 1),
		classes: make(map[string]*class), lanes: make(map[int64]*lane),
		hot: newRotation(), limited: make(map[int64]*lane),
	}
}

// join adds a session that takes from lanes, all of which are to be looked into.
func (b *board) join(s *session, key string, lanes []dispatch.Lane, held map[sqldb.ID]held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.classes[key]
	if c == nil {
		c = &class{
			key: key, app: s.principal.Application, known: knownKeys(lanes),
			free: make(map[*session]struct{}), aside: make(map[*lane]struct{}),
		}
		b.classes[key] = c
		for _, l := range lanes {
			c.lanes = append(c.lanes, b.addLane(l, c))
		}
	}
	c.members++
	s.place = place{class: c, held: held}
	b.heat(c)
}

func (b *board) addLane(def dispatch.Lane, c *class) *lane {
	id := def.ID()
	l := b.lanes[id]
	if l == nil {
		l = &lane{Lane: def, id: id, app: c.app, classes: make(map[*class]struct{})}
		b.lanes[id] = l
	}
	l.classes[c] = struct{}{}
	return l
}

// lookInto has a lane looked into.
func (b *board) lookInto(l *lane) {
	if l.aside {
		l.aside = false
		for c := range l.classes {
			delete(c.aside, l)
		}
	}
	b.hot.add(l)
}

// setAside leaves a lane out until somebody takes from it.
func (b *board) setAside(l *lane) {
	b.hot.remove(l)
	l.aside = true
	for c := range l.classes {
		c.aside[l] = struct{}{}
	}
}

// heat has all lanes of a class looked into.
func (b *board) heat(c *class) {
	for _, l := range c.lanes {
		b.lookInto(l)
	}
}

// leave takes a session off the board: from then on nothing is given to it.
func (b *board) leave(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.place.left {
		return
	}
	s.place.left = true
	b.update(s)
	c := s.place.class
	if c.members--; c.members > 0 {
		return
	}
	delete(b.classes, c.key)
	for _, l := range c.lanes {
		if delete(l.classes, c); len(l.classes) == 0 {
			delete(b.lanes, l.id)
			b.hot.remove(l)
			delete(b.limited, l.id)
		}
	}
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
	switch {
	case is && !was:
		if len(c.free) == 0 && time.Since(c.busySince) > staleAfter {
			b.heat(c)
		}
		c.free[s] = struct{}{}
	case !is && was:
		if delete(c.free, s); len(c.free) == 0 {
			c.busySince = time.Now()
		}
	}
	if !is {
		return
	}
	for l := range c.aside {
		if s.takes(l) > 0 {
			b.lookInto(l)
		}
	}
	if b.hot.size > 0 {
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
	found := false
	for _, id := range lanes {
		l := b.lanes[id]
		if l == nil {
			continue
		}
		l.gen = b.woken
		if l.misses > 0 {
			l.misses, l.notBefore = 0, time.Time{}
		}
		if !l.aside {
			b.hot.add(l)
			found = true
		}
	}
	if found {
		b.signal()
	}
}

// ended notes that attempts have ended: what waited for room under a limit may go.
func (b *board) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.limited) == 0 {
		return
	}
	for id, l := range b.limited {
		l.notBefore = time.Time{}
		delete(b.limited, id)
	}
	b.signal()
}

// reopen has the lanes of a queue, or with the zero queue of an application, looked into
// at once if they wait because they were closed or full: that may have changed.
func (b *board) reopen(app, queue sqldb.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.woken++
	for id, l := range b.lanes {
		if l.app == app && (queue.IsZero() || l.Queue == queue) {
			l.opened, l.notBefore = b.woken, time.Time{}
			delete(b.limited, id)
		}
	}
	if b.hot.size > 0 {
		b.signal()
	}
}

// wanted reports whether somebody takes from the lane now.
func (l *lane) wanted() bool {
	for c := range l.classes {
		if len(c.free) > 0 {
			return true
		}
	}
	return false
}

// anyTaker returns a free session that takes from the lane, or nil.
func (l *lane) anyTaker() *session {
	for c := range l.classes {
		for s := range c.free {
			if s.takes(l) > 0 {
				return s
			}
		}
	}
	return nil
}

// learn takes what a claim found out about lanes.
func (b *board) learn(o order, c dispatch.Claimed, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, end := range c.Lanes {
		l := b.lanes[id]
		if l == nil {
			continue
		}
		switch end {
		case dispatch.LaneEmpty:
			if l.misses = 0; l.gen <= o.woken {
				b.hot.remove(l)
			}
		case dispatch.LaneMore:
			if l.misses = 0; len(c.Grants) == 0 {
				l.notBefore = now.Add(afterNothing)
			}
		case dispatch.LaneSkipped:
			l.notBefore = now.Add(min(firstSkip<<min(l.misses, 10), longestSkip))
			l.misses++
		case dispatch.LaneFull:
			l.rest(o, now.Add(afterFull))
			b.limited[id] = l
		case dispatch.LaneClosed:
			l.rest(o, now.Add(afterClosed))
		}
	}
}

// rest leaves a lane alone until then, unless what it waits for has changed meanwhile.
func (l *lane) rest(o order, until time.Time) {
	if l.opened <= o.woken {
		l.notBefore = until
	}
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
	p.held[a.grant.Attempt] = held{a.grant.Epoch, until, a.grant.Hint}
	s.queue.assign(a)
	b.update(s)
	return true
}

// cold returns the lanes that somebody takes and that nobody has reason to look into.
func (b *board) cold() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []int64
	for id, l := range b.lanes {
		if !b.hot.has(l) && !l.aside && l.wanted() {
			ids = append(ids, id)
		}
	}
	return ids
}

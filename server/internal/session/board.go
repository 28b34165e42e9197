package session

import (
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
	hot     map[int64]*lane // lanes that may hold something
	limited map[int64]*lane // lanes that wait for an attempt to end
	woken   uint64          // grows with each wake
}

// A class is the sessions that take from the same lanes.
type class struct {
	key       string
	lanes     []*lane
	members   int
	free      map[*session]struct{}
	busySince time.Time // when the last of them stopped being free
}

type lane struct {
	dispatch.Lane
	id        int64
	classes   map[*class]struct{}
	gen       uint64    // of the last wake
	notBefore time.Time // of the next look
	misses    int       // looks in a row that others spoiled
}

// A place is a session's part of the board, guarded by its lock.
type place struct {
	class    *class
	credit   int
	held     map[sqldb.ID]time.Time // attempts and about when their lease ends
	open     map[sqldb.ID]struct{}  // attempts to be settled before anything is assigned
	draining bool
	left     bool
}

func newBoard() *board {
	return &board{
		nudge:   make(chan struct{}, 1),
		classes: make(map[string]*class), lanes: make(map[int64]*lane),
		hot: make(map[int64]*lane), limited: make(map[int64]*lane),
	}
}

// join adds a session that takes from lanes, all of which are to be looked into.
func (b *board) join(s *session, key string, lanes []dispatch.Lane, held map[sqldb.ID]time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.classes[key]
	if c == nil {
		c = &class{key: key, free: make(map[*session]struct{})}
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
		l = &lane{Lane: def, id: id, classes: make(map[*class]struct{})}
		b.lanes[id] = l
	}
	l.classes[c] = struct{}{}
	return l
}

// heat has all lanes of a class looked into.
func (b *board) heat(c *class) {
	for _, l := range c.lanes {
		b.hot[l.id] = l
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
			delete(b.hot, l.id)
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
	if is && len(b.hot) > 0 {
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
		l.gen, found = b.woken, true
		if b.hot[id] = l; l.misses > 0 {
			l.misses, l.notBefore = 0, time.Time{}
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
	byClass := make(map[*class][]int64)
	for id, l := range b.hot {
		if len(o.lanes) == claimLanes {
			break
		}
		if !l.wanted() {
			continue
		}
		if wait := l.notBefore.Sub(now); wait > 0 {
			o.wait = min(o.wait, wait)
			continue
		}
		o.lanes = append(o.lanes, l.Lane)
		for c := range l.classes {
			byClass[c] = append(byClass[c], id)
		}
	}
	slots := 0
	for c, ids := range byClass {
		for s := range c.free {
			n := s.slots()
			if n <= 0 {
				continue // its socket does not keep up
			}
			o.takers, o.to = append(o.takers, s.taker(ids, n)), append(o.to, s)
			if slots += n; slots >= dispatch.MaxBatch || len(o.to) == claimTakers {
				return o
			}
		}
	}
	return o
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

func (s *session) taker(lanes []int64, slots int) dispatch.Taker {
	return dispatch.Taker{
		Process: s.process, Namespace: s.principal.Namespace, Credential: s.principal.Credential,
		ConnectedAt: s.connectedAt, Lanes: lanes, Slots: slots, Bytes: s.queue.room(),
	}
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
				delete(b.hot, id)
			}
		case dispatch.LaneMore:
			if l.misses = 0; len(c.Grants) == 0 {
				l.notBefore = now.Add(afterNothing)
			}
		case dispatch.LaneSkipped:
			l.notBefore = now.Add(min(firstSkip<<min(l.misses, 10), longestSkip))
			l.misses++
		case dispatch.LaneFull:
			l.notBefore, b.limited[id] = now.Add(afterFull), l
		case dispatch.LaneClosed:
			l.notBefore = now.Add(afterClosed)
		}
	}
}

// give hands a grant to a session and reports whether the session takes it still.
func (b *board) give(s *session, a assignment, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.slots() <= 0 {
		return false
	}
	s.place.credit--
	s.place.held[a.grant.Attempt] = until
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
		if _, hot := b.hot[id]; !hot && l.wanted() {
			ids = append(ids, id)
		}
	}
	return ids
}

package session

import (
	"container/list"
	"errors"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// defaultLanes bounds the lanes on a board: every class counts all of its own. One takes
// about 200 bytes.
const defaultLanes = 200_000

// Why a registration has no room on a node.
var (
	errLanes           = errors.New("this node holds as many kinds of task (queues times handlers) as it may")
	errCredentialLanes = errors.New("the credential holds as many kinds of task (queues times handlers) on this node as it may")
)

// A laneRoom counts lanes of classes.
type laneRoom struct {
	most, mostEach int
	all            int
	by             map[sqldb.ID]int // credentials, those of each class that they have sessions of
}

func newLaneRoom() laneRoom {
	return laneRoom{most: defaultLanes, mostEach: defaultLanes / 2, by: make(map[sqldb.ID]int)}
}

// join adds a session that takes from lanes. They are looked into when it is free first. It
// fails with errLanes or errCredentialLanes.
func (b *board) join(s *session, key string, lanes []dispatch.Lane, held map[sqldb.ID]held) error {
	ids := b.newIDs(key, lanes)
	b.mu.Lock()
	defer b.mu.Unlock()
	credential := s.principal.Credential
	c := b.classes[key]
	if (c == nil || c.members[credential] == 0) && b.room.by[credential]+len(lanes) > b.room.mostEach {
		return errCredentialLanes
	}
	if c == nil {
		if b.room.all+len(lanes) > b.room.most {
			return errLanes
		}
		c = b.addClass(key, s.principal.Application, lanes, ids)
	}
	if c.members[credential]++; c.members[credential] == 1 {
		b.room.by[credential] += len(c.seats)
	}
	s.place = place{class: c, held: held}
	return nil
}

// newIDs computes the ids of lanes, which takes a while, unless their class is known.
func (b *board) newIDs(key string, lanes []dispatch.Lane) []int64 {
	b.mu.Lock()
	known := b.classes[key] != nil
	b.mu.Unlock()
	if known {
		return nil
	}
	ids := make([]int64, len(lanes))
	for i, l := range lanes {
		ids[i] = l.ID()
	}
	return ids
}

func (b *board) addClass(key string, id sqldb.ID, lanes []dispatch.Lane, ids []int64) *class {
	app := b.apps[id]
	if app == nil {
		app = &application{id: id, last: b.ready.given, full: make(map[sqldb.ID]*list.List)}
		b.apps[id] = app
	}
	app.classes++
	c := &class{
		key: key, app: app, seats: make([]seat, len(lanes)), known: knownKeys(lanes),
		members: make(map[sqldb.ID]int), free: make(map[*session]struct{}),
	}
	b.classes[key] = c
	b.room.all += len(lanes)
	for i, def := range lanes {
		if ids == nil { // the class left in between
			b.sit(c, &c.seats[i], def, def.ID())
		} else {
			b.sit(c, &c.seats[i], def, ids[i])
		}
	}
	return c
}

func (b *board) sit(c *class, s *seat, def dispatch.Lane, id int64) {
	l := b.lanes[id]
	if l == nil {
		l = &lane{Lane: def, id: id, last: b.ready.given}
		b.lanes[id] = l
	}
	*s = seat{lane: l, class: c, next: l.seats}
	if l.seats = s; l.state == laneReady {
		c.ready.add(s)
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
	c, credential := s.place.class, s.principal.Credential
	if c.members[credential]--; c.members[credential] > 0 {
		return
	}
	delete(c.members, credential)
	if b.room.by[credential] -= len(c.seats); b.room.by[credential] == 0 {
		delete(b.room.by, credential)
	}
	if len(c.members) == 0 {
		b.dropClass(c)
	}
}

func (b *board) dropClass(c *class) {
	delete(b.classes, c.key)
	b.room.all -= len(c.seats)
	for i := range c.seats {
		b.stand(&c.seats[i])
	}
	c.seats, c.ready, c.aside, c.sweep = nil, nil, nil, sweep{queued: c.sweep.queued}
	if c.app.classes--; c.app.classes == 0 {
		delete(b.apps, c.app.id)
	}
}

// stand takes a lane out of a class, which goes. Who is in no other goes with it.
func (b *board) stand(s *seat) {
	l := s.lane
	if l.seats == s && s.next == nil {
		b.forgetRest(l)
		delete(b.lanes, l.id)
	}
	for at := &l.seats; *at != nil; at = &(*at).next {
		if *at == s {
			*at = s.next
			return
		}
	}
}

package session

import (
	"container/list"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A rotation holds the lanes that may hold something and gives them out in turn: one of
// each application after the other, and of one application those first that have waited
// longest. So a lane is given out again after at most as many picks as its application has
// lanes here, whatever other applications do: while there are no more than claimLanes of
// those, each pick has one lane of each at least; with more, each pick has the next of them.
type rotation struct {
	turns map[sqldb.ID]*turn // by application
	ring  list.List          // of turns; the next is in front
	size  int
	picks uint64
}

// A turn is the lanes of one application. It is in the ring while it has some.
type turn struct {
	app   sqldb.ID
	lanes list.List // the one that has waited longest is in front
	place *list.Element

	pick   uint64        // the pick that the rest belongs to
	cursor *list.Element // the next lane to ask about; nil for none
}

func newRotation() *rotation { return &rotation{turns: make(map[sqldb.ID]*turn)} }

func (r *rotation) has(l *lane) bool { return l.spot != nil }

// add puts a lane behind the others of its application, unless it is there.
func (r *rotation) add(l *lane) {
	if r.has(l) {
		return
	}
	t := r.turns[l.app]
	if t == nil {
		t = &turn{app: l.app}
		t.place = r.ring.PushBack(t)
		r.turns[l.app] = t
	}
	l.spot = t.lanes.PushBack(l)
	r.size++
}

func (r *rotation) remove(l *lane) {
	if !r.has(l) {
		return
	}
	t := r.turns[l.app]
	t.lanes.Remove(l.spot)
	l.spot = nil
	if r.size--; t.lanes.Len() == 0 {
		r.ring.Remove(t.place)
		delete(r.turns, t.app)
	}
}

// pick gives out up to most of the lanes that are ready, which must not change the
// rotation. They stay in it, behind the others.
func (r *rotation) pick(most int, ready func(*lane) bool) (picked []*lane) {
	r.picks++
	for asking := r.ring.Len(); asking > 0 && len(picked) < most; {
		t := r.ring.Front().Value.(*turn)
		r.ring.MoveToBack(t.place)
		if t.pick != r.picks {
			t.pick, t.cursor = r.picks, t.lanes.Front()
		} else if t.cursor == nil {
			continue
		}
		if l := t.next(ready); l != nil {
			picked = append(picked, l)
		}
		if t.cursor == nil {
			asking--
		}
	}
	for _, l := range picked {
		r.turns[l.app].lanes.MoveToBack(l.spot)
	}
	return picked
}

// next moves the cursor behind the next lane that is ready and returns it.
func (t *turn) next(ready func(*lane) bool) *lane {
	for t.cursor != nil {
		l := t.cursor.Value.(*lane)
		t.cursor = t.cursor.Next()
		if ready(l) {
			return l
		}
	}
	return nil
}

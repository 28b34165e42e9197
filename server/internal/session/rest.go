package session

import (
	"container/list"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// rest leaves a lane that is ready alone until then.
func (b *board) rest(l *lane, until time.Time) {
	b.ready.remove(l)
	l.state, l.rest = laneResting, &rest{lane: l, until: until}
	b.resting.add(l.rest)
}

// endRest has a lane looked into, if it rests.
func (b *board) endRest(l *lane) {
	if b.forgetRest(l) {
		l.state = laneReady
		b.ready.add(l)
	}
}

func (b *board) forgetRest(l *lane) bool {
	r := l.rest
	if r == nil {
		return false
	}
	if b.resting.remove(r); r.full != nil {
		if r.full.Remove(r.place); r.full.Len() == 0 {
			delete(l.app().full, r.why)
		}
	}
	l.rest = nil
	return true
}

// endRests has the lanes looked into that have rested long enough.
func (b *board) endRests(now time.Time) {
	for len(b.resting) > 0 && !b.resting[0].until.After(now) {
		b.endRest(b.resting[0].lane)
	}
}

// restFull leaves a lane alone until there is room under a limit, unless some was made
// since the claim was ordered.
func (b *board) restFull(l *lane, end dispatch.LaneEnd, o order, now time.Time) {
	app, why := l.app(), l.Queue
	changed := l.opened
	if end == dispatch.LaneAppFull {
		why, changed = sqldb.ID{}, max(changed, app.ended)
	}
	if changed > o.woken {
		return
	}
	b.rest(l, now.Add(afterFull))
	waiting := app.full[why]
	if waiting == nil {
		waiting = list.New()
		app.full[why] = waiting
	}
	l.rest.why, l.rest.full, l.rest.place = why, waiting, waiting.PushBack(l)
}

// app is whose lane it is.
func (l *lane) app() *application { return l.seats.class.app }

// release has some of the lanes looked into that wait for room in a queue, or with the zero
// id in the application: as many as a claim looks into, those first that wait longest. If
// they leave room, the claim tells.
func (b *board) release(app *application, queue sqldb.ID) {
	waiting := app.full[queue]
	if waiting == nil {
		return
	}
	for range claimLanes {
		first := waiting.Front()
		if first == nil {
			return
		}
		b.endRest(first.Value.(*lane))
		b.looks++
	}
}

// ended notes that an attempt of an application has ended: what waited for room in its queue,
// or in the application, may go. With the zero queue it is not known in which.
func (b *board) ended(id, queue sqldb.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	app := b.apps[id]
	if app == nil {
		return
	}
	b.woken++
	app.ended = b.woken
	for _, l := range b.underway { // what the claim found full may not be full any more
		if l.seats != nil && l.app() == app && (queue.IsZero() || l.Queue == queue) {
			l.opened = b.woken
		}
	}
	b.release(app, sqldb.ID{})
	if !queue.IsZero() {
		b.release(app, queue)
	} else {
		for q := range app.full {
			b.release(app, q)
		}
	}
	b.signalWork()
}

// learnRoom has others looked into that wait for room, where a claim has left some.
func (b *board) learnRoom(c dispatch.Claimed) {
	for id, end := range c.Lanes {
		l := b.lanes[id]
		if l == nil || end != dispatch.LaneEmpty && end != dispatch.LaneMore {
			continue
		}
		b.release(l.app(), l.Queue)
		b.release(l.app(), sqldb.ID{})
	}
}

// reopen has the lanes of a queue, or with the zero queue of an application, looked into
// at once if they wait because they were closed or full: that may have changed. It happens
// when a person or a program decides something, so it looks at all that rest.
func (b *board) reopen(id, queue sqldb.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	app := b.apps[id]
	if app == nil {
		return
	}
	b.woken++
	concerned := func(l *lane) bool {
		return l.seats != nil && l.app() == app && (queue.IsZero() || l.Queue == queue)
	}
	for _, l := range b.underway {
		if concerned(l) {
			l.opened = b.woken
		}
	}
	var rested []*lane
	for _, r := range b.resting {
		if concerned(r.lane) {
			rested = append(rested, r.lane)
		}
	}
	for _, l := range rested {
		b.endRest(l)
	}
	b.signalWork()
}

package session

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// bigRegistration is one of 200 handlers and 10 queues, keyed and not.
func bigRegistration(app byte) (lanes []dispatch.Lane) {
	for q := range 10 {
		for h := range 200 {
			l := dispatch.Lane{Queue: sqldb.ID{app, byte(q)}, Handler: fmt.Sprint("h", h), Version: "v"}
			lanes = append(lanes, l)
			l.Keyed = true
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// limited gives credit as the message does.
func limited(b *board, s *session, slots int, ls limits) {
	b.change(s, func(p *place) {
		before := p.limits
		p.credit, p.limits = slots, ls
		p.looser = ls.looser(before)
	})
}

// eachQueue limits every queue of a big registration to n.
func eachQueue(app byte, n int) limits {
	ls := limits{}
	for q := range 10 {
		left := n
		ls[limitKey{queue: sqldb.ID{app, byte(q)}}] = &left
	}
	return ls
}

// orders makes orders until there is nothing more to find out, each after as long a wait as
// the last one said, and returns the time after them.
func orders(t *testing.T, b *board, now time.Time, most int) time.Time {
	t.Helper()
	for range most {
		before := b.looks
		o := b.order(now)
		if n := b.looks - before; n > sweepMost+orderLooks+sweepTurn {
			t.Fatalf("an order of %d looks holds the board up", n)
		}
		if o.wait == time.Hour {
			return now
		}
		now = now.Add(o.wait)
	}
	t.Fatalf("%d orders come to no end", most)
	return now
}

// What a worker says of its credit costs nothing for lanes that it does not take, unless a
// limit was lifted; and then no more than a bounded number of looks a second.
func TestWordsAboutCreditCostLittleForLanesThatAreAside(t *testing.T) { // WRK-017, cost law 7
	b := newBoard()
	s := onBoard(b, 1000, bigRegistration(1)...)
	limited(b, s, 1000, eachQueue(1, 0))
	now := orders(t, b, time.Now(), 100)
	if n := len(s.place.class.aside); n != 4000 {
		t.Fatalf("%d lanes are aside, want all", n)
	}
	before := b.looks
	for i := range 385 {
		limited(b, s, 2+i, eachQueue(1, 0))
		s.place.credit--
		b.change(s, func(*place) {})
		now = orders(t, b, now, 2)
	}
	if n := b.looks - before; n != 0 {
		t.Errorf("385 credits that lift no limit: %d looks, want none", n)
	}
	before = b.looks
	began := now
	for now.Sub(began) < time.Second {
		for range 10 { // thousands in a second
			limited(b, s, 1000, eachQueue(1, 1))
			limited(b, s, 1000, eachQueue(1, 0))
		}
		b.order(now)
		now = now.Add(time.Millisecond)
	}
	if n := b.looks - before; n > 2*sweepRate {
		t.Errorf("limits that come and go: %d looks in a second, want at most about %d", n, sweepRate)
	}
	limited(b, s, 1000, eachQueue(1, 1))
	for range 200 {
		if o := b.order(now); len(o.takers) == 1 {
			return
		}
		now = now.Add(time.Millisecond)
	}
	t.Error("a limit that was lifted is not noticed")
}

// What busy sessions have waiting costs an order nothing, however much it is.
func TestLanesThatNobodyFreeTakesCostAnOrderNothing(t *testing.T) { // cost law 2
	b := newBoard()
	var ids []int64
	for i := range 1110 {
		s := &session{queue: newSendQueue(), capacity: 1, process: sqldb.NewID()}
		s.principal.Application = sqldb.ID{1, byte(i)}
		lanes := lanesOf(20, 1)
		for j := range lanes {
			lanes[j].Queue = sqldb.ID{2, byte(i), byte(i >> 8)}
			ids = append(ids, lanes[j].ID())
		}
		b.join(s, fmt.Sprint(i), lanes, map[sqldb.ID]held{})
	}
	appOnBoard(b, 200, 4, lanesOf(3, 200)...)
	b.wake(ids)
	before := b.looks
	o := b.order(time.Now())
	if n := b.looks - before; len(o.lanes) != 3 || n > 10 {
		t.Errorf("%d lanes of 3 that are wanted, in %d looks", len(o.lanes), n)
	}
	if n := len(b.ready.apps); n != 1 {
		t.Errorf("%d applications are in turn, want the one that has somebody free", n)
	}
	if n := len(b.cold()); n != 0 {
		t.Errorf("%d lanes are polled for nobody", n)
	}
}

// Sessions that join cost nothing for lanes that others have.
func TestJoinsHaveNothingLookedInto(t *testing.T) {
	b := newBoard()
	lanes := bigRegistration(1)
	s := onBoard(b, 1000, lanes...)
	limited(b, s, 1000, eachQueue(1, 0))
	now := orders(t, b, time.Now(), 100)
	before := b.looks
	for range 200 {
		another := &session{queue: newSendQueue(), capacity: 1}
		if err := b.join(another, s.place.class.key, lanes, map[sqldb.ID]held{}); err != nil {
			t.Fatal(err)
		}
		if o := b.order(now); len(o.takers) != 0 {
			t.Fatalf("a join made the order %+v", o)
		}
	}
	if n := b.looks - before; n != 0 {
		t.Errorf("200 joins: %d looks, want none", n)
	}
}

// A worker that is busy after each task loses no turn by it: a lane is looked into after all
// others of its, not after those that were first whenever it was free.
func TestTurnsAreKeptWhileNobodyIsFree(t *testing.T) { // REF-PRI-001
	for _, c := range []struct {
		name string
		say  func(b *board, s *session, slots int)
	}{
		{"credit", func(b *board, s *session, slots int) { credit(b, s, slots) }},
		{"a limit of the queue", func(b *board, s *session, slots int) {
			limited(b, s, 5, limits{{queue: sqldb.ID{1}}: &slots})
		}},
	} {
		b := newBoard()
		s := onBoard(b, 5, lanesOf(40, 1)...)
		seen := map[int64]bool{}
		now := time.Now()
		for range 3 {
			c.say(b, s, 1)
			o := b.order(now)
			for _, l := range o.lanes {
				seen[l.ID()] = true
			}
			b.learn(o, more(o), now)
			c.say(b, s, 0) // it has a long task
			b.order(now)
		}
		if len(seen) != 40 {
			t.Errorf("%s: %d lanes of 40 were looked into by 3 claims of 16", c.name, len(seen))
		}
	}
}

// An end looks into some lanes that wait for its room, not into all that wait for any.
func TestAnEndReopensWhatItMakesRoomFor(t *testing.T) { // LIC-017
	b := newBoard()
	lanes := append(lanesOf(100, 1), lanesOf(100, 2)...)
	s := onBoard(b, 1000, lanes...)
	credit(b, s, 1000)
	now := time.Now()
	full := func(end dispatch.LaneEnd) {
		for o := b.order(now); len(o.lanes) > 0; o = b.order(now) {
			got := dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{}}
			for _, l := range o.lanes {
				got.Lanes[l.ID()] = end
			}
			b.learn(o, got, now)
		}
	}
	full(dispatch.LaneFull)
	if n := len(b.resting); n != 200 {
		t.Fatalf("%d lanes rest, want 200", n)
	}
	b.ended(sqldb.ID{}, sqldb.ID{2})
	if n := len(b.resting); n != 200-claimLanes {
		t.Errorf("%d lanes rest after an end in a queue, want %d", n, 200-claimLanes)
	}
	o := b.order(now)
	got := dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{}}
	for _, l := range o.lanes {
		if got.Lanes[l.ID()] = dispatch.LaneEmpty; l.Queue != (sqldb.ID{2}) {
			t.Error("an end opens the lane of another queue")
		}
	}
	b.learn(o, got, now) // they left the room to others
	if o := b.order(now); len(o.lanes) != claimLanes {
		t.Errorf("%d lanes are looked into next, want %d", len(o.lanes), claimLanes)
	} else { // an end comes after the claim has found them full
		b.ended(sqldb.ID{}, sqldb.ID{2})
		got := dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{}}
		for _, l := range o.lanes {
			got.Lanes[l.ID()] = dispatch.LaneFull
		}
		b.learn(o, got, now)
		for id := range got.Lanes {
			if b.lanes[id].state == laneResting {
				t.Fatal("an end during a claim is lost")
			}
		}
	}
	b.ended(sqldb.ID{9}, sqldb.ID{1}) // of somebody else
	full(dispatch.LaneAppFull)
	before := len(b.resting)
	b.ended(sqldb.ID{}, sqldb.ID{7})
	if n := before - len(b.resting); n != claimLanes {
		t.Errorf("%d lanes of a full application are opened by an end, want %d", n, claimLanes)
	}
	b.leave(s)
	if len(b.resting)+len(b.lanes)+len(b.apps) != 0 {
		t.Error("the board keeps something of nobody")
	}
}

// A registration costs little memory for each of its lanes, and those of a node and of a
// credential are bounded.
func TestLanesAreLeanAndBounded(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b := newBoard()
	b.room.most, b.room.mostEach = 10*4000, 6*4000
	before := heap()
	join := func(app, credential byte) (*session, error) {
		s := &session{queue: newSendQueue(), capacity: 1}
		s.principal = auth.Principal{Application: sqldb.ID{app}, Credential: sqldb.ID{credential}}
		return s, b.join(s, fmt.Sprint(app), bigRegistration(app), map[sqldb.ID]held{})
	}
	var all []*session
	for i := range 10 {
		s, err := join(byte(i), byte(i/6))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if each := int64(heap()-before) / (10 * 4000); each > 280 {
		t.Errorf("%d bytes for each lane, want at most 280", each)
	} else {
		t.Logf("%d bytes for each lane", each)
	}
	if _, err := join(3, 0); err != nil {
		t.Errorf("an equal registration: %v", err)
	}
	if _, err := join(11, 0); !errors.Is(err, errCredentialLanes) {
		t.Errorf("the seventh of a credential: %v, want %v", err, errCredentialLanes)
	}
	if _, err := join(9, 0); !errors.Is(err, errCredentialLanes) {
		t.Errorf("one that another credential has: %v, want %v", err, errCredentialLanes)
	}
	if _, err := join(11, 7); !errors.Is(err, errLanes) {
		t.Errorf("the eleventh of the node: %v, want %v", err, errLanes)
	}
	b.leave(all[9])
	if _, err := join(11, 7); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}

// Words about credit use up what a connection has for them in a second.
func TestCreditIsPaced(t *testing.T) {
	p, now := pace{rate: creditRate, most: creditRate}, time.Now()
	said := 0
	for end := now.Add(10 * time.Second); now.Before(end); said++ {
		p.left(now)
		p.use(1 + maxLimits)
		now = now.Add(p.until(0, now))
	}
	if most := 11 * creditRate / (1 + maxLimits); said > most+2 || said < most-2 {
		t.Errorf("%d credits with %d limits in 10 s, want about %d", said, maxLimits, most)
	}
}

// Of two connections of a process the one that was registered later stays, in whatever order
// they come to this point.
func TestTheLaterRegistrationStays(t *testing.T) { // WRK-009
	hub, err := New(sqldb.New(sqldb.SQLite, nil, nil), noAuth{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	connect := func(at int64) *session {
		s := newSession(hub, auth.Principal{})
		s.connectedAt = at
		hub.replace(s)
		return s
	}
	later := connect(8)
	if earlier := connect(7); !earlier.over() || later.over() || hub.sessions[later.key()] != later {
		t.Error("a connection that was registered before replaced a later one")
	}
	if newest := connect(9); newest.over() || !later.over() || hub.sessions[newest.key()] != newest {
		t.Error("a later connection did not replace the one before")
	}
}

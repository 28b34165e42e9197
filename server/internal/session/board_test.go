package session

import (
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

var boardLane = dispatch.Lane{Queue: sqldb.ID{1}, Handler: "h", Version: "v"}

func onBoard(b *board, capacity int, lanes ...dispatch.Lane) *session {
	s := &session{queue: newSendQueue(), capacity: capacity, process: sqldb.NewID()}
	var key strings.Builder
	for _, l := range lanes {
		key.WriteString(string(l.Queue[:]) + l.Handler)
	}
	if err := b.join(s, key.String(), lanes, map[sqldb.ID]held{}); err != nil {
		panic(err)
	}
	return s
}

func credit(b *board, s *session, slots int) {
	b.change(s, func(p *place) { p.credit = slots })
}

func TestIdleConnectionsGiveNothingToDo(t *testing.T) { // cost law 7
	b := newBoard()
	s := onBoard(b, 4, boardLane)
	now := time.Now()
	if o := b.order(now); len(o.takers) != 0 {
		t.Fatalf("without credit: %+v, want no claim", o)
	}
	credit(b, s, 4)
	o := b.order(now)
	if len(o.takers) != 1 || o.takers[0].Slots != 4 || len(o.lanes) != 1 {
		t.Fatalf("a lane that nobody has looked into: %+v, want a claim of 4", o)
	}
	b.learn(o, dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLane.ID(): dispatch.LaneEmpty}}, now)
	if o := b.order(now.Add(time.Hour)); len(o.takers) != 0 {
		t.Errorf("an empty lane: %+v, want no claim until it is woken", o)
	}
	credit(b, s, 3)
	if o := b.order(now.Add(time.Hour)); len(o.takers) != 0 {
		t.Errorf("credit given anew: %+v, want no claim", o)
	}
	b.wake([]int64{boardLane.ID(), 77})
	if o := b.order(now); len(o.takers) != 1 || o.takers[0].Slots != 3 {
		t.Errorf("after a wake: %+v, want a claim of 3", o)
	}
}

func TestWakeDuringAClaimIsNotLost(t *testing.T) {
	b := newBoard()
	credit(b, onBoard(b, 1, boardLane), 1)
	o := b.order(time.Now())
	b.wake([]int64{boardLane.ID()}) // after the claim has read the lane
	b.learn(o, dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLane.ID(): dispatch.LaneEmpty}}, time.Now())
	if o := b.order(time.Now()); len(o.takers) != 1 {
		t.Error("a lane that was woken during a claim is not looked into again")
	}
}

func TestLanesAreLeftAloneAccordingToTheirEnd(t *testing.T) {
	for _, c := range []struct {
		end  dispatch.LaneEnd
		rest time.Duration
	}{
		{dispatch.LaneMore, afterNothing}, {dispatch.LaneSkipped, firstSkip},
		{dispatch.LaneFull, afterFull}, {dispatch.LaneClosed, afterClosed},
	} {
		b := newBoard()
		credit(b, onBoard(b, 1, boardLane), 1)
		now := time.Now()
		b.learn(b.order(now), dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLane.ID(): c.end}}, now)
		if o := b.order(now.Add(c.rest - 1)); len(o.takers) != 0 || o.wait != 1 {
			t.Errorf("lane end %v: %+v before %v, want nothing to do for a moment", c.end, o, c.rest)
		}
		if o := b.order(now.Add(c.rest)); len(o.takers) != 1 {
			t.Errorf("lane end %v: %+v after %v, want a claim", c.end, o, c.rest)
		}
		if c.end == dispatch.LaneFull {
			b.ended(sqldb.ID{}, boardLane.Queue)
			if o := b.order(now); len(o.takers) != 1 {
				t.Error("a full queue is not looked into when an attempt has ended")
			}
		}
	}
}

func TestSkippedLaneRestsLongerEachTime(t *testing.T) {
	b := newBoard()
	credit(b, onBoard(b, 1, boardLane), 1)
	now := time.Now()
	for i := range 20 {
		o := b.order(now)
		if len(o.takers) != 1 {
			t.Fatalf("look %d: %+v, want a claim", i, o)
		}
		b.learn(o, dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLane.ID(): dispatch.LaneSkipped}}, now)
		wait := b.order(now).wait
		if want := min(firstSkip<<min(i, 10), longestSkip); wait != want {
			t.Fatalf("look %d: rests %v, want %v", i, wait, want)
		}
		now = now.Add(wait)
	}
}

func TestSessionOfASlowSocketGetsNothing(t *testing.T) {
	b := newBoard()
	s := onBoard(b, 100, boardLane)
	credit(b, s, 100)
	for range 4 {
		s.queue.assign(assignment{grant: &dispatch.Grant{Payload: make([]byte, 200<<10)}})
	}
	b.change(s, func(*place) {})
	if o := b.order(time.Now()); len(o.takers) != 0 {
		t.Errorf("with 800 KiB unsent: %+v, want no claim", o)
	}
	s.queue.next()
	b.change(s, func(*place) {})
	if o := b.order(time.Now()); len(o.takers) != 1 || o.takers[0].Bytes != assignRoom-600<<10 {
		t.Errorf("with 600 KiB unsent: %+v, want a claim for the rest of the room", o)
	}
}

func TestSessionThatLeftIsForgotten(t *testing.T) {
	b := newBoard()
	s := onBoard(b, 1, boardLane)
	credit(b, s, 1)
	o := b.order(time.Now())
	b.leave(s)
	b.leave(s)
	if b.give(s, assignment{grant: &dispatch.Grant{}}, time.Now()) {
		t.Error("a session that left took an assignment")
	}
	b.learn(o, dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLane.ID(): dispatch.LaneMore}}, time.Now())
	if len(b.lanes)+len(b.ready.apps)+len(b.classes)+len(b.resting)+len(b.apps)+len(b.free)+b.room.all+len(b.room.by) != 0 {
		t.Errorf("the board keeps %d lanes and %d classes of nobody", len(b.lanes), len(b.classes))
	}
}

func TestLaneThatNobodyTookIsLookedIntoWhenSomebodyIsFree(t *testing.T) {
	b := newBoard()
	s := onBoard(b, 1, boardLane)
	credit(b, s, 1)
	b.learn(b.order(time.Now()), dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLane.ID(): dispatch.LaneEmpty}}, time.Now())
	credit(b, s, 0)
	b.mu.Lock()
	s.place.class.busySince = time.Now().Add(-time.Minute) // nobody polled for it meanwhile
	b.mu.Unlock()
	credit(b, s, 1)
	if o := b.order(time.Now()); len(o.takers) != 1 {
		t.Error("what came while nobody was free is left to the next poll")
	}
}

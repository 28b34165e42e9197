package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// lanesOf makes lanes of one queue.
func lanesOf(n int, queue byte) (lanes []dispatch.Lane) {
	for i := range n {
		lanes = append(lanes, dispatch.Lane{Queue: sqldb.ID{queue}, Handler: fmt.Sprint("h", i), Version: "v"})
	}
	return lanes
}

// appOnBoard puts a free session of an application on the board.
func appOnBoard(b *board, app byte, capacity int, lanes ...dispatch.Lane) *session {
	s := &session{queue: newSendQueue(), capacity: capacity, process: sqldb.NewID()}
	s.principal.Application, s.principal.Namespace = sqldb.ID{app}, sqldb.ID{app, 1}
	b.join(s, fmt.Sprint(app, len(lanes), lanes[0].Handler), lanes, map[sqldb.ID]held{})
	credit(b, s, capacity)
	return s
}

// more is the end of a claim that found more than it took in each of its lanes.
func more(o order) dispatch.Claimed {
	got := dispatch.Claimed{Grants: make([]dispatch.Grant, 1), Lanes: map[int64]dispatch.LaneEnd{}}
	for _, l := range o.lanes {
		got.Lanes[l.ID()] = dispatch.LaneMore
	}
	return got
}

// Every lane that holds something is looked into within as many claims as its application
// has lanes for its part of a claim, however many others there are.
func TestNoLaneIsForgotten(t *testing.T) { // REF-PRI-001
	for _, c := range []struct {
		lanes []int // by application
		most  int   // claims until each lane was looked into
	}{
		{[]int{150}, 10},                 // 16 a claim
		{[]int{100, 40, 10}, 20},         // at least 5 of each a claim
		{[]int{200, 1}, 14},              // 8 of each, and what the small one leaves
		{slices.Repeat([]int{3}, 40), 8}, // one of 16 of the 40 a claim
	} {
		b := newBoard()
		want := map[int64]bool{}
		for app, n := range c.lanes {
			lanes := lanesOf(n, byte(app+1))
			appOnBoard(b, byte(app+1), 200, lanes...)
			for _, l := range lanes {
				want[l.ID()] = true
			}
		}
		claims, now := 0, time.Now()
		small := boardLaneOf(byte(len(c.lanes)))
		for ; len(want) > 0 && claims < 1000; claims++ {
			o := b.order(now)
			seen := map[int64]bool{}
			for i := range o.takers {
				for _, id := range o.takers[i].Lanes {
					seen[id] = true
				}
			}
			for _, l := range o.lanes {
				if !seen[l.ID()] {
					t.Fatalf("claim %d of %v looks into a lane for nobody", claims, c.lanes)
				}
				delete(want, l.ID())
			}
			if len(c.lanes) == 2 && !seen[small] {
				t.Errorf("claim %d of %v leaves the small application out", claims, c.lanes)
			}
			b.learn(o, more(o), now)
		}
		if claims > c.most {
			t.Errorf("%v lanes were looked into after %d claims, want at most %d", c.lanes, claims, c.most)
		}
	}
}

// boardLaneOf is the first lane of a queue.
func boardLaneOf(queue byte) int64 { return lanesOf(1, queue)[0].ID() }

// One application with many free workers does not fill a claim's takers.
func TestTakersAreChosenInTurnOverApplications(t *testing.T) { // REF-PRI-001, AMB-003
	for range 10 { // maps are in no order
		b := newBoard()
		for range 100 {
			appOnBoard(b, 1, 100, lanesOf(20, 1)...)
		}
		for range 3 {
			appOnBoard(b, 2, 4, lanesOf(1, 2)...)
		}
		o := b.order(time.Now())
		slots := map[sqldb.ID]int{}
		for _, taker := range o.takers {
			slots[taker.Namespace] += taker.Slots
		}
		if len(o.takers) > claimTakers || slots[sqldb.ID{2, 1}] != 12 || slots[sqldb.ID{1, 1}] < dispatch.MaxBatch {
			t.Fatalf("%d takers with slots %v, want all of the small application beside a batch of the other", len(o.takers), slots)
		}
	}
}

// A lane that no free session has credit for is not asked for again until one has.
func TestLaneWithoutCreditIsSetAside(t *testing.T) { // cost law 7, WRK-017
	b := newBoard()
	s := onBoard(b, 4, boardLane)
	limit := func(slots int) {
		b.change(s, func(p *place) { p.credit, p.limits, p.looser = 4, limits{{handler: "h"}: &slots}, slots > 0 })
	}
	limit(0)
	if o := b.order(time.Now()); len(o.lanes) != 0 || len(b.ready.apps) != 0 || o.wait != time.Hour {
		t.Fatalf("without credit for its handler: %+v, %d lanes to look into", o, len(b.ready.apps))
	}
	b.wake([]int64{boardLane.ID()})
	if len(b.ready.apps) != 0 || len(b.cold()) != 0 {
		t.Error("a lane that nobody takes is looked into after a wake")
	}
	limit(1)
	if o := b.order(time.Now()); len(o.lanes) != 1 || len(o.takers[0].Groups) != 1 || o.takers[0].Groups[0].Slots != 1 {
		t.Errorf("with credit for one: %+v", o)
	}
	limit(0)
	b.order(time.Now())
	other := onBoard(b, 1, boardLane)
	credit(b, other, 1)
	if o := b.order(time.Now()); len(o.lanes) != 1 || o.to[0] != other {
		t.Errorf("with another worker: %+v, want it", o)
	}
	b.order(time.Now())
	b.leave(s)
	b.leave(other)
	if len(b.lanes)+len(b.ready.apps)+len(b.classes)+len(b.apps)+len(b.free) != 0 {
		t.Error("the board keeps something of nobody")
	}
}

// What was closed or full is looked into at once after a change, also if a claim has just
// found it closed.
func TestReopenedLaneIsLookedIntoAtOnce(t *testing.T) { // LIC-017
	for _, end := range []dispatch.LaneEnd{dispatch.LaneClosed, dispatch.LaneFull} {
		b := newBoard()
		appOnBoard(b, 1, 1, lanesOf(1, 1)...)
		now := time.Now()
		closed := func(o order) dispatch.Claimed {
			return dispatch.Claimed{Lanes: map[int64]dispatch.LaneEnd{boardLaneOf(1): end}}
		}
		o := b.order(now)
		b.learn(o, closed(o), now)
		b.reopen(sqldb.ID{2}, sqldb.ID{1})
		b.reopen(sqldb.ID{1}, sqldb.ID{7})
		if o := b.order(now); len(o.lanes) != 0 {
			t.Errorf("end %v: the change of another queue opened it", end)
		}
		b.reopen(sqldb.ID{1}, sqldb.ID{1})
		if o = b.order(now); len(o.lanes) != 1 {
			t.Fatalf("end %v: %+v after its queue was changed, want a claim", end, o)
		}
		b.reopen(sqldb.ID{1}, sqldb.ID{}) // while that claim is under way
		b.learn(o, closed(o), now)
		if o := b.order(now); len(o.lanes) != 1 {
			t.Errorf("end %v: a change during a claim is lost", end)
		}
	}
}

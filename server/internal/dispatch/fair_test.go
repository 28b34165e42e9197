package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// claimFor claims for takers of several applications and counts what each got.
func claimFor(t *testing.T, n node, takers []dispatch.Taker, lanes ...dispatch.Lane) (dispatch.Claimed, []int) {
	t.Helper()
	got, err := n.Claim(t.Context(), lanes, takers)
	if err != nil {
		t.Fatalf("Claim = %v", err)
	}
	counts := make([]int, len(takers))
	for _, g := range got.Grants {
		counts[g.Taker]++
	}
	return got, counts
}

// One application has a backlog of older and more urgent tasks for forty claims; what
// another one submits is taken by the next claim all the same.
func TestFloodOfOneApplicationDoesNotDelayAnother(t *testing.T) { // REF-PRI-001, REF-PRI-002
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		other := w.Another("other")
		flood := spec{Queue: w.NewQueue("q"), Handler: "flood", Delay: -time.Hour, Priority: 9}
		second := flood
		second.Handler = "flood-too"
		w.Flood(2500, flood)
		w.Flood(1500, second)
		trickle := spec{Queue: other.NewQueue("q"), Namespace: other.Namespace, Handler: "trickle"}
		lanes := []dispatch.Lane{flood.Lane(), second.Lane(), trickle.Lane()}
		for round := range 5 {
			other.Flood(3, trickle)
			takers := []dispatch.Taker{w.Taker(60, flood.Lane()), w.Taker(60, second.Lane()), other.Taker(50, trickle.Lane())}
			got, counts := claimFor(t, n, takers, lanes...)
			if counts[2] != 3 {
				t.Fatalf("claim %d gave %v, want all 3 of the trickle", round, counts)
			}
			if counts[0]+counts[1] != dispatch.MaxBatch-3 {
				t.Errorf("claim %d gave %v, want the rest of the batch to go to the flood", round, counts)
			}
			if end := got.Lanes[flood.Lane().ID()]; end != dispatch.LaneMore {
				t.Errorf("claim %d: lane of the flood ends with %v, want more to come", round, end)
			}
		}
		// Two floods get half of a batch each, whatever their order values.
		other.Flood(500, trickle)
		takers := []dispatch.Taker{w.Taker(200, flood.Lane(), second.Lane()), other.Taker(200, trickle.Lane())}
		if _, counts := claimFor(t, n, takers, lanes...); counts[0] != 50 || counts[1] != 50 {
			t.Errorf("two floods got %v, want half of the batch each", counts)
		}
		// Nobody takes from the other: the batch is not cut.
		if _, counts := claimFor(t, n, []dispatch.Taker{w.Taker(200, flood.Lane(), second.Lane())}, lanes...); counts[0] != dispatch.MaxBatch {
			t.Errorf("alone it got %v, want a full batch", counts)
		}
		w.Exec("DELETE FROM task_event WHERE task_id IN (SELECT id FROM task WHERE state = 1)") // the invariants need not read them
		w.Exec("DELETE FROM task WHERE state = 1")
	})
}

// Large payloads of one application do not use up the bytes of a batch.
func TestBytesOfAClaimAreSharedOut(t *testing.T) { // REF-PRI-001, LIC-014
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		other := w.Another("other")
		large := spec{Queue: w.NewQueue("q"), Payload: `"` + strings.Repeat("x", 256<<10-2) + `"`, Delay: -time.Hour}
		w.Flood(20, large)
		small := spec{Queue: other.NewQueue("q"), Namespace: other.Namespace, Handler: "small"}
		other.Flood(20, small)
		takers := []dispatch.Taker{w.Taker(20, large.Lane()), other.Taker(20, small.Lane())}
		takers[0].Bytes = 16 << 20
		_, counts := claimFor(t, n, takers, large.Lane(), small.Lane())
		if counts[1] != 20 || counts[0] < 14 || counts[0] > 16 {
			t.Errorf("claim gave %v, want all small tasks beside almost 4 MiB of large ones", counts)
		}
	})
}

// Tasks whose keys are busy cost an application its own part of what a claim looks at.
func TestBusyKeysOfOneApplicationAreNotLookedAtForAnother(t *testing.T) { // KEY-011, REF-PRI-001
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		other := w.Another("other")
		q := w.NewQueue("q")
		var lanes []dispatch.Lane
		busy := spec{Queue: q, Key: "busy"}
		w.Submit(busy)
		claimOne(t, n, w.Taker(1, busy.Lane()), busy.Lane())
		for i := range 12 {
			x := spec{Queue: q, Handler: fmt.Sprint("h", i), Key: "busy", Delay: -time.Hour}
			w.Flood(60, x)
			lanes = append(lanes, x.Lane())
		}
		theirs := spec{Namespace: other.Namespace, Queue: other.NewQueue("q"), Key: "busy"}
		other.Submit(theirs)
		claimOne(t, n, other.Taker(1, theirs.Lane()), theirs.Lane())
		other.Flood(150, theirs)
		free := theirs
		free.Key = "free"
		id := other.Submit(free)
		lanes = append(lanes, theirs.Lane())
		got, _ := claimFor(t, n, []dispatch.Taker{w.Taker(100, lanes[:12]...), other.Taker(100, theirs.Lane())}, lanes...)
		if len(got.Grants) != 1 || got.Grants[0].Task != id {
			t.Errorf("claim gave %d tasks, want the free one behind 150 busy ones of its application", len(got.Grants))
		}
	})
}

// Lanes with a limit and lanes without take turns at the slots that they share.
func TestLimitedLanesAreNotAlwaysLast(t *testing.T) { // REF-PRI-001, LIC-013
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		plain, limited := spec{Queue: w.NewQueue("plain")}, spec{Queue: w.NewQueue("limited")}
		w.Exec("UPDATE queue SET max_concurrency = 50 WHERE id = ?", limited.Queue)
		lanes := []dispatch.Lane{plain.Lane(), limited.Lane()}
		w.Flood(20, plain)
		w.Flood(20, limited)
		var queues []sqldb.ID
		for range 6 {
			for _, g := range claim(t, n, w.Taker(1, lanes...), lanes...) {
				queues = append(queues, g.Queue)
			}
		}
		if len(queues) != 6 || !slices.Contains(queues[1:], plain.Queue) || !slices.Contains(queues[1:], limited.Queue) {
			t.Errorf("six claims took from %v, want each queue among them", queues)
		}
	})
}

// What a worker says of its lanes holds beside the number of its slots (WRK-017).
func TestClaimKeepsToTheGroupsOfATaker(t *testing.T) { // WRK-017
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q, r := w.NewQueue("q"), w.NewQueue("r")
		aq, ar, bq := spec{Queue: q, Handler: "a"}, spec{Queue: r, Handler: "a"}, spec{Queue: q, Handler: "b"}
		for _, x := range []spec{aq, ar, bq} {
			w.Flood(20, x)
		}
		lanes := []dispatch.Lane{aq.Lane(), ar.Lane(), bq.Lane()}
		bound := w.Taker(10, lanes...)
		bound.Groups = []dispatch.Group{
			{Lanes: []int64{aq.Lane().ID(), ar.Lane().ID()}, Slots: 3}, // a handler
			{Lanes: []int64{aq.Lane().ID(), bq.Lane().ID()}, Slots: 5}, // a queue
		}
		takers := []dispatch.Taker{bound, w.Taker(4, ar.Lane())}
		got, counts := claimFor(t, n, takers, lanes...)
		of := map[dispatch.Lane]int{}
		for _, g := range got.Grants {
			if g.Taker == 0 {
				of[dispatch.Lane{Queue: g.Queue, Handler: g.Handler, Version: g.HandlerVersion}]++
			}
		}
		a, inQ := of[aq.Lane()]+of[ar.Lane()], of[aq.Lane()]+of[bq.Lane()]
		if a != 3 || inQ != 5 || counts[1] != 4 {
			t.Errorf("bound taker got %v, the other %d; want 3 of the handler, 5 of the queue, and 4", of, counts[1])
		}
	})
}

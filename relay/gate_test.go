package relay

import (
	"testing"
	"time"
)

// Once a gate has closed nothing boards any more, and an outage that several requests
// meet closes it once (REL-008, REL-014, AMB-040).
func TestAClosedGateLetsNothingBoardAndOneOutageCountsOnce(t *testing.T) {
	g := newGate(Target{Name: "a"}, Config{}.withDefaults(), func() {})
	if _, ok := g.board(true); ok {
		t.Fatal("boarded before any probe")
	}
	g.state = gateOpen
	first, ok := g.board(false)
	second, alsoOK := g.board(false)
	if !ok || !alsoOK {
		t.Fatal("an open gate let nobody board")
	}
	g.unreachable(first, 0, "connection refused")
	if _, ok := g.board(false); ok || g.state != gatePaused {
		t.Fatalf("boarded a gate that is %v", g.state)
	}
	round, until := g.round, g.until
	time.Sleep(time.Millisecond)
	g.unreachable(second, 0, "connection refused")
	if g.round != round || !g.until.Equal(until) {
		t.Fatalf("the same outage closed the gate again: round %d, then %d", round, g.round)
	}
	g.state = gateTrial
	if _, ok := g.board(false); ok {
		t.Fatal("a row that is not on trial boarded a gate on trial")
	}
	if _, ok := g.board(true); !ok {
		t.Fatal("the row on trial was left behind")
	}
}

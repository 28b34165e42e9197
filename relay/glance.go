package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

const (
	// glanceRows is how many rows a glance reads at most.
	glanceRows = 100
	// glanceFor is how long glances may stand in for a look at all lanes while they find
	// rows: a row of another lane may have come at the same time.
	glanceFor = 50 * time.Millisecond
	// forgetLane is how long a lane without rows stays familiar.
	forgetLane = time.Minute
)

// A familiarLane is one that had rows lately: the next ones are likely to be of it.
type familiarLane struct {
	outbox.Lane
	seen time.Time
}

// acquaint remembers the lanes that have rows now.
func (r *reader) acquaint() {
	for _, lane := range r.lanes {
		r.familiar[lane.ID] = familiarLane{Lane: lane, seen: r.listed}
	}
	for id, lane := range r.familiar {
		if r.listed.Sub(lane.seen) > forgetLane {
			delete(r.familiar, id)
		}
	}
}

// glance reads the first rows of the familiar lanes in a single statement, so that rows are
// on their way one round trip after the wake-up for them. It reports whether it found some,
// and whether it may be taken for a look at all lanes: a row of a lane that is not familiar,
// a large one, and one behind many others are found by that alone. So is a failure of the
// database.
func (r *reader) glance() (found, all bool) {
	lanes := r.openLanes()
	if len(lanes) == 0 || len(lanes) > manyLanes || r.flight.open() > fewOpen {
		return false, false
	}
	ctx, cancel := context.WithTimeout(r.stop, statementTimeout)
	defer cancel()
	if r.holdsAreOlder(obeyWithin) {
		if r.readHolds(ctx) != nil {
			return false, false
		}
		lanes = r.openLanes()
	}
	if len(lanes) == 0 {
		return false, false
	}
	ready, err := r.store.ReadFirst(ctx, r.term.now().Shard, lanes, glanceRows, r.smallBytes())
	if err != nil {
		return false, false
	}
	chosen, left := r.chooseAtAGlance(ready)
	if err := r.fetch(ctx, chosen); err != nil {
		return false, false
	}
	found = len(chosen) > 0
	return found, found && !left && len(ready) < glanceRows && time.Since(r.listed) < glanceFor
}

// openLanes returns the familiar lanes of which any row may be sent now.
func (r *reader) openLanes() (lanes []int64) {
	for id, lane := range r.familiar {
		p := r.pipeOf(lane.Target)
		if p == nil || r.onHold(lane.Target, lane.QueueID) || !p.vacant() {
			continue
		}
		atGate, _ := p.gate.room()
		atLane, _ := r.lead.lanes.room(id)
		if atGate == roomAll && atLane == roomAll {
			lanes = append(lanes, id)
		}
	}
	return lanes
}

// chooseAtAGlance reserves room for new rows, and reports whether it has left some.
func (r *reader) chooseAtAGlance(ready []outbox.Ready) (chosen []picked, left bool) {
	read := time.Now()
	for _, d := range ready {
		p := r.pipes[r.familiar[d.Lane].Target]
		switch {
		case r.flight.has(d.Seq):
		case d.Row == nil, p.gate.shuns(d.Seq), !p.reserve(d.Size):
			left = true
		default:
			chosen = append(chosen, picked{Ready: d, read: read, pipe: p})
		}
	}
	return chosen, left
}

package relay

import (
	"context"
	"errors"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// A Left is work that Drain had to leave.
type Left struct {
	Shard   int    `json:"shard"`
	Target  string `json:"target,omitempty"`
	QueueID string `json:"queue_id,omitempty"`
	Reason  string `json:"reason"`
}

// Drain sends what is due, settles it and returns. It waits for a shard whose leader
// does not renew its lease, and leaves one that is led to its leader. What is left, and
// why, is in the result; rows with an unknown outcome are due again later and count in
// Stats. The error is nil, ctx's, the database's, or wraps ErrLeftToLease or
// outbox.ErrLeaseLost.
func (r *Relay) Drain(ctx context.Context) ([]Left, error) {
	if !r.running.CompareAndSwap(false, true) {
		return nil, errors.New("relay: is running already")
	}
	defer r.running.Store(false)
	stopProbes := r.startProbes(ctx)
	defer stopProbes()
	shards, err := r.shards(ctx)
	if err != nil {
		return nil, err
	}
	var left []Left
	for _, shard := range shards {
		some, err := r.drainShard(ctx, shard)
		left = append(left, some...)
		if err != nil {
			return left, err
		}
	}
	return left, ctx.Err()
}

func (r *Relay) drainShard(ctx context.Context, shard int) ([]Left, error) {
	lease, err := r.awaitLead(ctx, shard)
	if errors.Is(err, outbox.ErrLeaseHeld) {
		return []Left{{Shard: shard, Reason: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	l := r.begin(lease, true)
	defer r.end(shard)
	err = l.run(ctx)
	return l.left, err
}

// awaitLead waits for the end of a lease that is not renewed, which is that of a relay
// that died.
func (r *Relay) awaitLead(ctx context.Context, shard int) (outbox.Lease, error) {
	var before time.Duration
	for first := true; ; first = false {
		lease, err := r.tryLead(ctx, shard)
		var held *outbox.LeaseHeldError
		if !errors.As(err, &held) {
			return lease, err
		}
		if !first && held.Left > before {
			return lease, err // renewed meanwhile
		}
		before = held.Left
		select {
		case <-ctx.Done():
			return lease, ctx.Err()
		case <-time.After(min(held.Left+time.Millisecond, standBy)):
		}
	}
}

// drained reports whether nothing is left that can be sent now, and notes what is left
// all the same.
func (r *reader) drained() bool {
	if r.blocked || len(r.damaged) > 0 || r.flight.open() > 0 || r.rewind.Load() {
		return false
	}
	var left []Left
	for _, lane := range r.lanes {
		if lane.Wait > 0 {
			continue
		}
		reason, final := r.reason(lane)
		if !final {
			return false
		}
		if reason != "" {
			left = append(left, Left{Shard: r.term.now().Shard, Target: lane.Target, QueueID: lane.QueueID, Reason: reason})
		}
	}
	r.left = left
	return true
}

// reason tells why due rows of a lane are not sent, and whether that will not change
// soon.
func (r *reader) reason(lane outbox.Lane) (string, bool) {
	g := r.relay.gates[lane.Target]
	switch {
	case g == nil:
		return "no credential for this target", true
	case r.onHold(lane.Target, lane.QueueID):
		return "held by an operator", true
	}
	if s, why := g.standing(); s != gateOpen {
		return why, s != gateTrial && g.wasProbed()
	}
	if room, _ := r.lead.lanes.room(lane.ID); room == roomNone {
		return "queue is full", true
	}
	return "", r.ended[lane.ID]
}

package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// A fairShare spreads shards over the relays that attend. With one shard there is nothing to
// spread and nothing is written.
type fairShare struct {
	relay      *Relay
	attendance outbox.Attendance
	share      outbox.Share
	attended   time.Time // zero before the first time
	down       outage
}

func newFairShare(r *Relay) *fairShare {
	return &fairShare{relay: r, attendance: outbox.NewAttendance(r.cfg.Name)}
}

// every is how often a relay shows that it is there.
func (f *fairShare) every() time.Duration { return f.relay.cfg.Lease * 3 / 10 }

// most returns how many of the shards this relay is to lead. If it cannot be known, there is
// no bound: a shard that two relays want goes to one of them all the same.
func (f *fairShare) most(ctx context.Context, shards int) int {
	if shards < 2 {
		return shards
	}
	if time.Since(f.attended) >= f.every() {
		ctx, cancel := context.WithTimeout(ctx, min(statementTimeout, f.every()))
		defer cancel()
		share, err := f.relay.store.Attend(ctx, f.attendance, f.relay.cfg.Lease)
		if ctx.Err() == nil || err == nil {
			f.down.report(f.relay.cfg.Log, "share shards with other relays", err)
		}
		if err != nil {
			return shards
		}
		f.share, f.attended = share, time.Now()
	}
	return f.share.Of(shards)
}

// leave tells the others that this relay has gone.
func (f *fairShare) leave(ctx context.Context) {
	if f.attended.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := f.relay.store.Leave(ctx, f.attendance); err != nil {
		f.relay.cfg.Log.Warn("database fails", "act", "leave the other relays", "err", err)
	}
}

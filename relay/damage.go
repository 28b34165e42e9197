package relay

import (
	"context"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

// maxFirst is how many damaged rows one look at the lanes reads: each may be large.
const maxFirst = 8

// blockFirst blocks damaged rows that lanes begin with. Nobody can tell the target of such a
// lane, so it has to wait for the next look at the lanes, which sees the row behind. It
// reports whether it has found some.
func (r *reader) blockFirst(ctx context.Context) (found bool, err error) {
	damage := map[int64]outbox.Lane{}
	var seqs []int64
	for _, lane := range r.damaged {
		if len(seqs) < maxFirst && !r.flight.has(lane.First) {
			damage[lane.First], seqs = lane, append(seqs, lane.First)
		}
	}
	rows, err := r.store.Fetch(ctx, seqs)
	if err != nil {
		return false, err
	}
	lease, now := r.term.now(), time.Now()
	for _, row := range rows {
		lane := damage[row.Seq]
		row.Damage = lane.Damage
		e := &entry{row: row, read: now}
		e.suspect = lease.TookOver && row.DueAt.Before(lease.Since)
		r.flight.add(row.Seq)
		r.blockDamaged("", e)
	}
	return len(rows) > 0, nil
}

package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// GateUnclaimed is the Gate of a target for which the leader has no credential.
const GateUnclaimed = "unclaimed"

// A TargetReport is how the leader of a shard finds a target. Leaders write it down for
// whoever asks for the status with nothing but the database at hand.
type TargetReport struct {
	Shard  int
	Target string
	// Gate is "open", "trial" (one row tries whether more may follow), "held" (for a
	// time that the server asked for), "paused" (until a probe finds the right server)
	// or GateUnclaimed.
	Gate      string
	Error     string // the last one of the target as a whole, at most 1024 bytes
	Accepted  int64  // rows of this shard accepted in this lead
	PerMinute int64  // rows accepted a minute, of late
	At        time.Time

	epoch int64
}

const (
	insertTarget = `
INSERT INTO orbit_outbox_target (shard, target, epoch, gate, error, accepted, per_minute, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, %s)`

	readTargets = `
SELECT t.shard, t.target, t.epoch, t.gate, t.error, t.accepted, t.per_minute, t.updated_at
FROM orbit_outbox_target t
ORDER BY t.shard, t.target
LIMIT ?`

	// maxTargets bounds what a status reads.
	maxTargets = 10_000
)

// ReportTarget writes down how the leader finds a target. It is a note for people: it is
// not fenced, and who reads it leaves out those of earlier leaders.
func (s *Store) ReportTarget(ctx context.Context, l Lease, r TargetReport) error {
	if err := ValidateTarget(r.Target); err != nil {
		return fmt.Errorf("outbox: report target: %w", err)
	}
	upsert := fmt.Sprintf(insertTarget, s.dialect.Clock) +
		s.dialect.OnConflict([]string{"shard", "target"}, "epoch", "gate", "error", "accepted", "per_minute", "updated_at")
	_, err := s.db.Write().ExecContext(ctx, upsert, l.Shard, []byte(r.Target), l.Epoch, cut(r.Gate, 16), cut(r.Error, maxMessage), r.Accepted, r.PerMinute)
	if err != nil {
		return failed(s.dialect, "report target", err)
	}
	return nil
}

// targets returns the reports of those who lead now.
func (s *Store) targets(ctx context.Context, leaders []LeaderOfShard) ([]TargetReport, error) {
	leads := map[int]int64{}
	for _, l := range leaders {
		if l.Left > 0 {
			leads[l.Shard] = l.Epoch
		}
	}
	all, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (r TargetReport, err error) {
		var target, gate, why []byte
		var at int64
		err = rows.Scan(&r.Shard, &target, &r.epoch, &gate, &why, &r.Accepted, &r.PerMinute, &at)
		r.Target, r.Gate, r.Error, r.At = string(target), string(gate), string(why), sqldb.Time(at)
		return r, err
	}, readTargets, maxTargets)
	current := all[:0]
	for _, r := range all {
		if epoch, led := leads[r.Shard]; led && epoch == r.epoch {
			current = append(current, r)
		}
	}
	return current, err
}

package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Fault is a rule that a stored row breaks: the database was changed by somebody else,
// damaged, or restored in part.
type Fault struct {
	Seq  int64  // the row; 0 for a lease
	Rule string // what does not hold, without any content of the row
}

// Verified tells what one call of Verify has seen.
type Verified struct {
	Rows   int
	Next   int64 // where the next call goes on; zero at the end
	Faults []Fault
}

const verifyRows = `
FROM orbit_outbox r
WHERE r.seq > ?
ORDER BY r.seq
LIMIT ?`

// Verify holds at most limit rows (1 to 1000) that come after the given seq against all
// that must be true of a row: identity, bytes, digests, lane, and what its state says of
// its delivery. The first call looks at the leases too. It changes nothing, holds one row
// in memory at a time, and may run beside a relay. To verify all, call it with Next until
// that is zero (OUT-008).
func (s *Store) Verify(ctx context.Context, after int64, limit int) (v Verified, err error) {
	if limit < 1 || limit > MaxRows {
		return v, fmt.Errorf("outbox: verify %d rows: must be 1 to %d", limit, MaxRows)
	}
	if after == 0 {
		if v.Faults, err = s.verifyLeases(ctx); err != nil {
			return v, failed(s.dialect, "verify leases", err)
		}
	}
	query := selectRow + s.dialect.Clock + selectRest + verifyRows
	last := int64(0)
	reader := newRowReader()
	_, err = readAll(ctx, s.db.Read(), func(rows *sql.Rows) (none struct{}, err error) {
		faults, seq, err := reader.verify(rows)
		v.Rows, last = v.Rows+1, seq
		v.Faults = append(v.Faults, faults...)
		return none, err
	}, query, after, limit)
	if err == nil {
		err = s.verifyDiscarded(ctx, after, last, &v)
	}
	if err != nil {
		return v, failed(s.dialect, "verify rows", err)
	}
	if v.Rows == limit {
		v.Next = last
	}
	return v, nil
}

func (w *rowReader) verify(rows *sql.Rows) (faults []Fault, seq int64, err error) {
	r, err := w.whole(rows)
	if err != nil {
		return nil, 0, err
	}
	report := func(broken bool, rule string) {
		if broken {
			faults = append(faults, Fault{Seq: r.Seq, Rule: rule})
		}
	}
	report(w.damage != "", w.damage)
	report(w.flaw != "", w.flaw)
	if len(faults) > 0 {
		return faults, r.Seq, nil // the other rules would only say so again
	}
	report(!w.identityFits(), identityRule)
	report(!w.laneFits(&r), laneRule)
	report(!r.requestIntact(), "request does not match its SHA-256 and size")
	report(ValidateTarget(r.Target) != nil, "target is no target name")
	if r.Operation == OperationSubmit && r.Algorithm == orbit.DigestAlgorithm {
		sub, err := orbit.ParseSubmission(r.Request)
		report(err != nil, "request is none that a server could accept")
		report(err == nil && sub.Digest != r.Digest, "content digest is not that of the request")
		report(err == nil && (sub.Request.QueueID != r.QueueID || sub.Request.Handler != r.Handler), "queue or handler is not that of the request")
	}
	report(r.Operation != OperationSubmit && r.Operation != OperationCancel, "operation is none")
	if r.Operation == OperationCancel {
		verifyCancel(&r, report)
	}
	verifyDelivery(&r, report)
	return faults, r.Seq, nil
}

// verifyDelivery holds what a row shows of its delivery against its state.
func verifyDelivery(r *Row, report func(broken bool, rule string)) {
	report(r.State < Pending || r.State > Discarded, "state is none")
	report((r.State == Pending) != r.SettledAt.IsZero(), "time of settling does not fit the state")
	report((r.State == Pending) == r.DueAt.IsZero(), "due time does not fit the state")
	report((r.State == Delivered) != (r.TaskID != ""), "task does not fit the state")
	report((r.State == Delivered) != (r.Last.Outcome == OutcomeAccepted), "outcome does not fit the state")
	switch r.State {
	case Delivered:
		report(r.Last.Unknown, "DELIVERED with a mark of an unknown send")
		report(r.Attempts < 1, "DELIVERED without a send")
	case Rejected:
		report(r.Last.Unknown, "REJECTED with a mark of an unknown send")
		report(r.Last.Outcome != OutcomeRefused && r.Last.Outcome != OutcomeConflict, "REJECTED without a refusal")
	case Blocked:
		report(r.Last.Outcome == OutcomeNone, "BLOCKED without a reason")
	}
	report(r.Last.Outcome == OutcomeUnknown && !r.Last.Unknown, "unknown outcome without its mark")
	report(r.Last.Outcome == OutcomeMismatch && !r.Last.Unknown, "accepted as something else without the mark of an unknown send")
}

const (
	readUnaudited = `
SELECT seq
FROM orbit_outbox%s
WHERE state = 5 AND seq > ? AND seq <= ?
  AND NOT EXISTS (SELECT 1 FROM orbit_outbox_journal WHERE row_seq = orbit_outbox.seq AND action = ?)`

	readLeases = `
SELECT shard, holder, epoch, expires_at
FROM orbit_outbox_lease`
)

// verifyDiscarded looks for rows that were closed without an audit row.
func (s *Store) verifyDiscarded(ctx context.Context, after, last int64, v *Verified) error {
	seqs, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (seq int64, err error) {
		return seq, rows.Scan(&seq)
	}, fmt.Sprintf(readUnaudited, s.byPrimary), after, last, []byte("discard"))
	for _, seq := range seqs {
		v.Faults = append(v.Faults, Fault{Seq: seq, Rule: "DISCARDED without an audit row"})
	}
	return err
}

func (s *Store) verifyLeases(ctx context.Context) (faults []Fault, err error) {
	_, err = readAll(ctx, s.db.Read(), func(rows *sql.Rows) (none struct{}, err error) {
		var shard, epoch, expires int64
		var holder sqldb.ID
		if err := rows.Scan(&shard, &holder, &epoch, &expires); err != nil {
			return none, err
		}
		if shard < 0 || shard >= MaxShards || epoch < 1 {
			faults = append(faults, Fault{Rule: fmt.Sprintf("lease of shard %d: shard or epoch is out of range", shard)})
		}
		if holder.IsZero() && expires != 0 {
			faults = append(faults, Fault{Rule: fmt.Sprintf("lease of shard %d: in force without a holder", shard)})
		}
		return none, nil
	}, readLeases)
	return faults, err
}

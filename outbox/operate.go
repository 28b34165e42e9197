package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// RetentionMargin is how long before the server's promise to know a key ends a row is
// no longer sent (OUT-014).
const RetentionMargin = 24 * time.Hour

// SendWindow is how long after WindowFrom a row may be sent.
const SendWindow = orbit.IdempotencyRetention - RetentionMargin

// Bounds of an operator's words, in bytes.
const (
	maxOperator = 128
	maxReason   = 1024
)

// An Act says who does something by hand, and why. Both are kept in the journal.
type Act struct {
	Operator string // 1-128 bytes
	Reason   string // 1-1024 bytes
	// DryRun tells whether the act would be done, by doing it all and rolling it back:
	// the error is the same, and nothing is changed.
	DryRun bool
}

// A Risk is what an operator takes on with a requeue. They are added up.
type Risk uint8

const (
	// DuplicateRisk requeues a row whose key the server may no longer know: a second
	// task may come of it. It opens a new window from now (OUT-014).
	DuplicateRisk Risk = 1 << iota
	// LateRisk requeues a row whose latest time to send has passed: a task may begin
	// later than the business wanted. It is how an unknown outcome of such a row gets
	// known (OUT-016).
	LateRisk
)

func (a Act) validate() error {
	if len(a.Operator) < 1 || len(a.Operator) > maxOperator {
		return fmt.Errorf("outbox: operator has %d bytes, must have 1 to %d", len(a.Operator), maxOperator)
	}
	if len(a.Reason) < 1 || len(a.Reason) > maxReason {
		return fmt.Errorf("outbox: reason has %d bytes, must have 1 to %d", len(a.Reason), maxReason)
	}
	return nil
}

const requeueRow = `
UPDATE orbit_outbox
SET state = 1, due_at = %[1]s, settled_at = 0,
  window_from = CASE WHEN ? = 1 THEN %[1]s ELSE window_from END,
  late_allowed = CASE WHEN ? = 1 THEN 1 ELSE late_allowed END
WHERE seq = ? AND state = 4`

// Requeue makes a Blocked row Pending and due at once, with the same key and the same
// bytes, and writes an audit row. A row whose key the server may no longer know is
// refused with ErrTooOld, one whose latest time to send has passed with ErrTooLate,
// unless the risk is taken on. Other states give ErrState (OUT-012, OUT-014).
func (s *Store) Requeue(ctx context.Context, seq int64, act Act, risks Risk) error {
	return s.RequeueRows(ctx, []int64{seq}, act, risks)
}

// RequeueRows is Requeue for 1 to 1000 rows, in one transaction: all are requeued or none,
// and the error tells of the first that cannot be. A row that is named twice is refused with
// an [*orbit.InvalidArgumentError].
func (s *Store) RequeueRows(ctx context.Context, seqs []int64, act Act, risks Risk) error {
	return s.operate(ctx, seqs, "requeue", act, Pending, func(tx *sql.Tx, seq int64, r *situation) error {
		late := r.notAfter != 0 && r.notAfter <= r.now && !r.lateAllowed
		age := micros(r.now - r.window)
		switch {
		case r.state != Blocked:
			return fmt.Errorf("%w: row %d is %v, only BLOCKED can be requeued", ErrState, seq, r.state)
		case late && risks&LateRisk == 0:
			return fmt.Errorf("%w: row %d was not to be sent after %v; requeue it with the risk of a late task accepted", ErrTooLate, seq, sqldb.Time(r.notAfter))
		case age >= SendWindow && risks&DuplicateRisk == 0:
			return fmt.Errorf("%w: row %d waits for %v; requeue it with the duplicate risk accepted", ErrTooOld, seq, age.Round(time.Second))
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf(requeueRow, s.dialect.Clock), flag(risks&DuplicateRisk != 0), flag(late), seq)
		return err
	})
}

const discardRow = `
UPDATE orbit_outbox
SET state = 5
WHERE seq = ? AND state IN (3, 4) AND outcome_unknown = 0`

// Discard closes a Rejected or Blocked row for good, and writes an audit row. Other
// states give ErrState. A row of which a send ended unknown is refused with
// ErrUnknownOutcome: nobody can promise that no task exists.
func (s *Store) Discard(ctx context.Context, seq int64, act Act) error {
	return s.DiscardRows(ctx, []int64{seq}, act)
}

// DiscardRows is Discard for 1 to 1000 rows, in one transaction, by the rules of RequeueRows.
func (s *Store) DiscardRows(ctx context.Context, seqs []int64, act Act) error {
	return s.operate(ctx, seqs, "discard", act, Discarded, func(tx *sql.Tx, seq int64, r *situation) error {
		switch {
		case r.state != Rejected && r.state != Blocked:
			return fmt.Errorf("%w: row %d is %v, only REJECTED and BLOCKED can be discarded", ErrState, seq, r.state)
		case r.unknown:
			return fmt.Errorf("%w: row %d can only be requeued", ErrUnknownOutcome, seq)
		}
		_, err := tx.ExecContext(ctx, discardRow, seq)
		return err
	})
}

// situation is what an operator's act is judged by.
type situation struct {
	state       State
	unknown     bool
	lateAllowed bool
	window, now int64
	notAfter    int64 // 0 for none
}

// errDryRun ends the transaction of an act that is only tried.
var errDryRun = errors.New("outbox: dry run")

const (
	readSituation = `
SELECT state, outcome_unknown, late_allowed, window_from, not_after, `

	readSituationFrom = `
FROM orbit_outbox
WHERE seq = ?`

	journalAct = `
INSERT INTO orbit_outbox_journal
  (row_seq, action, operator, reason, state_before, state_after, outcome, outcome_unknown,
   answer_status, answer_code, answer_message, answer_digest, answer_request_id, created_at)
SELECT seq, ?, ?, ?, state, ?, outcome, outcome_unknown,
   answer_status, answer_code, answer_message, answer_digest, answer_request_id, %s
FROM orbit_outbox
WHERE seq = ?`
)

// operate runs one act on rows, each with its line in the journal, in one transaction.
func (s *Store) operate(ctx context.Context, seqs []int64, name string, act Act, after State, f func(*sql.Tx, int64, *situation) error) error {
	if err := act.validate(); err != nil {
		return err
	}
	ordered, err := eachOnce(seqs)
	if err != nil {
		return err
	}
	return s.act(ctx, name+" rows", act, func(tx *sql.Tx) error {
		for _, seq := range ordered {
			r, err := s.readSituation(ctx, tx, seq)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, fmt.Sprintf(journalAct, s.dialect.Clock),
				[]byte(name), []byte(act.Operator), []byte(act.Reason), int64(after), seq); err != nil {
				return err
			}
			if err := f(tx, seq, &r); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachOnce returns rows in ascending order, in which two acts lock what they share.
func eachOnce(seqs []int64) ([]int64, error) {
	if len(seqs) < 1 || len(seqs) > MaxRows {
		return nil, &orbit.InvalidArgumentError{Field: "rows", Rule: fmt.Sprintf("must be 1 to %d", MaxRows)}
	}
	ordered := slices.Sorted(slices.Values(seqs))
	for i, seq := range ordered[1:] {
		if seq == ordered[i] {
			return nil, &orbit.InvalidArgumentError{Field: "rows", Rule: fmt.Sprintf("must name each row once, %d is named twice", seq)}
		}
	}
	return ordered, nil
}

// readSituation locks a row. The plain read comes first: a locking read of a row that may
// be missing would lock the gap.
func (s *Store) readSituation(ctx context.Context, tx *sql.Tx, seq int64) (r situation, err error) {
	query := readSituation + s.dialect.Clock + readSituationFrom
	for _, lock := range []string{"", s.dialect.ForUpdate} {
		var state, unknown, late, window, notAfter, now integer
		err := tx.QueryRowContext(ctx, query+lock, seq).Scan(&state, &unknown, &late, &window, &notAfter, &now)
		r = situation{stateOf(state), unknown != 0, late == 1, int64(window), int64(now), int64(notAfter)}
		if errors.Is(err, sql.ErrNoRows) {
			return r, fmt.Errorf("%w: %d", ErrNotFound, seq)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// act runs f in a transaction, which a dry run rolls back.
func (s *Store) act(ctx context.Context, name string, act Act, f func(*sql.Tx) error) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if err := f(tx); err != nil || !act.DryRun {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	for _, own := range []error{ErrNotFound, ErrState, ErrTooOld, ErrTooLate, ErrUnknownOutcome, ErrNoHold} {
		if errors.Is(err, own) {
			return err
		}
	}
	if err != nil {
		return failed(s.dialect, name, err)
	}
	return nil
}

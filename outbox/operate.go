package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
}

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
  window_from = CASE WHEN ? = 1 THEN %[1]s ELSE window_from END
WHERE seq = ? AND state = 4`

// Requeue makes a Blocked row Pending and due at once, with the same key and the same
// bytes. A row whose key the server may no longer know is refused with ErrTooOld
// unless acceptDuplicateRisk is set: that opens a new window from now, and a second
// task may come of it. Other states give ErrState, and so does a row whose latest send
// time has passed.
func (s *Store) Requeue(ctx context.Context, seq int64, act Act, acceptDuplicateRisk bool) error {
	return s.operate(ctx, seq, "requeue", act, Pending, func(tx *sql.Tx, r *situation) error {
		if r.state != Blocked {
			return fmt.Errorf("%w: row %d is %v, only BLOCKED can be requeued", ErrState, seq, r.state)
		}
		if r.notAfter.Valid && r.notAfter.Int64 <= r.now {
			return fmt.Errorf("%w: row %d was not to be sent after %v; discard it", ErrState, seq, sqldb.Time(r.notAfter.Int64))
		}
		if age := micros(r.now - r.window); age >= SendWindow && !acceptDuplicateRisk {
			return fmt.Errorf("%w: row %d waits for %v; requeue it with the duplicate risk accepted, or discard it", ErrTooOld, seq, age.Round(time.Second))
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf(requeueRow, s.dialect.Clock), flag(acceptDuplicateRisk), seq)
		return err
	})
}

const discardRow = `
UPDATE orbit_outbox
SET state = 5
WHERE seq = ? AND state IN (3, 4)`

// Discard closes a Rejected or Blocked row for good. Other states give ErrState.
func (s *Store) Discard(ctx context.Context, seq int64, act Act) error {
	return s.operate(ctx, seq, "discard", act, Discarded, func(tx *sql.Tx, r *situation) error {
		if r.state != Rejected && r.state != Blocked {
			return fmt.Errorf("%w: row %d is %v, only REJECTED and BLOCKED can be discarded", ErrState, seq, r.state)
		}
		_, err := tx.ExecContext(ctx, discardRow, seq)
		return err
	})
}

// situation is what an operator's act is judged by.
type situation struct {
	state       State
	window, now int64
	notAfter    sql.NullInt64
}

const (
	readSituation = `
SELECT state, window_from, not_after, `

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

// operate runs one act on one row, with its line in the journal.
func (s *Store) operate(ctx context.Context, seq int64, name string, act Act, after State, f func(*sql.Tx, *situation) error) error {
	if err := act.validate(); err != nil {
		return err
	}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var r situation
		query := readSituation + s.dialect.Clock + readSituationFrom
		// The plain read comes first: a locking read of a row that may be missing
		// would lock the gap.
		for _, lock := range []string{"", s.dialect.ForUpdate} {
			err := tx.QueryRowContext(ctx, query+lock, seq).Scan(&r.state, &r.window, &r.notAfter, &r.now)
			if errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("%w: %d", ErrNotFound, seq)
			}
			if err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(journalAct, s.dialect.Clock),
			[]byte(name), []byte(act.Operator), []byte(act.Reason), int64(after), seq); err != nil {
			return err
		}
		return f(tx, &r)
	})
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrState) || errors.Is(err, ErrTooOld) {
		return err
	}
	return failed(s.dialect, name+" row", err)
}

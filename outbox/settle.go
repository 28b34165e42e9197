package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Delivery is the exact answer that a row was accepted.
type Delivery struct {
	Seq          int64
	TaskID       string // 32 hexadecimal characters
	Deduplicated bool   // an earlier send had been accepted
	Status       int    // 200 or 201
	RequestID    string // 32 hexadecimal characters
	AcceptedAt   time.Time
}

// epochIs lets a statement change the rows of a shard only while the epoch of its lease
// is that of the caller. The lock makes it wait for a change of leader that is under
// way, and a change of leader wait for it.
const epochIs = `
  AND shard = ? AND (SELECT epoch FROM orbit_outbox_lease WHERE shard = ?%s) = ?`

const postponeRows = `
SET due_at = %s + ?, attempts = attempts + 1,
  outcome = ?, outcome_unknown = CASE WHEN ? = 1 THEN 1 ELSE outcome_unknown END,
  answer_status = ?, answer_code = ?, answer_message = ?, answer_digest = ?, answer_request_id = ?
WHERE seq IN %s AND state = 1`

// Postpone makes rows due again after delay and counts an attempt. It returns how many
// were changed; the others are no longer Pending. With ErrLeaseLost the caller no
// longer leads the shard. At most 1000 rows.
func (s *Store) Postpone(ctx context.Context, l Lease, seqs []int64, delay time.Duration, a Answer) (int, error) {
	args, err := a.args([]any{max(delay, 0).Microseconds(), int64(a.Outcome), flag(a.Unknown)})
	if err != nil {
		return 0, err
	}
	return s.settle(ctx, l, "postpone rows", postponeRows, seqs, args, noteOf(&a))
}

const doubtRows = `
SET outcome = ?, outcome_unknown = 1,
  answer_status = ?, answer_code = ?, answer_message = ?, answer_digest = ?, answer_request_id = ?
WHERE seq IN %[2]s AND state = 1`

// Doubt marks rows, since an answer has come that does not prove who gave it: what was sent
// may have been accepted all the same (OUT-013). It is about the way to the platform and not
// about the rows, so they stay due and no attempt is counted (REL-014). a.Outcome is taken for
// [OutcomeUnknown]. The results are those of Postpone.
func (s *Store) Doubt(ctx context.Context, l Lease, seqs []int64, a Answer) (int, error) {
	a.Outcome, a.Unknown = OutcomeUnknown, true
	args, err := a.args([]any{int64(a.Outcome)})
	if err != nil {
		return 0, err
	}
	return s.settle(ctx, l, "mark rows", doubtRows, seqs, args, note{answer: &a, slot: doubtSlot})
}

// closeRows takes the state to write for rows with and without the mark of an unknown
// outcome. MySQL assigns from left to right, so the mark comes after what reads it.
const closeRows = `
SET state = CASE WHEN outcome_unknown = 1 THEN ? ELSE ? END, due_at = 0, settled_at = %s,
  attempts = attempts + ?, outcome = ?, outcome_unknown = CASE WHEN outcome_unknown = 1 THEN ? ELSE ? END,
  answer_status = ?, answer_code = ?, answer_message = ?, answer_digest = ?, answer_request_id = ?
WHERE seq IN %s AND state = 1`

// Reject closes rows that the platform refused for good. A refusal answers only for
// its own send: with a.Unknown, or if the row has the mark of an unknown send, the row
// becomes Blocked and keeps the mark. Only [OutcomeConflict] answers for earlier sends
// too. The results are those of Postpone.
func (s *Store) Reject(ctx context.Context, l Lease, seqs []int64, a Answer) (int, error) {
	marked, unmarked, keep := Blocked, Rejected, 1
	switch {
	case a.Outcome == OutcomeConflict:
		marked, keep, a.Unknown = Rejected, 0, false
	case a.Unknown:
		unmarked = Blocked
	}
	return s.close(ctx, l, "reject rows", seqs, marked, unmarked, keep, a)
}

// Block hands rows to an operator, with their mark of an unknown send. [OutcomeMismatch]
// always marks: a task exists, and nobody knows whether it is the row's. The results are
// those of Postpone.
func (s *Store) Block(ctx context.Context, l Lease, seqs []int64, a Answer) (int, error) {
	a.Unknown = a.Unknown || a.Outcome == OutcomeMismatch
	return s.close(ctx, l, "block rows", seqs, Blocked, Blocked, 1, a)
}

func (s *Store) close(ctx context.Context, l Lease, act string, seqs []int64, marked, unmarked State, keep int, a Answer) (int, error) {
	args, err := a.args([]any{int64(marked), int64(unmarked), flag(a.Outcome.sent()), int64(a.Outcome), keep, flag(a.Unknown)})
	if err != nil {
		return 0, err
	}
	return s.settle(ctx, l, act, closeRows, seqs, args, noteOf(&a))
}

// settle writes the answer to rows and into their journal, both under the lock of the
// lease. It writes each row that it matches, so that the engine's count is the number of
// rows written, whether the connection counts rows found or rows changed. Only a full
// count is a verdict; else the lease is read.
func (s *Store) settle(ctx context.Context, l Lease, act, set string, seqs []int64, args []any, journal note) (n int, err error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	if err := checkCount(len(seqs)); err != nil {
		return 0, err
	}
	query := s.update + fmt.Sprintf(set, s.dialect.Clock, sqldb.Placeholders(len(seqs))) + s.epochIs
	args = append(seqArgs(args, seqs), l.Shard, l.Shard, l.Epoch)
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.noteAnswer(ctx, tx, l, seqs, journal); err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		changed, err := result.RowsAffected()
		n = int(changed)
		return err
	})
	if err != nil {
		return 0, failed(s.dialect, act, err)
	}
	if n >= len(seqs) {
		return n, nil
	}
	return n, s.checkLease(ctx, s.db.Write(), l, "")
}

func (s *Store) exec(ctx context.Context, query string, args []any) (int, error) {
	result, err := s.db.Write().ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

const (
	deliverRows = `
SET state = 2, due_at = 0, settled_at = %s, attempts = attempts + 1, outcome = ?, outcome_unknown = 0,
  answer_code = ?, answer_message = ?, answer_digest = ?,
  answer_status = %s, answer_request_id = %s, task_id = %s, deduplicated = %s, accepted_at = %s
WHERE seq IN %s AND state %s`

	journalClosed = `
INSERT INTO orbit_outbox_journal
  (row_seq, action, operator, reason, state_before, state_after, outcome, outcome_unknown,
   answer_status, answer_code, answer_message, answer_digest, answer_request_id, created_at)
SELECT seq, ?, ?, ?, state, 2, outcome, outcome_unknown,
   answer_status, answer_code, answer_message, answer_digest, answer_request_id, %s
FROM orbit_outbox%s
WHERE seq IN %s AND state IN (3, 4, 5) AND shard = ?`

	readDelivered = `
SELECT seq, task_id
FROM orbit_outbox%s
WHERE state = 2 AND seq IN `
)

// Deliver records that rows were accepted. An exact accepted answer is a fact: it is
// written over whatever an operator or an earlier answer has made of the row, and the
// journal keeps what was there. It returns how many of the rows hold this fact now,
// also if an earlier call with a lost answer has written it; the others are gone, or
// were accepted as another task. With ErrLeaseLost the caller no longer leads the
// shard. At most 1000 rows, each once.
func (s *Store) Deliver(ctx context.Context, l Lease, rows []Delivery) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if err := checkCount(len(rows)); err != nil {
		return 0, err
	}
	b, err := newDeliveries(rows)
	if err != nil {
		return 0, err
	}
	return s.deliver(ctx, l, b)
}

func (s *Store) deliver(ctx context.Context, l Lease, b *deliveries) (int, error) {
	set, args := b.set(s.dialect, "= 1")
	n, err := s.exec(ctx, s.update+set+s.epochIs, append(args, l.Shard, l.Shard, l.Epoch))
	if err != nil {
		return 0, failed(s.dialect, "deliver rows", err)
	}
	if n >= len(b.rows) {
		return n, nil
	}
	return s.deliverClosed(ctx, l, b)
}

// deliverClosed does the same where not every row was Pending.
func (s *Store) deliverClosed(ctx context.Context, l Lease, b *deliveries) (n int, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if err := s.checkLease(ctx, tx, l, s.dialect.Share); err != nil {
			return err
		}
		in := sqldb.Placeholders(len(b.rows))
		journal := fmt.Sprintf(journalClosed, s.dialect.Clock, s.byPrimary, in)
		journalArgs := seqArgs([]any{[]byte("accepted"), []byte(l.Leader), []byte("an accepted answer is a fact")}, b.seqs)
		if _, err := tx.ExecContext(ctx, journal, append(journalArgs, l.Shard)...); err != nil {
			return err
		}
		set, args := b.set(s.dialect, "<> 2")
		set, args = set+"\n  AND shard = ?", append(args, l.Shard)
		if _, err := tx.ExecContext(ctx, s.update+set, args...); err != nil {
			return err
		}
		n, err = b.countHeld(ctx, tx, fmt.Sprintf(readDelivered, s.byPrimary))
		return err
	})
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		return 0, failed(s.dialect, "deliver rows", err)
	}
	return n, err
}

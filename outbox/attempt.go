package outbox

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxAnswers is how many answers the journal keeps of one row: the first 32, the last 32,
// why it was last blocked unsent, and why it was last marked without counting a send.
const MaxAnswers = 2*ring + 2

const ring = 32

// An Attempt is one answer to a row other than *accepted*, or the lack of one. The good
// path writes none: what was accepted stands in the row itself.
type Attempt struct {
	Number        int // of the sends that were counted; of an answer that counts none, how many there were before
	Leader        string
	Epoch         int64  // of the leader's lease
	RequestSHA256 string // of the bytes that were sent, in hexadecimal; empty if a damaged row was not sent
	Answer        Answer
	At            time.Time
}

// noteAnswers copies what each row has at this moment, just before the answer is written
// to it. MySQL's ON DUPLICATE KEY UPDATE and SQLite's ON CONFLICT make the ring.
const noteAnswers = `
INSERT INTO orbit_outbox_answer
  (row_seq, slot, attempt, leader, epoch, outcome, outcome_unknown, request_sha256,
   answer_status, answer_code, answer_message, answer_digest, answer_request_id, created_at)
SELECT seq, %s, CASE WHEN attempts BETWEEN 0 AND 2147483646 THEN attempts ELSE 0 END + ?, ?, ?, ?, ?, %s, ?, ?, ?, ?, ?, %s
FROM orbit_outbox%s
WHERE seq IN %s AND state = 1`

// A note is an answer and its place in the journal of a row.
type note struct {
	answer *Answer
	slot   string
	counts bool // as a send
}

const (
	unsentSlot = "0"
	doubtSlot  = "65"
	ringSlot   = "CASE WHEN attempts < 32 THEN attempts + 1 ELSE 33 + attempts % 32 END"
)

func noteOf(a *Answer) note {
	if a.Outcome.sent() {
		return note{a, ringSlot, true}
	}
	return note{a, unsentSlot, false}
}

// noteAnswer writes the journal of rows that are to be settled.
func (s *Store) noteAnswer(ctx context.Context, tx *sql.Tx, l Lease, seqs []int64, n note) error {
	query, args, err := s.noteQuery(l, seqs, n)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, query, args...)
	return err
}

func (s *Store) noteQuery(l Lease, seqs []int64, n note) (string, []any, error) {
	a := n.answer
	args, err := a.args([]any{flag(n.counts), []byte(l.Leader), l.Epoch, int64(a.Outcome), flag(a.Unknown)})
	if err != nil {
		return "", nil, err
	}
	sum := "request_sha256"
	if a.Outcome == OutcomeDamaged {
		sum = "x''" // it may be what is damaged, and nothing was sent
	}
	query := fmt.Sprintf(noteAnswers, n.slot, sum, s.dialect.Clock, s.byPrimary, sqldb.Placeholders(len(seqs))) + s.epochIs +
		s.dialect.OnConflict([]string{"row_seq", "slot"}, "attempt", "leader", "epoch", "outcome", "outcome_unknown", "request_sha256",
			"answer_status", "answer_code", "answer_message", "answer_digest", "answer_request_id", "created_at")
	return query, append(seqArgs(args, seqs), l.Shard, l.Shard, l.Epoch), nil
}

const readAttempts = `
SELECT attempt, leader, epoch, outcome, outcome_unknown, request_sha256,
  answer_status, answer_code, answer_message, answer_digest, answer_request_id, created_at
FROM orbit_outbox_answer
WHERE row_seq = ?
ORDER BY created_at, attempt`

// Attempts returns the answers to a row other than *accepted*, the oldest first, at most
// MaxAnswers: of many, those in the middle are not kept. Orbit's own answers about the target
// (401, and to a whole batch) are none of it; those of somebody else are, when they mark the row.
func (s *Store) Attempts(ctx context.Context, seq int64) ([]Attempt, error) {
	attempts, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (a Attempt, err error) {
		var leader, sum, code, message, digest []byte
		var request sqldb.ID
		var at int64
		err = rows.Scan(&a.Number, &leader, &a.Epoch, &a.Answer.Outcome, &a.Answer.Unknown, &sum,
			&a.Answer.Status, &code, &message, &digest, &request, &at)
		a.Leader = string(leader)
		if a.Answer.Outcome != OutcomeDamaged {
			a.RequestSHA256 = hex.EncodeToString(sum)
		}
		a.Answer.Code, a.Answer.Message, a.Answer.Digest = string(code), string(message), string(digest)
		a.Answer.RequestID, a.At = textID(request), sqldb.Time(at)
		return a, err
	}, readAttempts, seq)
	if err != nil {
		return nil, failed(s.dialect, "read answers of a row", err)
	}
	return attempts, nil
}

// A History is all that is known of a row.
type History struct {
	Row      Row
	Attempts []Attempt // answers other than *accepted*
	Entries  []Entry   // what operators did, at most MaxRows, the oldest first
}

// Show returns a row with its history, or ErrNotFound.
func (s *Store) Show(ctx context.Context, seq int64) (h History, err error) {
	if h.Row, err = s.Get(ctx, seq); err != nil {
		return History{}, err
	}
	if h.Attempts, err = s.Attempts(ctx, seq); err != nil {
		return History{}, err
	}
	if h.Entries, err = s.Journal(ctx, seq, 0, MaxRows); err != nil {
		return History{}, err
	}
	return h, nil
}

package outbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// An Entry is a line of the journal: what an operator did, or what an accepted answer
// has overwritten.
type Entry struct {
	ID     int64
	Seq    int64  // the row; 0 for holds and purges
	Action string // "requeue", "discard", "accepted", "hold", "unhold" or "purge"
	Act    Act    // for "accepted" the operator is the relay that led the shard
	Before State  // 0 without a row
	After  State  // 0 without a row
	Last   Answer // what the row showed before
	At     time.Time
}

const readJournal = `
SELECT id, row_seq, action, operator, reason, state_before, state_after, outcome, outcome_unknown,
  answer_status, answer_code, answer_message, answer_digest, answer_request_id, created_at
FROM orbit_outbox_journal
WHERE row_seq = ? AND id > ?
ORDER BY id
LIMIT ?`

// Journal returns at most limit entries of a row (0: of holds and purges) with an ID greater
// than after, the oldest first. limit is 1 to 1000; another one is refused with an
// [*orbit.InvalidArgumentError].
func (s *Store) Journal(ctx context.Context, seq, after int64, limit int) ([]Entry, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	entries, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (e Entry, err error) {
		var action, operator, reason, code, message, digest []byte
		var request sqldb.ID
		var at int64
		err = rows.Scan(&e.ID, &e.Seq, &action, &operator, &reason, &e.Before, &e.After, &e.Last.Outcome, &e.Last.Unknown,
			&e.Last.Status, &code, &message, &digest, &request, &at)
		e.Action, e.Act = string(action), Act{Operator: string(operator), Reason: string(reason)}
		e.Last.Code, e.Last.Message, e.Last.Digest = string(code), string(message), string(digest)
		e.Last.RequestID, e.At = textID(request), sqldb.Time(at)
		return e, err
	}, readJournal, seq, after, limit)
	if err != nil {
		return nil, failed(s.dialect, "read journal", err)
	}
	return entries, nil
}

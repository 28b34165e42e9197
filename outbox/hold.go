package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxHolds is how many holds there can be.
const MaxHolds = 1000

// A Hold keeps rows from being sent until an operator lifts it. It changes no row.
// Leaders obey within a second.
type Hold struct {
	Target    string // empty means every target
	QueueID   string // 32 hexadecimal characters; empty means every queue of the target
	Act       Act
	CreatedAt time.Time
}

// Covers reports whether rows of this target and queue are held.
func (h Hold) Covers(target, queueID string) bool {
	return (h.Target == "" || h.Target == target) && (h.QueueID == "" || h.QueueID == queueID)
}

const readHolds = `
SELECT target, queue_id, operator, reason, created_at
FROM orbit_outbox_hold
ORDER BY target, queue_id
LIMIT ?`

// Holds returns the holds in force.
func (s *Store) Holds(ctx context.Context) ([]Hold, error) {
	holds, err := readAll(ctx, s.db.Read(), func(rows *sql.Rows) (Hold, error) {
		var target, queue, operator, reason []byte
		var created int64
		err := rows.Scan(&target, &queue, &operator, &reason, &created)
		return Hold{
			Target: string(target), QueueID: string(queue),
			Act:       Act{Operator: string(operator), Reason: string(reason)},
			CreatedAt: sqldb.Time(created),
		}, err
	}, readHolds, MaxHolds)
	if err != nil {
		return nil, failed(s.dialect, "read holds", err)
	}
	return holds, nil
}

const (
	countHolds = `
SELECT COUNT(*)
FROM orbit_outbox_hold`

	insertHold = `
INSERT INTO orbit_outbox_hold (target, queue_id, operator, reason, created_at)
VALUES (?, ?, ?, ?, %s)`

	deleteHold = `
DELETE FROM orbit_outbox_hold
WHERE target = ? AND queue_id = ?`

	journalOther = `
INSERT INTO orbit_outbox_journal (row_seq, action, operator, reason, state_before, state_after, created_at)
VALUES (0, ?, ?, ?, 0, 0, %s)`
)

// Hold keeps the rows of a target, or of one of its queues, from being sent; with an
// empty target, all rows. What is in flight is not called back. A hold that is there
// already takes the new operator and reason.
func (s *Store) Hold(ctx context.Context, target, queueID string, act Act) error {
	return s.changeHold(ctx, "hold", target, queueID, act, func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, countHolds).Scan(&n); err != nil {
			return err
		}
		if n >= MaxHolds {
			return fmt.Errorf("there are %d holds already", n)
		}
		upsert := fmt.Sprintf(insertHold, s.dialect.Clock) +
			s.dialect.OnConflict([]string{"target", "queue_id"}, "operator", "reason", "created_at")
		_, err := tx.ExecContext(ctx, upsert, []byte(target), []byte(queueID), []byte(act.Operator), []byte(act.Reason))
		return err
	})
}

// Unhold lifts the hold with exactly this target and queue, or returns ErrNoHold.
func (s *Store) Unhold(ctx context.Context, target, queueID string, act Act) error {
	return s.changeHold(ctx, "unhold", target, queueID, act, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, deleteHold, []byte(target), []byte(queueID))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return fmt.Errorf("%w: target %q queue %q", ErrNoHold, target, queueID)
	})
}

func (s *Store) changeHold(ctx context.Context, name, target, queueID string, act Act, change func(*sql.Tx) error) error {
	if err := validScope(target, queueID); err != nil {
		return fmt.Errorf("outbox: %s: %w", name, err)
	}
	if err := act.validate(); err != nil {
		return err
	}
	scope := fmt.Sprintf("target %q queue %q: ", target, queueID)
	return s.act(ctx, name, act, func(tx *sql.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return s.journal(ctx, tx, name, act.Operator, scope+act.Reason)
	})
}

// journal writes an audit row that belongs to no row of the outbox.
func (s *Store) journal(ctx context.Context, tx *sql.Tx, name, operator, reason string) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf(journalOther, s.dialect.Clock), []byte(name), []byte(operator), cut(reason, maxReason))
	return err
}

func validScope(target, queueID string) error {
	if target != "" {
		if err := ValidateTarget(target); err != nil {
			return err
		}
	}
	switch {
	case queueID == "":
		return nil
	case target == "":
		return &orbit.InvalidArgumentError{Field: "target", Rule: "is required with a queue"}
	case !orbit.ValidID(queueID):
		return &orbit.InvalidArgumentError{Field: "queue_id", Rule: "must be 32 lower-case hexadecimal characters"}
	}
	return nil
}

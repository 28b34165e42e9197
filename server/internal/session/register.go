package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// errChanged reports that a process identity was registered with other properties.
var errChanged = errors.New("the registration of a process cannot change: make a new process_id")

const (
	insertSession = `
INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id,
    connected_at, seen_at, concurrency_keys)
VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?)`

	selectSession = `
SELECT registration_digest, connected_at
FROM worker_session
WHERE namespace_id = ? AND process_id = ?`

	updateSession = `
UPDATE worker_session
SET credential_id = ?, node_id = ?, connected_at = ?, seen_at = ?, drained_at = NULL
WHERE namespace_id = ? AND process_id = ?`
)

// register makes this connection the newest of its process, and returns its time, which
// tells it from every other one. From then on no node claims for an older connection.
func (h *Hub) register(ctx context.Context, p auth.Principal, r *registration) (connectedAt int64, err error) {
	digest := r.digest()
	err = h.db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		upsert := insertSession + tx.Dialect().OnConflict([]string{"namespace_id", "process_id"})
		if _, err := tx.ExecContext(ctx, upsert, p.Namespace, r.process, p.Credential, digest[:], r.text(), []byte(h.node), now, r.keys); err != nil {
			return err
		}
		var stored []byte
		err = tx.QueryRowContext(ctx, selectSession+tx.Dialect().ForUpdate, p.Namespace, r.process).Scan(&stored, &connectedAt)
		if err != nil {
			return err
		}
		if string(stored) != string(digest[:]) {
			return errChanged
		}
		connectedAt = max(now, connectedAt+1)
		_, err = tx.ExecContext(ctx, updateSession, p.Credential, []byte(h.node), connectedAt, now, p.Namespace, r.process)
		return err
	}, func(context.Context, sqldb.Querier) (bool, error) { return false, nil }) // to register again does no harm
	if err != nil {
		return 0, fmt.Errorf("register worker: %w", err)
	}
	return connectedAt, nil
}

const selectQueues = `
SELECT id
FROM queue
WHERE namespace_id = ? AND id IN `

// missingQueue returns a queue that the namespace does not have, or the zero id.
func (h *Hub) missingQueue(ctx context.Context, namespace sqldb.ID, queues []sqldb.ID) (sqldb.ID, error) {
	args := append([]any{namespace}, settle.IDArgs(queues)...)
	found, err := readIDs(ctx, h.db.Read(), selectQueues+sqldb.Placeholders(len(queues)), args...)
	if err != nil {
		return sqldb.ID{}, fmt.Errorf("read queues: %w", err)
	}
	for _, id := range queues {
		if _, ok := found[id]; !ok {
			return id, nil
		}
	}
	return sqldb.ID{}, nil
}

func readIDs(ctx context.Context, q sqldb.Querier, query string, args ...any) (map[sqldb.ID]struct{}, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ids := make(map[sqldb.ID]struct{})
	for rows.Next() {
		var id sqldb.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids[id] = struct{}{}
	}
	return ids, rows.Err()
}

// A holding is a live attempt of a process.
type holding struct {
	attempt sqldb.ID
	epoch   int64
	left    time.Duration
	queue   sqldb.ID
}

const selectHoldings = `
SELECT id, epoch, lease_until - %s, queue_id
FROM attempt%s
WHERE process_id = ? AND live = 1 AND namespace_id = ?
ORDER BY id`

// holdings returns the live attempts of a process.
func (h *Hub) holdings(ctx context.Context, namespace, process sqldb.ID) ([]holding, error) {
	rows, err := h.db.Read().QueryContext(ctx, fmt.Sprintf(selectHoldings, h.db.Dialect().Clock, h.db.Dialect().ByIndex("attempt_process")), process, namespace)
	if err != nil {
		return nil, fmt.Errorf("read attempts of worker: %w", err)
	}
	defer rows.Close()
	var list []holding
	for rows.Next() {
		var (
			one  holding
			left int64
		)
		if err := rows.Scan(&one.attempt, &one.epoch, &left, &one.queue); err != nil {
			return nil, fmt.Errorf("read attempts of worker: %w", err)
		}
		one.left = time.Duration(left) * time.Microsecond
		list = append(list, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read attempts of worker: %w", err)
	}
	return list, nil
}

const drainSession = `
UPDATE worker_session
SET drained_at = %s
WHERE namespace_id = ? AND process_id = ? AND connected_at = ?`

// markDrained notes for people that processes take nothing more.
func (h *Hub) markDrained(ctx context.Context, sessions []*session) ([]struct{}, error) {
	err := h.db.Tx(ctx, func(tx *sqldb.Tx) error {
		for _, s := range sessions {
			query := fmt.Sprintf(drainSession, tx.Dialect().Clock)
			if _, err := tx.ExecContext(ctx, query, s.principal.Namespace, s.process, s.connectedAt); err != nil {
				return err
			}
		}
		return nil
	})
	return make([]struct{}, len(sessions)), err
}

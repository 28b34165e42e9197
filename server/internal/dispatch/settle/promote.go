package settle

import (
	"context"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// SelectParked returns for each key: the best parked task of its first lane, that lane,
// its last lane with a parked task, and whether any of its tasks is READY. Each is one
// seek in task_parked. MySQL sees that only if ORDER BY names the whole index; without its
// first columns, which are equal anyway, it sorts all parked tasks of the key.
const SelectParked = `
SELECT r.digest,
       (SELECT p.id FROM task p WHERE p.concurrency_key_digest = r.digest AND p.dispatch_state = 3
        ORDER BY p.concurrency_key_digest, p.dispatch_state, p.lane, p.order_value, p.id LIMIT 1),
       COALESCE((SELECT p.lane FROM task p WHERE p.concurrency_key_digest = r.digest AND p.dispatch_state = 3
        ORDER BY p.concurrency_key_digest, p.dispatch_state, p.lane, p.order_value, p.id LIMIT 1), 0),
       COALESCE((SELECT p.lane FROM task p WHERE p.concurrency_key_digest = r.digest AND p.dispatch_state = 3
        ORDER BY p.concurrency_key_digest DESC, p.dispatch_state DESC, p.lane DESC, p.order_value DESC, p.id DESC LIMIT 1), 0),
       EXISTS (SELECT 1 FROM task p WHERE p.concurrency_key_digest = r.digest AND p.dispatch_state = 1)
FROM resource r
WHERE r.digest IN `

// parked is where the parked tasks of a key begin and end.
type parked struct {
	digest      Digest
	first       sqldb.ID
	lane        int64
	lastLane    int64
	someIsReady bool
}

// promote lets, for each freed key that can be given again, the best parked task of each
// lane go that has no READY task. The keys are locked, so nobody parks or lets go
// meanwhile; a submit may add a READY task, which at worst makes two.
func (s *Settlement) promote(ctx context.Context) (lanes []int64, err error) {
	var digests []Digest
	for _, d := range sortedDigests(s.freed) {
		if k := s.keys[d]; k.Free() && !k.Exhausted() {
			digests = append(digests, d)
		}
	}
	if len(digests) == 0 {
		return nil, nil
	}
	heads, err := s.readParked(ctx, digests)
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	taken, err := s.readyLanes(ctx, heads)
	if err != nil {
		return nil, err
	}
	var ids []sqldb.ID
	for _, h := range heads {
		for more := true; more; {
			if _, ready := taken[KeyLane{h.digest, h.lane}]; !ready {
				ids, lanes = append(ids, h.first), append(lanes, h.lane)
			}
			if h, more, err = s.nextLane(ctx, h); err != nil {
				return nil, err
			}
		}
	}
	return lanes, s.letGo(ctx, ids)
}

func (s *Settlement) readParked(ctx context.Context, digests []Digest) ([]parked, error) {
	rows, err := s.tx.QueryContext(ctx, SelectParked+sqldb.Placeholders(len(digests)), digestArgs(digests)...)
	if err != nil {
		return nil, fmt.Errorf("read parked tasks: %w", err)
	}
	defer rows.Close()
	var heads []parked
	for rows.Next() {
		var (
			h      parked
			digest []byte
		)
		if err := rows.Scan(&digest, &h.first, &h.lane, &h.lastLane, &h.someIsReady); err != nil {
			return nil, fmt.Errorf("read parked tasks: %w", err)
		}
		if h.digest = Digest(digest); !h.first.IsZero() {
			heads = append(heads, h)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read parked tasks: %w", err)
	}
	return heads, nil
}

// A KeyLane is one lane of a resource key.
type KeyLane struct {
	Key  Digest
	Lane int64
}

// SelectReadyLanes returns the lanes of keys that have a READY task.
const SelectReadyLanes = `
SELECT concurrency_key_digest, lane, MIN(order_value)
FROM task
WHERE dispatch_state = 1 AND concurrency_key_digest IN (%s)
GROUP BY concurrency_key_digest, lane`

// readyLanes returns the lanes in which keys have a READY task.
func (s *Settlement) readyLanes(ctx context.Context, heads []parked) (map[KeyLane]int64, error) {
	var digests []Digest
	for _, h := range heads {
		if h.someIsReady {
			digests = append(digests, h.digest)
		}
	}
	return ReadyLanes(ctx, s.tx, digests)
}

// ReadyLanes returns which lanes of keys have a READY task, with the order value of the
// first one.
func ReadyLanes(ctx context.Context, tx *sqldb.Tx, digests []Digest) (map[KeyLane]int64, error) {
	if len(digests) == 0 {
		return nil, nil
	}
	marks := strings.Trim(sqldb.Placeholders(len(digests)), "()")
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(SelectReadyLanes, marks), digestArgs(digests)...)
	if err != nil {
		return nil, fmt.Errorf("read ready lanes of keys: %w", err)
	}
	defer rows.Close()
	ready := make(map[KeyLane]int64)
	for rows.Next() {
		var (
			column      []byte
			lane, first int64
		)
		if err := rows.Scan(&column, &lane, &first); err != nil {
			return nil, fmt.Errorf("read ready lanes of keys: %w", err)
		}
		ready[KeyLane{Digest(column), lane}] = first
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read ready lanes of keys: %w", err)
	}
	return ready, nil
}

// SelectNextLane returns the best parked task of a key's next lane.
const SelectNextLane = `
SELECT id, lane
FROM task
WHERE concurrency_key_digest = ? AND dispatch_state = 3 AND lane > ?
ORDER BY lane, order_value, id
LIMIT 1`

// nextLane goes on to the next lane with parked tasks of a key. Most keys have one.
func (s *Settlement) nextLane(ctx context.Context, h parked) (next parked, more bool, err error) {
	if h.lane == h.lastLane {
		return h, false, nil
	}
	err = s.tx.QueryRowContext(ctx, SelectNextLane, h.digest[:], h.lane).Scan(&h.first, &h.lane)
	if err != nil {
		return h, false, fmt.Errorf("read parked tasks: %w", err)
	}
	return h, true, nil
}

const promoteTasks = `
UPDATE task{by}
SET dispatch_state = 1, dispatch_lane = lane
WHERE dispatch_state = 3 AND id IN `

// letGo makes parked tasks READY. It is no visible change (STATE-027).
func (s *Settlement) letGo(ctx context.Context, ids []sqldb.ID) error {
	if len(ids) == 0 {
		return nil
	}
	if _, err := s.tx.ExecContext(ctx, ByID(s.tx.Dialect(), promoteTasks, len(ids)), IDArgs(ids)...); err != nil {
		return fmt.Errorf("promote parked tasks: %w", err)
	}
	return nil
}

package recovery

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A due task is a DELAYED one whose time has come, locked.
type due struct {
	id     sqldb.ID
	lane   int64 // what its columns say
	stored int64 // what its lane column holds: nothing yet for a task from before lanes
	order  int64
	key    settle.Digest
	keyed  bool
}

// A spot is where a due task goes: READY or parked, in a lane.
type spot struct {
	lane    int64
	fixLane bool // the lane column is to be set
	state   task.DispatchState
}

// PromoteDelayed moves a batch of delayed tasks whose time has come into line, by the
// rules of a submit, and returns how many it moved. Like a claim it waits for no lock:
// nodes take different tasks.
func (r *Recovery) PromoteDelayed(ctx context.Context) (int, error) {
	var (
		n     int
		lanes []int64
	)
	err := r.tx(ctx, func(tx *sqldb.Tx) error {
		list, err := readDue(ctx, tx)
		if err != nil {
			return err
		}
		spots, err := place(ctx, tx, list)
		if err != nil {
			return err
		}
		n, lanes = len(list), nil
		for s, ids := range spots {
			if s.state == task.DispatchReady {
				lanes = append(lanes, s.lane)
			}
			if err := s.move(ctx, tx, ids); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("promote delayed tasks: %w", err)
	}
	if n > 0 {
		r.cfg.Watch.Moved(StepDelayed, n)
	}
	if len(lanes) > 0 {
		r.cfg.Wake(lanes)
	}
	return n, nil
}

const selectDue = `
SELECT id, queue_id, handler, handler_version, lane, available_at, priority, concurrency_key_digest
FROM task
WHERE dispatch_lane = 0 AND order_value <= ?
ORDER BY order_value, id
LIMIT ?`

func readDue(ctx context.Context, tx *sqldb.Tx) ([]due, error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, selectDue+tx.Dialect().SkipLocked, now, batch)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []due
	for rows.Next() {
		var (
			d                due
			queue            sqldb.ID
			handler, version string
			available        int64
			priority         int
			digest           []byte
		)
		if err := rows.Scan(&d.id, &queue, &handler, &version, &d.stored, &available, &priority, &digest); err != nil {
			return nil, err
		}
		if d.key, d.keyed, err = settle.ParseDigest(digest); err != nil {
			return nil, err
		}
		d.lane = task.Lane(queue, handler, version, d.keyed)
		d.order = task.OrderValue(available, priority)
		list = append(list, d)
	}
	return list, rows.Err()
}

// place decides where due tasks go. Only who holds the lock of a key may park behind it;
// where somebody else has that lock the task becomes READY, and a claim parks it if need
// be.
func place(ctx context.Context, tx *sqldb.Tx, list []due) (map[spot][]sqldb.ID, error) {
	var digests []settle.Digest
	for _, d := range list {
		if d.keyed {
			digests = append(digests, d.key)
		}
	}
	keys, err := settle.LockKeys(ctx, tx, digests, tx.Dialect().SkipLocked)
	if err != nil {
		return nil, err
	}
	locked := make([]settle.Digest, 0, len(keys))
	for digest := range keys {
		locked = append(locked, digest)
	}
	ready, err := settle.ReadyLanes(ctx, tx, locked)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b due) int { return cmp.Compare(a.order, b.order) })
	spots := make(map[spot][]sqldb.ID)
	for _, d := range list {
		s := spot{lane: d.lane, fixLane: d.lane != d.stored, state: task.DispatchReady}
		if key := keys[d.key]; d.keyed && key != nil {
			in := settle.KeyLane{Key: d.key, Lane: d.lane}
			first, taken := ready[in]
			if !key.Free() || key.Exhausted() || taken && first <= d.order {
				s.state = task.DispatchKeyBlocked
			} else {
				ready[in] = d.order
			}
		}
		spots[s] = append(spots[s], d.id)
	}
	return spots, nil
}

const moveDue = `
UPDATE task
SET lane = CASE WHEN ? THEN ? ELSE lane END, dispatch_state = ?, dispatch_lane = CASE WHEN ? THEN ? END,
    order_value = available_at - priority * ?
WHERE id IN `

// move writes one spot. It is no visible change (STATE-027).
func (s spot) move(ctx context.Context, tx *sqldb.Tx, ids []sqldb.ID) error {
	args := []any{s.fixLane, s.lane, s.state, s.state == task.DispatchReady, s.lane, task.PriorityStep}
	_, err := tx.ExecContext(ctx, moveDue+sqldb.Placeholders(len(ids)), append(args, settle.IDArgs(ids)...)...)
	return err
}

const selectNextDue = `
SELECT order_value - %s
FROM task
WHERE dispatch_lane = 0
ORDER BY order_value
LIMIT 1`

// nextDue returns how long the next delayed task has to wait, zero or less if it is due,
// an hour if there is none.
func (r *Recovery) nextDue(ctx context.Context) (time.Duration, error) {
	var micros int64
	err := r.db.Read().QueryRowContext(ctx, fmt.Sprintf(selectNextDue, r.db.Dialect().Clock)).Scan(&micros)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return time.Hour, nil
	case err != nil:
		return time.Hour, fmt.Errorf("read next delayed task: %w", err)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

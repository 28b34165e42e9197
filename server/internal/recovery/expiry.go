package recovery

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/task"
)

const selectExpiredLeases = `
SELECT id
FROM attempt
WHERE live = 1 AND lease_until <= %s
ORDER BY lease_until
LIMIT ?`

// ExpireLeases ends a batch of attempts whose lease has passed, and returns how many it
// found. One that was not started goes back to its place in line; what a started one has
// done is unknown. A lease never goes past the attempt's timeout nor the task's deadline,
// so those end here too.
func (r *Recovery) ExpireLeases(ctx context.Context) (int, error) {
	ids, err := r.readIDs(ctx, fmt.Sprintf(selectExpiredLeases, r.db.Dialect().Clock), batch)
	if err != nil {
		return 0, fmt.Errorf("read expired leases: %w", err)
	}
	if err := r.apart(ctx, ids, r.expireLeases); err != nil {
		return len(ids), fmt.Errorf("expire leases: %w", err)
	}
	return len(ids), nil
}

func (r *Recovery) expireLeases(ctx context.Context, ids []sqldb.ID) error {
	var lost []*settle.Attempt
	err := r.settle(ctx, func(tx *sqldb.Tx) (*settle.Settlement, error) {
		lost = nil
		s, err := settle.OpenAttempts(ctx, tx, r.cfg.Modes, ids, nil)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			a := s.Attempt(id)
			if a == nil || !a.Live() || a.LeaseUntil > s.Now {
				continue // somebody was faster
			}
			if _, err := s.EndAttempt(a, settle.Lost(a, s.Task(a.Task))); err != nil {
				return nil, err
			}
			lost = append(lost, a)
		}
		return s, nil
	})
	if err == nil {
		r.logLost(ctx, lost)
	}
	return err
}

const selectExpiredTasks = `
SELECT id
FROM task
WHERE expire_at <= %s
ORDER BY expire_at
LIMIT ?`

// ExpireWaiting ends a batch of tasks that wait past their deadline or start deadline,
// and returns how many it found.
func (r *Recovery) ExpireWaiting(ctx context.Context) (int, error) {
	ids, err := r.readIDs(ctx, fmt.Sprintf(selectExpiredTasks, r.db.Dialect().Clock), batch)
	if err != nil {
		return 0, fmt.Errorf("read expired tasks: %w", err)
	}
	if err := r.apart(ctx, ids, r.expireWaiting); err != nil {
		return len(ids), fmt.Errorf("expire waiting tasks: %w", err)
	}
	return len(ids), nil
}

func (r *Recovery) expireWaiting(ctx context.Context, ids []sqldb.ID) error {
	n := 0
	err := r.settle(ctx, func(tx *sqldb.Tx) (*settle.Settlement, error) {
		n = 0
		s, err := settle.OpenTasks(ctx, tx, r.cfg.Modes, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			t := s.Task(id)
			if t == nil || t.State != task.Waiting || t.TooLate(s.Now) == "" {
				continue // it was claimed, or ended by somebody else
			}
			if _, err := s.LeaveLine(t, task.ActExpire, t.TooLate(s.Now), sqldb.ID{}); err != nil {
				return nil, err
			}
			n++
		}
		return s, nil
	})
	if err == nil && n > 0 {
		r.cfg.Watch.Moved(StepWaiting, n)
	}
	return err
}

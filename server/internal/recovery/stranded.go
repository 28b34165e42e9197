package recovery

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// sliceOfKeys is how many keys one step looks at.
const sliceOfKeys = 1000

const selectSuspects = `
SELECT r.digest,
       CASE WHEN r.holder_task_id IS NULL THEN
           EXISTS (SELECT 1 FROM task p WHERE p.concurrency_key_digest = r.digest AND p.dispatch_state = 3)
       ELSE 0 END
FROM resource r
WHERE r.digest > ?
ORDER BY r.digest
LIMIT ?`

// PromoteStranded looks at the next slice of resource keys, round and round, and lets
// parked tasks go whose key nobody holds and whose lane has no READY task. No path leaves
// such tasks behind; this is the net under them all.
func (r *Recovery) PromoteStranded(ctx context.Context) error {
	suspects, err := r.readSuspects(ctx)
	if err != nil {
		return fmt.Errorf("read keys with parked tasks: %w", err)
	}
	for len(suspects) > 0 {
		n := min(len(suspects), batch)
		if err := r.recheck(ctx, suspects[:n]); err != nil {
			return fmt.Errorf("promote stranded tasks: %w", err)
		}
		suspects = suspects[n:]
	}
	return nil
}

func (r *Recovery) recheck(ctx context.Context, digests []settle.Digest) error {
	var lanes []int64
	err := r.tx(ctx, func(tx *sqldb.Tx) error {
		s, err := settle.OpenKeys(ctx, tx, digests)
		if err != nil {
			return err
		}
		for _, d := range digests {
			if k := s.Key(d); k != nil {
				s.Recheck(k)
			}
		}
		lanes, err = s.Flush(ctx)
		return err
	})
	if err == nil && len(lanes) > 0 {
		r.cfg.Watch.Moved(StepStranded, len(lanes))
		r.cfg.Log.WarnContext(ctx, "parked tasks had been left behind", "lanes", len(lanes))
		r.cfg.Wake(lanes)
	}
	return err
}

// readSuspects returns the free keys of the next slice that have parked tasks.
func (r *Recovery) readSuspects(ctx context.Context) ([]settle.Digest, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows, err := r.db.Read().QueryContext(ctx, selectSuspects, r.cursor[:], sliceOfKeys)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var (
		suspects []settle.Digest
		last     settle.Digest
		n        int
	)
	for ; rows.Next(); n++ {
		var (
			digest  []byte
			suspect bool
		)
		if err := rows.Scan(&digest, &suspect); err != nil {
			return nil, err
		}
		if last = settle.Digest(digest); suspect {
			suspects = append(suspects, last)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if n < sliceOfKeys {
		last = settle.Digest{} // from the beginning again
	}
	r.cursor = last
	return suspects, nil
}

package api

import (
	"context"
	"encoding/binary"

	"github.com/orbitkit/orbit/internal/sqldb"
)

var errNoAttempt = notFound("no such attempt of this task")

// listAttempts serves GET /v1/tasks/{id}/attempts: the history of a task, newest first.
func (c *call) listAttempts() error {
	return c.listOfTask(cursorAttempts, func(ctx context.Context, id sqldb.ID, p paging) (list, error) {
		var below int64
		if p.position != nil {
			below = int64(binary.BigEndian.Uint64(p.position))
		}
		page, err := c.reader().Attempts(ctx, c.scope(), id, below, p.limit)
		if err != nil {
			return list{}, err
		}
		var l list
		for _, a := range page.Attempts {
			l.item(a.AppendJSON)
		}
		if page.NextEpoch != 0 {
			l.next = binary.BigEndian.AppendUint64(nil, uint64(page.NextEpoch))
		}
		return l, nil
	})
}

// getAttempt serves GET /v1/tasks/{id}/attempts/{id}.
func (c *call) getAttempt() error {
	return c.readOfPart(errNoAttempt, func(ctx context.Context, id, part sqldb.ID) ([]byte, error) {
		a, err := c.reader().Attempt(ctx, c.scope(), id, part)
		if err != nil {
			return nil, err
		}
		return a.AppendJSON(nil), nil
	})
}

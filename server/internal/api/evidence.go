package api

import (
	"context"

	"github.com/orbitkit/orbit/internal/sqldb"
)

var errNoEvidence = notFound("no such evidence of this task")

// listEvidence serves GET /v1/tasks/{id}/evidence, newest first.
func (c *call) listEvidence() error {
	return c.listOfTask(cursorEvidence, func(ctx context.Context, id sqldb.ID, p paging) (list, error) {
		page, err := c.reader().EvidenceList(ctx, c.scope(), id, p.place(), p.limit)
		if err != nil {
			return list{}, err
		}
		l := list{next: appendPlace(page.Next)}
		for i := range page.Evidence {
			l.item(page.Evidence[i].AppendJSON)
		}
		return l, nil
	})
}

// getEvidence serves GET /v1/tasks/{id}/evidence/{id}.
func (c *call) getEvidence() error {
	return c.readOfPart(errNoEvidence, func(ctx context.Context, id, part sqldb.ID) ([]byte, error) {
		e, err := c.reader().Evidence(ctx, c.scope(), id, part)
		return e.AppendJSON(nil), err
	})
}

package api

import (
	"context"
	"net/http"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
)

var errNoQueue = notFound("no such queue")

// mayReadQueues refuses a credential that has to do neither with tasks nor with queues.
func (c *call) mayReadQueues() error {
	if c.principal.Can(auth.TasksRead) || c.principal.Can(auth.QueuesManage) {
		return nil
	}
	return denied("the credential needs " + auth.TasksRead + " or " + auth.QueuesManage)
}

// listQueues serves GET /v1/queues: the queues in the credential's scope, by name.
func (c *call) listQueues() error {
	if err := c.mayReadQueues(); err != nil {
		return err
	}
	parameters, err := c.query("limit", "cursor")
	if err != nil {
		return err
	}
	p, err := c.paging(parameters, cursorQueues, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	page, err := c.reader().Queues(ctx, c.scope(), string(p.position), p.limit)
	if err != nil {
		return err
	}
	var l list
	for i := range page.Queues {
		l.item(page.Queues[i].AppendJSON)
	}
	if page.More {
		l.next = []byte(page.Queues[len(page.Queues)-1].Name)
	}
	return c.respondList(l, p)
}

// getQueue serves GET /v1/queues/{id}.
func (c *call) getQueue() error {
	if err := c.mayReadQueues(); err != nil {
		return err
	}
	if err := c.noQuery(); err != nil {
		return err
	}
	id, err := sqldb.ParseID(c.subject)
	if err != nil {
		return errNoQueue
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	q, err := c.reader().Queue(ctx, c.scope(), id)
	if err != nil {
		return orNotFound(err, errNoQueue)
	}
	return c.respond(http.StatusOK, q.AppendJSON(nil))
}

package api

import (
	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// createQueue serves POST /v1/queues. A restricted credential could not use the queue that
// it makes, so it may make none.
func (c *call) createQueue() error {
	return write[orbit.CreateQueueRequest]{
		parse: orbit.ParseCreateQueue, permissions: []string{auth.QueuesManage}, allQueues: true, missing: errNoQueue,
		run: c.cfg.Commands.CreateQueue,
	}.serve(c)
}

// updateQueue serves PATCH /v1/queues/{id}.
func (c *call) updateQueue() error {
	return write[orbit.UpdateQueueRequest]{
		parse: orbit.ParseUpdateQueue, permissions: []string{auth.QueuesManage}, missing: errNoQueue,
		run: onSubject(c, c.cfg.Commands.UpdateQueue),
	}.serve(c)
}

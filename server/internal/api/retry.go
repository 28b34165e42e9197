package api

import (
	"context"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// retryTask serves POST /v1/tasks/{id}:retry: a new task that repeats one that is FAILED or
// CANCELLED, answered like a submit (AMB-072). It has the frozen fields of the old one, but
// not its absolute times: it may begin at once, has no start deadline, and its deadline is
// counted anew.
func (c *call) retryTask() error {
	request, content, key, release, err := readCommand(c, orbit.ParseRetry)
	defer release()
	if err != nil {
		return err
	}
	trace, err := traceparent(c.r.Header)
	if err != nil {
		return err
	}
	if err := c.require(auth.TasksSubmit); err != nil {
		return err
	}
	id, err := sqldb.ParseID(c.subject)
	if err != nil {
		return errNoTask
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	item, err := c.cfg.Commands.Retry(ctx, c.caller(key), id, request, content)
	if err != nil {
		return commandRefusal(err, errNoTask)
	}
	item.Traceparent = trace
	outcome := c.accept(ctx, item)
	if outcome.Err != nil {
		return commandRefusal(outcome.Err, errNoTask)
	}
	return c.respondSubmit(item, outcome)
}

package api

import (
	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// cancelTask serves POST /v1/tasks/{id}:cancel. The answer is 202 while the task runs, 200
// when the cancel has done all that it can (AMB-031).
func (c *call) cancelTask() error {
	return write[orbit.CancelTaskRequest]{
		parse: orbit.ParseCancel, permissions: []string{auth.TasksCancel}, missing: errNoTask,
		run: onSubject(c, c.cfg.Commands.Cancel),
	}.serve(c)
}

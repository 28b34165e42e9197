package api

import (
	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// updateApplication serves PATCH /v1/application. What it changes is shared by all
// namespaces of the application.
func (c *call) updateApplication() error {
	return write[orbit.UpdateApplicationRequest]{
		parse: orbit.ParseUpdateApplication, permissions: []string{auth.QueuesManage, auth.ApplicationsRead}, allQueues: true,
		missing: errNoPath,
		run:     c.cfg.Commands.UpdateApplication,
	}.serve(c)
}

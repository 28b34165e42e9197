package api

import (
	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// reviewTask serves POST /v1/tasks/{id}:review: the only way out of NEEDS_REVIEW (STATE-015).
func (c *call) reviewTask() error {
	return write[orbit.ReviewTaskRequest]{
		parse: orbit.ParseReview, permissions: []string{auth.ReviewsDecide}, missing: errNoTask,
		run: onSubject(c, c.cfg.Commands.Review),
	}.serve(c)
}

package api

import (
	"context"
	"net/http"

	"github.com/orbitkit/orbit/server/internal/auth"
)

// getApplication serves GET /v1/application: the one that the credential belongs to.
func (c *call) getApplication() error {
	if err := c.require(auth.ApplicationsRead); err != nil {
		return err
	}
	if err := c.noQuery(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	a, err := c.reader().Application(ctx, c.principal.Application)
	if err != nil {
		return err
	}
	return c.respond(http.StatusOK, a.AppendJSON(nil))
}

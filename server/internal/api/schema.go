package api

import (
	"net/http"
	"strconv"

	"github.com/orbitkit/orbit/internal/wire"
)

var workerSchemaTag = entityTag(wire.Schema)

// workerSchema serves GET /worker-protocol.schema.json, the JSON Schema of the messages of
// orbit.worker.v1 (WRK-010), to anyone and without an envelope: it is for tools.
func (c *call) workerSchema() error {
	c.answered = true
	h := c.w.Header()
	h.Set("ETag", workerSchemaTag)
	h.Set("Cache-Control", "no-cache") // as for openapi.yaml
	h.Set("X-Content-Type-Options", "nosniff")
	if hasTag(c.r.Header.Values("If-None-Match"), workerSchemaTag) {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/schema+json")
	h.Set("Content-Length", strconv.Itoa(len(wire.Schema)))
	c.w.WriteHeader(http.StatusOK)
	c.w.Write(wire.Schema) // a client that has gone is nobody's error
	return nil
}

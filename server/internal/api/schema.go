package api

import "github.com/orbitkit/orbit/internal/wire"

var workerDocument = newDocument(wire.Schema, "application/schema+json")

// workerSchema serves GET /worker-protocol.schema.json, the JSON Schema of the messages of
// orbit.worker.v1 (WRK-010).
func (c *call) workerSchema() error { return workerDocument.serve(c) }

package api

import (
	"encoding/json"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// capabilities serves GET /v1/capabilities to any valid credential (API-032).
func (c *call) capabilities() error {
	if err := c.noQuery(); err != nil {
		return err
	}
	data, err := json.Marshal(orbit.Capabilities{
		Contract:               orbit.ContractName,
		Digests:                []string{orbit.DigestAlgorithm},
		IdempotencyRetentionMS: uint64(orbit.IdempotencyRetention.Milliseconds()),
		Batch:                  orbit.BatchCapacity{MaxItems: orbit.MaxBatchItems, MaxBytes: orbit.MaxBodyBytes},
		WorkerProtocols:        []string{wire.Protocol},
		ApplicationID:          c.principal.Application.String(),
		NamespaceID:            c.principal.Namespace.String(),
		Permissions:            append([]string{}, c.principal.Permissions...),
	})
	if err != nil {
		return err
	}
	return c.respond(http.StatusOK, data)
}

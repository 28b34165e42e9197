package api

import _ "embed"

// openapi describes this interface. The tests of this package hold every exchange to it.
//
//go:embed openapi.yaml
var openapi []byte

var openapiDocument = newDocument(openapi, "application/yaml") // RFC 9512

// description serves GET /openapi.yaml.
func (c *call) description() error { return openapiDocument.serve(c) }

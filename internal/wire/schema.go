package wire

import _ "embed"

// Schema is the JSON Schema (2020-12) of all messages (WRK-010). Contract tests hold it
// and the types of this package to each other.
//
//go:embed schema.json
var Schema []byte

package api

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// openapi describes this interface. The tests of this package hold every exchange to it.
//
//go:embed openapi.yaml
var openapi []byte

var openapiTag = entityTag(openapi)

// description serves GET /openapi.yaml, to anyone and without an envelope: it is for tools.
func (c *call) description() error {
	c.answered = true
	h := c.w.Header()
	h.Set("ETag", openapiTag)
	h.Set("Cache-Control", "no-cache") // may be kept, and is to be asked for again
	h.Set("X-Content-Type-Options", "nosniff")
	if hasTag(c.r.Header.Values("If-None-Match"), openapiTag) {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/yaml") // RFC 9512
	h.Set("Content-Length", strconv.Itoa(len(openapi)))
	c.w.WriteHeader(http.StatusOK)
	c.w.Write(openapi) // a client that has gone is nobody's error
	return nil
}

func entityTag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// hasTag reports whether the values of If-None-Match name tag, weakly or not, or anything
// (RFC 9110). Ours has no comma inside.
func hasTag(values []string, tag string) bool {
	for _, line := range values {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

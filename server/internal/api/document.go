package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// A document is text for tools that is the same for everyone. It is served without a
// credential and without an envelope.
type document struct {
	content []byte
	media   string
	tag     string
}

func newDocument(content []byte, media string) document {
	sum := sha256.Sum256(content)
	return document{content, media, `"` + hex.EncodeToString(sum[:]) + `"`}
}

// serve answers with the document, or that the client has it already.
func (d document) serve(c *call) error {
	c.answered = true
	h := c.w.Header()
	h.Set("ETag", d.tag)
	h.Set("Cache-Control", "no-cache") // may be kept, and is to be asked for again
	h.Set("X-Content-Type-Options", "nosniff")
	if hasTag(c.r.Header.Values("If-None-Match"), d.tag) {
		c.status = http.StatusNotModified
		c.w.WriteHeader(c.status)
		return nil
	}
	h.Set("Content-Type", d.media)
	h.Set("Content-Length", strconv.Itoa(len(d.content)))
	c.status = http.StatusOK
	c.w.WriteHeader(c.status)
	c.w.Write(d.content) // a client that has gone is nobody's error
	return nil
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

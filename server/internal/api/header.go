package api

import (
	"mime"
	"net/http"
	"strings"

	"github.com/orbitkit/orbit"
)

// single returns the value of a header that may occur once (API-026).
func single(h http.Header, name string) (value string, present bool, err error) {
	values := h.Values(name)
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", true, badRequest("header " + name + " must occur once")
}

// checkContent holds a write to application/json without content encoding (API-021,
// API-034).
func checkContent(h http.Header) error {
	for _, encoding := range h.Values("Content-Encoding") {
		if !strings.EqualFold(encoding, "identity") {
			return unsupported("Content-Encoding must be identity")
		}
	}
	value, _, err := single(h, "Content-Type")
	if err != nil {
		return err
	}
	if strings.Count(strings.ToLower(value), "charset") > 1 { // ParseMediaType takes the same twice
		return unsupported("Content-Type must have charset once")
	}
	media, parameters, err := mime.ParseMediaType(value)
	if err != nil || media != "application/json" {
		return unsupported("Content-Type must be application/json")
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return unsupported("Content-Type must have no parameter but charset=utf-8")
		}
	}
	return nil
}

// idempotencyKey returns the key of a write of a single item (API-002).
func idempotencyKey(h http.Header) (string, error) {
	key, present, err := single(h, orbit.HeaderIdempotencyKey)
	if err != nil {
		return "", err
	}
	if !present {
		return "", badRequest("header Idempotency-Key is required")
	}
	return key, orbit.ValidateIdempotencyKey(key)
}

// traceparent returns the optional trace context (API-033).
func traceparent(h http.Header) (string, error) {
	text, present, err := single(h, orbit.HeaderTraceparent)
	if err != nil || !present {
		return "", err
	}
	return text, orbit.ValidateTraceparent(text)
}

// prefersMinimal reports whether the client asks for return=minimal (RFC 7240).
func prefersMinimal(h http.Header) bool {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(preference), "return=minimal") {
				return true
			}
		}
	}
	return false
}

package orbit

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// Codes of an error answer. The set is closed (ERR-014).
const (
	CodeInvalidArgument      = "INVALID_ARGUMENT"
	CodeUnauthenticated      = "UNAUTHENTICATED"
	CodePermissionDenied     = "PERMISSION_DENIED"
	CodeNotFound             = "NOT_FOUND"
	CodeIdempotencyConflict  = "IDEMPOTENCY_CONFLICT"
	CodeStateConflict        = "STATE_CONFLICT"
	CodeBodyTooLarge         = "BODY_TOO_LARGE"
	CodeUnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE"
	CodeApplicationFull      = "APPLICATION_FULL"
	CodeQueueFull            = "QUEUE_FULL"
	CodeUnavailable          = "UNAVAILABLE"
)

// ConflictMessage is the message of every IDEMPOTENCY_CONFLICT (ERR-013).
const ConflictMessage = "idempotency key was used with different content"

// CodeBelongsTo reports whether an Orbit server answers code with this HTTP
// status. An answer for which it is false does not come from Orbit.
func CodeBelongsTo(status int, code string) bool {
	switch status {
	case 400, 405:
		return code == CodeInvalidArgument
	case 401:
		return code == CodeUnauthenticated
	case 403:
		return code == CodePermissionDenied
	case 404:
		return code == CodeNotFound
	case 409:
		return code == CodeIdempotencyConflict || code == CodeStateConflict
	case 413:
		return code == CodeBodyTooLarge
	case 415:
		return code == CodeUnsupportedMediaType
	case 429:
		return code == CodeApplicationFull || code == CodeQueueFull
	case 503:
		return code == CodeUnavailable
	}
	return false
}

// An InvalidArgumentError tells which field breaks which rule. It never holds a
// value, so it may be logged and sent. The sender has to correct the request.
type InvalidArgumentError struct {
	Field string // path such as retry.max_attempts or payload.items[3]; "body" for the document itself
	Rule  string // such as "must be at most 100"
}

// Error returns the field and the rule.
func (e *InvalidArgumentError) Error() string { return e.Field + ": " + e.Rule }

func invalid(field, rule string) error { return &InvalidArgumentError{Field: field, Rule: rule} }

func invalidf(field, format string, args ...any) error {
	return invalid(field, fmt.Sprintf(format, args...))
}

// invalidDocument turns an error of strict reading into ours. Whole names the
// document where the error has no path.
func invalidDocument(err error, whole string) error {
	var strict *strictjson.Error
	if !errors.As(err, &strict) {
		return err
	}
	if strict.Path == "" {
		return invalid(whole, strict.Rule)
	}
	return invalid(strict.Path, strict.Rule)
}

// within puts a path in front of the field of err.
func within(path string, err error) error {
	var bad *InvalidArgumentError
	if !errors.As(err, &bad) {
		return err
	}
	return invalid(path+"."+bad.Field, bad.Rule)
}

// An APIError is an error answer of an Orbit server, read from a valid error
// envelope. What the caller should do depends on Code.
type APIError struct {
	Status        int    // HTTP status
	Code          string // one of the Code constants
	Message       string // for people; holds no payload and no credential
	RequestID     string // names the request in the server's log
	RetryAfter    time.Duration
	HasRetryAfter bool // RetryAfter was given
}

// Error returns code, message and request id.
func (e *APIError) Error() string {
	return fmt.Sprintf("orbit: server answered %d %s: %s (request %s)", e.Status, e.Code, e.Message, e.RequestID)
}

// An UnknownOutcomeError reports that no answer could be had or read. Nothing may
// be concluded from it: a write may have happened. The caller keeps key and
// content and repeats or asks. It wraps the cause; for a 503 that is the
// [*APIError].
type UnknownOutcomeError struct {
	Act    string // what was tried
	Status int    // HTTP status if there was one, else 0
	Err    error
}

// Error returns the act, the status and the cause.
func (e *UnknownOutcomeError) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("orbit: %s: outcome unknown: %v", e.Act, e.Err)
	}
	return fmt.Sprintf("orbit: %s: outcome unknown (HTTP status %d): %v", e.Act, e.Status, e.Err)
}

// Unwrap returns the cause.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

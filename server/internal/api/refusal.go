package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// A refusal is an error answer. Its message is for people and holds neither token nor
// payload.
type refusal struct {
	status     int
	code       string
	message    string
	retryAfter time.Duration // zero means none is given
	allow      string        // methods that the path has
}

// Error returns the message.
func (e *refusal) Error() string { return e.message }

var (
	errNoPath      = notFound("no such path")
	errNoID        = notFound("no such path: the id is missing?")
	errNoTask      = notFound("no such task")
	errUnavailable = &refusal{
		status:  http.StatusServiceUnavailable,
		code:    orbit.CodeUnavailable,
		message: "the outcome is unknown: repeat with the same idempotency key",
	}
)

func notFound(message string) *refusal {
	return &refusal{status: http.StatusNotFound, code: orbit.CodeNotFound, message: message}
}

func denied(message string) *refusal {
	return &refusal{status: http.StatusForbidden, code: orbit.CodePermissionDenied, message: message}
}

func badRequest(message string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: orbit.CodeInvalidArgument, message: message}
}

func unsupported(message string) *refusal {
	return &refusal{status: http.StatusUnsupportedMediaType, code: orbit.CodeUnsupportedMediaType, message: message}
}

// unavailable says that nothing was done, and when to try again.
func unavailable(message string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, code: orbit.CodeUnavailable, message: message, retryAfter: time.Second,
	}
}

// quotaFull says that a limit of unfinished tasks is reached. Nothing was accepted, so the
// same key may be used again (ERR-009…011).
func quotaFull(code string, err error) *refusal {
	return &refusal{status: http.StatusTooManyRequests, code: code, message: err.Error(), retryAfter: time.Second}
}

// refusalOf tells how err is answered. It reports false for an error that nobody foresaw,
// which is to be logged.
func refusalOf(err error) (*refusal, bool) {
	var known *refusal
	var invalid *orbit.InvalidArgumentError
	switch {
	case errors.As(err, &known):
		return known, true
	case errors.As(err, &invalid):
		return badRequest(invalid.Error()), true
	case errors.Is(err, quota.ErrApplicationFull):
		return quotaFull(orbit.CodeApplicationFull, err), true
	case errors.Is(err, quota.ErrQueueFull):
		return quotaFull(orbit.CodeQueueFull, err), true
	case errors.Is(err, accept.ErrTooLong):
		return unavailable(accept.ErrTooLong.Error()), true
	case errors.Is(err, accept.ErrConflict):
		return &refusal{
			status: http.StatusConflict, code: orbit.CodeIdempotencyConflict, message: orbit.ConflictMessage,
		}, true
	}
	return errUnavailable, false
}

// seconds is the form of Retry-After: whole seconds, at least one (AMB-058).
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}

package guardhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/orbitkit/orbit/resourceguard"
)

// retryAfter is how long, in whole seconds, who is told to send again should wait.
const retryAfter = 1

// A problem is the body of a refusal (RFC 9457). Tokens are decimal strings, since many
// readers of JSON round large numbers.
type problem struct {
	Title          string `json:"title"`
	Status         int    `json:"status"`
	Code           string `json:"code"`
	Header         string `json:"header,omitempty"`
	Field          string `json:"field,omitempty"`
	Rule           string `json:"rule,omitempty"`
	Presented      string `json:"presented,omitempty"`
	Highest        string `json:"highest,omitempty"`
	AlreadyApplied *bool  `json:"already_applied,omitempty"`
}

// Refuse answers a typed error of the guard, or a [*HeaderError], with its status and
// problem body, see the package comment. It reports false and writes nothing if err is nil
// or another error, such as one of the business write: the owner knows its status. Other
// attempts, contents and what an AuthoriseFunc says stay out of the answer.
func Refuse(w http.ResponseWriter, err error) bool {
	p, ok := problemOf(err)
	if !ok {
		return false
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers can always be written
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(p.Status)
	w.Write(body)
	return true
}

func problemOf(err error) (problem, bool) {
	var header *HeaderError
	var invalid *resourceguard.InvalidError
	var stale *resourceguard.StaleError
	switch {
	case errors.Is(err, resourceguard.ErrUnknownCommit): // before what a later run met
		return problem{Title: "whether it was written is unknown: send the same again", Status: http.StatusServiceUnavailable, Code: "unknown"}, true
	case errors.As(err, &header):
		return problem{Title: "a header is not valid", Status: http.StatusBadRequest, Code: "invalid", Header: header.Header, Rule: header.Rule}, true
	case errors.As(err, &invalid) && fromCaller[invalid.Field]:
		return problem{Title: "the write is not valid", Status: http.StatusBadRequest, Code: "invalid", Field: invalid.Field, Rule: invalid.Rule}, true
	case errors.As(err, &stale):
		return problem{
			Title: "the token is stale: another attempt owns the resource", Status: http.StatusPreconditionFailed, Code: "stale",
			Presented: strconv.FormatUint(stale.Presented, 10), Highest: strconv.FormatUint(stale.Highest, 10), AlreadyApplied: &stale.AlreadyApplied,
		}, true
	case errors.Is(err, resourceguard.ErrTokenCollision):
		p := problem{Title: "the token belongs to another attempt", Status: http.StatusConflict, Code: "token_collision"}
		if collision := (*resourceguard.CollisionError)(nil); errors.As(err, &collision) {
			p.AlreadyApplied = &collision.AlreadyApplied
		}
		return p, true
	case errors.Is(err, resourceguard.ErrOperationConflict):
		return problem{Title: "the operation was applied with other content", Status: http.StatusConflict, Code: "operation_conflict"}, true
	case errors.Is(err, resourceguard.ErrNotAuthorised):
		return problem{Title: "the caller may not use this key", Status: http.StatusForbidden, Code: "not_authorised"}, true
	case errors.Is(err, resourceguard.ErrRetryable):
		return problem{Title: "the database could not judge: send the same again", Status: http.StatusServiceUnavailable, Code: "retry"}, true
	}
	return problem{}, false
}

// fromCaller are the fields of a write that come from the request. The others, such as
// the receipt, are mistakes of the owner's program.
var fromCaller = map[string]bool{"namespace": true, "key": true, "token": true, "attempt": true, "operation": true, "content": true}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/outbox"
)

// A problem is an answer other than success (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"` // of the request, that breaks the rule
	Rule   string `json:"rule,omitempty"`
	// Done is what was done before the failure.
	Done *did `json:"done,omitempty"`
}

func refuse(w http.ResponseWriter, p problem) {
	p.Title = http.StatusText(p.Status)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(p)
}

// statusOf sorts errors by who has to do something. Only those of our own words have a
// status below 500.
func statusOf(err error) int {
	var invalid *orbit.InvalidArgumentError
	var strict *strictjson.Error
	switch {
	case errors.As(err, &invalid), errors.As(err, &strict):
		return http.StatusBadRequest
	case errors.Is(err, errBody):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, outbox.ErrNotFound), errors.Is(err, outbox.ErrNoHold):
		return http.StatusNotFound
	case errors.Is(err, outbox.ErrState), errors.Is(err, outbox.ErrTooOld), errors.Is(err, outbox.ErrTooLate), errors.Is(err, outbox.ErrUnknownOutcome):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// problemOf says what went wrong. The database's words stay in the log; an act that it may
// have carried out all the same is never called a failure.
func problemOf(r *http.Request, result any, err error) problem {
	p := problem{Status: statusOf(err), Detail: err.Error()}
	var invalid *orbit.InvalidArgumentError
	var strict *strictjson.Error
	switch {
	case errors.As(err, &invalid):
		p.Field, p.Rule = invalid.Field, invalid.Rule
	case errors.As(err, &strict):
		p.Field, p.Rule = strict.Path, strict.Rule
		if p.Field == "" {
			p.Field = "body"
		}
		p.Detail = p.Field + ": " + p.Rule
	case isDenied(err):
		p.Detail = "the database refuses the relay's user a right: see the relay's log"
	case p.Status >= http.StatusInternalServerError && r.Method == http.MethodPost:
		p.Detail = "the database failed, see the relay's log: the act may or may not have been carried out, look before you repeat it"
	case p.Status >= http.StatusInternalServerError:
		p.Detail = "the database failed or took too long: see the relay's log"
	}
	if d, acted := result.(did); acted && d.Count > 0 {
		p.Done = &d
	}
	return p
}

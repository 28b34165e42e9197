package api

import (
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// logFailure logs why a request could not be answered. A request whose client has gone
// is no failure of the server.
func (c *call) logFailure(err error) {
	if c.r.Context().Err() != nil {
		return
	}
	c.cfg.Log.ErrorContext(c.r.Context(), "request failed", "request_id", c.id.String(),
		"err", describe(c.cfg.DB.Dialect(), err))
}

// describe is the text of err without the words of the database engine beyond their
// number: they may quote a value, or the statement that holds it (ERR-015).
func describe(d *sqldb.Dialect, err error) string {
	text := err.Error()
	if !d.Refused(err) {
		return text
	}
	for _, cause := range roots(err) {
		if d.Refused(cause) {
			code, _, _ := strings.Cut(cause.Error(), ":")
			text = strings.ReplaceAll(text, cause.Error(), code)
		}
	}
	return text
}

// roots returns the errors that err wraps and that wrap nothing.
func roots(err error) []error {
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		if inner := u.Unwrap(); inner != nil {
			return roots(inner)
		}
	case interface{ Unwrap() []error }:
		var all []error
		for _, inner := range u.Unwrap() {
			all = append(all, roots(inner)...)
		}
		return all
	}
	return []error{err}
}

package api

import (
	"context"
	"log/slog"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// logFailure logs why a request could not be answered. A request whose client has gone
// is no failure of the server.
func (c *call) logFailure(err error) {
	if c.r.Context().Err() != nil {
		return
	}
	c.logged = true
	c.cfg.Log.ErrorContext(c.r.Context(), "request failed", "request_id", c.id.String(), "err", err)
}

// Quiet returns log with the words of the database engine taken out of errors, but for
// the number that they begin with: they may quote a value, or the statement that holds it
// (ERR-015).
func Quiet(log *slog.Logger, d *sqldb.Dialect) *slog.Logger {
	return slog.New(&quietHandler{log.Handler(), d})
}

type quietHandler struct {
	slog.Handler
	dialect *sqldb.Dialect
}

// Handle implements [slog.Handler].
func (h *quietHandler) Handle(ctx context.Context, r slog.Record) error {
	quiet := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		quiet.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, quiet)
}

// WithAttrs implements [slog.Handler].
func (h *quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	quiet := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		quiet[i] = h.attr(a)
	}
	return &quietHandler{h.Handler.WithAttrs(quiet), h.dialect}
}

// WithGroup implements [slog.Handler].
func (h *quietHandler) WithGroup(name string) slog.Handler {
	return &quietHandler{h.Handler.WithGroup(name), h.dialect}
}

func (h *quietHandler) attr(a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		return slog.String(a.Key, describe(h.dialect, err))
	}
	return a
}

// describe is the text of err without the engine's words.
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

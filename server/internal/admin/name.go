package admin

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxName        = 128 // bytes
	maxEnvironment = 64
)

// An InvalidError refuses a request before anything is written.
type InvalidError struct {
	Field string // such as "application"
	Rule  string
}

// Error returns the field and the rule.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Rule }

// checkName holds the name of something to what people can read and tell apart.
func checkName(field, name string, most int) error {
	switch {
	case name == "":
		return &InvalidError{field, "is required"}
	case len(name) > most:
		return &InvalidError{field, fmt.Sprintf("must be at most %d bytes long", most)}
	case !utf8.ValidString(name):
		return &InvalidError{field, "must be valid UTF-8"}
	case strings.IndexFunc(name, unicode.IsControl) >= 0:
		return &InvalidError{field, "must not contain control characters"}
	case strings.TrimSpace(name) != name:
		return &InvalidError{field, "must not begin or end with white space"}
	}
	return nil
}

package command

import (
	"fmt"
	"strings"
)

// changes are what a command has set, as the audit tells it: such as "max_backlog 0 -> 10,
// paused true". Names are quoted, so that one cannot look like another change.
type changes struct{ text strings.Builder }

// String returns the changes in the order in which they were made, or "nothing".
func (c *changes) String() string {
	if c.text.Len() == 0 {
		return "nothing"
	}
	return c.text.String()
}

func (c *changes) add(format string, args ...any) {
	if c.text.Len() > 0 {
		c.text.WriteString(", ")
	}
	fmt.Fprintf(&c.text, format, args...)
}

// set notes the value of something new.
func (c *changes) set(field string, value any) { c.add("%s %s", field, printed(value)) }

// setTo gives *present the value that is wanted, if one is, and reports whether that is
// another one.
func setTo[T comparable](c *changes, field string, present, wanted *T) bool {
	if wanted == nil || *wanted == *present {
		return false
	}
	c.add("%s %s -> %s", field, printed(*present), printed(*wanted))
	*present = *wanted
	return true
}

func printed(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(value)
}

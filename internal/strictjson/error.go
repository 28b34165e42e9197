package strictjson

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxShownName = 64  // characters of one foreign name shown in a path
	maxShownPath = 512 // bytes of a path shown in an error
)

// An Error tells what in a document breaks which rule. It holds names of members,
// shortened, and never a value.
type Error struct {
	Path string // such as payload.items[3].price; empty for the document itself
	Rule string // such as "must not be null"
}

// Error returns the path and the rule.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Rule
	}
	return e.Path + ": " + e.Rule
}

// appendName appends one member name to a path. A name that is not a plain word
// is quoted, so that it cannot forge another path or a line of a log.
func appendName(path []byte, name string) []byte {
	if !isWord(name) {
		return append(strconv.AppendQuoteToASCII(append(path, '['), shorten(name)), ']')
	}
	if len(path) > 0 {
		path = append(path, '.')
	}
	return append(path, name...)
}

func isWord(name string) bool {
	if name == "" || len(name) > maxShownName {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return r >= utf8.RuneSelf || r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) < 0
}

func shorten(name string) string {
	n := 0
	for i := range name {
		if n == maxShownName {
			return name[:i] + "…"
		}
		n++
	}
	return name
}

// Under returns the path of e in a document that holds this one as member name.
func (e *Error) Under(name string) string {
	if e.Path == "" || e.Path[0] == '[' {
		return name + e.Path
	}
	return name + "." + e.Path
}

package strictjson

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many levels of objects and arrays a task object may have,
// itself being the first.
const MaxDepth = 32

const (
	ruleDepth     = "must not be nested deeper than 32 levels"
	ruleDuplicate = "duplicate member name"
	ruleSyntax    = "is not valid JSON (syntax or lone surrogate)"
	ruleUTF8      = "is not valid UTF-8"
	ruleEmpty     = "must be a JSON document, but is empty"
	ruleTruncated = "is cut off: the JSON document does not end"
	ruleTrailing  = "must be one JSON document with nothing after it"
)

// A reader walks the tokens of one document held in memory. Values that it
// returns are parts of that memory.
type reader struct {
	dec     *jsontext.Decoder
	buf     bytes.Buffer
	data    []byte
	limit   int      // deepest level allowed
	longest int      // longest number literal allowed
	members []member // stack of the objects being put in order
	names   []byte   // of those members, decoded
	scratch []byte   // room to put members in order
}

var readers = sync.Pool{New: func() any { return &reader{dec: new(jsontext.Decoder)} }}

// newReader starts a walk in which the document may have limit levels.
func newReader(data []byte, limit int) *reader {
	r := readers.Get().(*reader)
	r.data, r.limit, r.longest = data, limit, MaxNumberLength
	r.buf = *bytes.NewBuffer(data)
	r.dec.Reset(&r.buf)
	return r
}

// free gives the reader back, without the caller's memory.
func (r *reader) free() {
	const keep = 64 << 10 // larger rooms are left to the collector
	r.members, r.names, r.data = r.members[:0], r.names[:0], nil
	if cap(r.scratch)+cap(r.names) > keep || cap(r.members) > keep/32 {
		r.scratch, r.names, r.members = nil, nil, nil
	}
	r.buf = bytes.Buffer{}
	r.dec.Reset(&r.buf)
	readers.Put(r)
}

// scalar reads a name, string, number or literal as its text.
func (r *reader) scalar() ([]byte, error) {
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.syntax(err)
	}
	return v, nil
}

// open reads the bracket that starts an object or array.
func (r *reader) open() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.syntax(err)
	}
	if r.dec.StackDepth() > r.limit {
		return r.fail(ruleDepth)
	}
	return nil
}

// more reports whether the object or array just entered has a next element. At
// its end the closing bracket is read.
func (r *reader) more(closing jsontext.Kind) (bool, error) {
	if r.dec.PeekKind() != closing {
		return true, nil // also on an error: the next read reports it
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return false, r.syntax(err)
	}
	return false, nil
}

// skip validates the next value without looking into it further.
func (r *reader) skip() error {
	for outside := r.dec.StackDepth(); ; {
		if err := r.skipToken(); err != nil {
			return err
		}
		if r.dec.StackDepth() == outside {
			return nil
		}
	}
}

func (r *reader) skipToken() error {
	switch r.dec.PeekKind() {
	case '{', '[':
		return r.open()
	case '}', ']':
		if _, err := r.dec.ReadToken(); err != nil {
			return r.syntax(err)
		}
		return nil
	}
	text, err := r.scalar()
	if err != nil || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return err
	}
	if rule := checkNumber(text); rule != "" {
		return r.fail(rule)
	}
	return nil
}

// end makes sure that nothing follows the document.
func (r *reader) end() error {
	switch _, err := r.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	default:
		return &Error{Rule: ruleTrailing}
	}
}

// fail reports that what was read last breaks a rule.
func (r *reader) fail(rule string) error {
	return &Error{Path: r.path(r.dec.StackPointer()), Rule: rule}
}

// syntax turns an error of the tokenizer into ours. Its text is dropped, for it
// quotes the document.
func (r *reader) syntax(err error) error {
	if errors.Is(err, io.EOF) {
		return &Error{Rule: ruleEmpty}
	}
	var where *jsontext.SyntacticError
	if !errors.As(err, &where) {
		return &Error{Rule: ruleSyntax}
	}
	path := r.path(where.JSONPointer)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Path: path, Rule: ruleDuplicate}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Path: path, Rule: ruleTruncated}
	}
	rule := ruleSyntax
	if !utf8.Valid(r.data) {
		rule = ruleUTF8
	}
	return &Error{Path: path, Rule: rule + ", byte " + strconv.FormatInt(where.ByteOffset, 10)}
}

// path renders a pointer in the form payload.items[3].price. The tokenizer's
// stack tells a position from a name that is made of digits; inside a value that is read
// as a whole there is none, and digits are taken for a position.
func (r *reader) path(p jsontext.Pointer) string {
	var path []byte
	level := 0
	for name := range p.Tokens() {
		level++
		if len(path) > maxShownPath {
			return string(path) + "…"
		}
		inside := level > r.dec.StackDepth()
		if !inside && r.isArray(level) || inside && name != "" && isDigits([]byte(name)) {
			path = append(append(append(path, '['), name...), ']')
			continue
		}
		path = appendName(path, name)
	}
	return string(path)
}

func (r *reader) isArray(level int) bool {
	kind, _ := r.dec.StackIndex(level)
	return kind == '['
}

// Trim removes the white space of JSON around a document.
func Trim(data []byte) []byte { return bytes.Trim(data, " \t\r\n") }

package orbit

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// An object writes the members of one JSON object in the order of the calls.
// encoding/json cannot: it re-formats raw text.
type object struct {
	dst  []byte
	more bool
}

func (o *object) name(name string) {
	if o.more {
		o.dst = append(o.dst, ',')
	}
	o.more = true
	o.dst = append(append(append(o.dst, '"'), name...), '"', ':')
}

func (o *object) string(name, value string) {
	o.name(name)
	if !utf8.ValidString(value) { // a stored error text may be cut inside a character
		value = string(bytes.ToValidUTF8([]byte(value), []byte("\uFFFD")))
	}
	o.dst = strictjson.AppendCanonicalString(o.dst, value)
}

func (o *object) raw(name string, text json.RawMessage) {
	o.name(name)
	o.dst = append(o.dst, text...)
}

func (o *object) uint(name string, value uint64) {
	o.name(name)
	o.dst = strconv.AppendUint(o.dst, value, 10)
}

// decimal writes a uint64 as a string, which no reader turns into a float.
func (o *object) decimal(name string, value uint64) {
	o.name(name)
	o.dst = append(strconv.AppendUint(append(o.dst, '"'), value, 10), '"')
}

func (o *object) time(name string, t time.Time) {
	o.name(name)
	o.dst = append(AppendTime(append(o.dst, '"'), t), '"')
}

func (o *object) optionalString(name, value string) {
	if value != "" {
		o.string(name, value)
	}
}

func (o *object) optionalRaw(name string, text json.RawMessage) {
	if len(text) > 0 {
		o.raw(name, text)
	}
}

func (o *object) optionalUint(name string, value uint64) {
	if value != 0 {
		o.uint(name, value)
	}
}

func (o *object) optionalDecimal(name string, value uint64) {
	if value != 0 {
		o.decimal(name, value)
	}
}

func (o *object) optionalTime(name string, t *time.Time) {
	if t != nil {
		o.time(name, *t)
	}
}

// optionalCount writes a count that may not be known.
func (o *object) optionalCount(name string, value *uint64) {
	if value != nil {
		o.uint(name, *value)
	}
}

// limit writes a number that may not be given, as it is sent or as the canonical text of
// a command has it.
func (o *object) limit(name string, value *uint64, inCanonicalText bool) {
	switch {
	case value == nil:
	case inCanonicalText:
		o.name(name)
		o.dst = strictjson.AppendCanonicalUint(o.dst, *value)
	default:
		o.uint(name, *value)
	}
}

func (o *object) bool(name string, value bool) {
	o.name(name)
	o.dst = strconv.AppendBool(o.dst, value)
}

func (o *object) optionalTrue(name string, value bool) {
	if value {
		o.bool(name, true)
	}
}

func (o *object) end() []byte { return append(o.dst, '}') }

package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

const (
	ruleUnknown  = "is not a known field (names match exactly)"
	ruleNull     = "must not be null"
	ruleRequired = "is required"
	ruleObject   = "must be a JSON object"
	ruleArray    = "must be an array"
	ruleString   = "must be a string"
	ruleBool     = "must be true or false"
	ruleInteger  = "must be an integer literal without sign, fraction, exponent or quotes"
)

// A Value is a member whose content is not the contract's: its text as received,
// without surrounding white space, and its canonical text. It is never null.
type Value struct {
	Raw       json.RawMessage
	Canonical []byte
}

// Decode reads one strict JSON object into the struct that v points to. Names are
// those of the json tags and match exactly; unknown, duplicate and null members
// are refused. It knows strings, bools, integers (as unsigned literals), structs,
// pointers, slices, [encoding.TextUnmarshaler] (from a string), [Value] and
// [json.RawMessage] (copies of the text). The tag strict:"required" wants the
// member present, strict:"nullable" takes null as absent.
//
// What v holds after an error is not defined. A v of another type is a mistake of
// the program and panics.
func Decode(data []byte, v any) error { return DecodeInside(data, v, 0) }

// DecodeInside is [Decode] for a carrier: its first levels are not counted towards
// [MaxDepth]. A carrier that holds a task object two levels down passes 2.
func DecodeInside(data []byte, v any, carrier int) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("strictjson: Decode into %T", v))
	}
	r := newReader(data, MaxDepth+carrier)
	defer r.free()
	if err := r.structure(target.Elem()); err != nil {
		return err
	}
	return r.end()
}

// value fills one member that is not null.
func (r *reader) value(v reflect.Value) error {
	switch target := v.Addr().Interface().(type) {
	case *Value:
		return r.foreign(target)
	case *json.RawMessage:
		return r.raw(target)
	case encoding.TextUnmarshaler:
		return r.text(target)
	}
	switch v.Kind() {
	case reflect.Struct:
		return r.structure(v)
	case reflect.Slice:
		return r.slice(v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(v.Elem())
	case reflect.String:
		text, err := r.stringText()
		v.SetString(string(text))
		return err
	case reflect.Bool:
		return r.bool(v)
	}
	return r.integer(v)
}

// structure reads an object into a struct.
func (r *reader) structure(v reflect.Value) error {
	if r.dec.PeekKind() != '{' {
		return r.mismatch(ruleObject)
	}
	if err := r.open(); err != nil {
		return err
	}
	plan := planOf(v.Type())
	var seen uint64
	for {
		more, err := r.more('}')
		if err != nil {
			return err
		}
		if !more {
			return r.complete(plan, seen)
		}
		i, err := r.member(plan, v)
		if err != nil {
			return err
		}
		seen |= 1 << i
	}
}

// member reads a name and its value and returns which field it was.
func (r *reader) member(plan *plan, v reflect.Value) (int, error) {
	literal, err := r.scalar()
	if err != nil {
		return 0, err
	}
	i, known := plan.byName[string(unquote(literal))]
	if !known {
		return 0, r.fail(ruleUnknown)
	}
	f := plan.fields[i]
	if r.dec.PeekKind() != 'n' {
		return i, r.value(v.Field(f.index))
	}
	if _, err := r.scalar(); err != nil {
		return 0, err
	}
	if !f.nullable {
		return 0, r.fail(ruleNull)
	}
	return i, nil
}

// complete refuses an object that lacks a required member.
func (r *reader) complete(plan *plan, seen uint64) error {
	missing := plan.required &^ seen
	if missing == 0 {
		return nil
	}
	for i, f := range plan.fields {
		if missing>>i&1 == 1 {
			path := appendName([]byte(r.path(r.dec.StackPointer())), f.name)
			return &Error{Path: string(path), Rule: ruleRequired}
		}
	}
	panic("strictjson: required field out of range")
}

func (r *reader) slice(v reflect.Value) error {
	if r.dec.PeekKind() != '[' {
		return r.mismatch(ruleArray)
	}
	if err := r.open(); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for {
		more, err := r.more(']')
		if err != nil || !more {
			return err
		}
		if r.dec.PeekKind() == 'n' {
			return r.mismatch(ruleNull)
		}
		element := reflect.New(v.Type().Elem()).Elem()
		if err := r.value(element); err != nil {
			return err
		}
		v.Set(reflect.Append(v, element))
	}
}

// foreign reads a value that the contract does not look into.
func (r *reader) foreign(v *Value) (err error) {
	if r.dec.PeekKind() == 'n' {
		return r.mismatch(ruleNull)
	}
	from := r.dec.InputOffset()
	left := len(r.data) - int(from)
	room := make([]byte, 0, left+left/8) // canonical text is seldom longer: numbers grow a little
	if v.Canonical, err = r.canonical(room); err != nil {
		return err
	}
	v.Raw = r.since(from)
	return nil
}

func (r *reader) raw(v *json.RawMessage) error {
	from := r.dec.InputOffset()
	if err := r.skip(); err != nil {
		return err
	}
	*v = r.since(from)
	return nil
}

// since copies the value that ends here and began after offset from, less the
// colon or comma and the white space before it.
func (r *reader) since(from int64) []byte {
	text := bytes.TrimLeft(r.data[from:r.dec.InputOffset()], ":, \t\r\n")
	return bytes.Clone(text)
}

func (r *reader) text(v encoding.TextUnmarshaler) error {
	literal, err := r.stringText()
	if err != nil {
		return err
	}
	if err := v.UnmarshalText(literal); err != nil {
		return r.fail(err.Error())
	}
	return nil
}

func (r *reader) bool(v reflect.Value) error {
	text, err := r.scalarOr(ruleBool)
	if err != nil {
		return err
	}
	if text[0] != 't' && text[0] != 'f' {
		return r.fail(ruleBool)
	}
	v.SetBool(text[0] == 't')
	return nil
}

func (r *reader) integer(v reflect.Value) error {
	text, err := r.scalarOr(ruleInteger)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	switch {
	case err != nil && isDigits(text), err == nil && overflows(v, n):
		return r.fail("must be at most " + strconv.FormatUint(largest(v), 10))
	case err != nil:
		return r.fail(ruleInteger)
	}
	if v.CanInt() {
		v.SetInt(int64(n))
	} else {
		v.SetUint(n)
	}
	return nil
}

func isDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func overflows(v reflect.Value, n uint64) bool { return n > largest(v) }

func largest(v reflect.Value) uint64 {
	bits := v.Type().Bits()
	if v.CanInt() {
		bits--
	}
	return 1<<bits - 1
}

// stringText reads a string and returns what it says.
func (r *reader) stringText() ([]byte, error) {
	text, err := r.scalarOr(ruleString)
	if err != nil {
		return nil, err
	}
	if text[0] != '"' {
		return nil, r.fail(ruleString)
	}
	return unquote(text), nil
}

// scalarOr reads a value that is neither object nor array.
func (r *reader) scalarOr(rule string) ([]byte, error) {
	switch r.dec.PeekKind() {
	case '{', '[':
		return nil, r.mismatch(rule)
	}
	return r.scalar()
}

// mismatch reads a value only to say that it is of the wrong kind.
func (r *reader) mismatch(rule string) error {
	switch r.dec.PeekKind() {
	case '{', '[':
		if _, err := r.dec.ReadToken(); err != nil {
			return r.syntax(err)
		}
	default:
		if _, err := r.scalar(); err != nil {
			return err
		}
	}
	return r.fail(rule)
}

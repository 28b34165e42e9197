package strictjson

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Cut takes a carrier {"name":[…]} apart and returns the elements of its array as
// parts of data. It fails only for what makes that impossible: invalid UTF-8,
// bad syntax, another member, a second one, not an array of 1 to most elements,
// or data after the document. What is wrong inside an element is left to who
// reads the element: duplicate names, surrogates, numbers and depth pass.
func Cut(data []byte, name string, most int) ([][]byte, error) {
	if !utf8.Valid(data) {
		return nil, &Error{Rule: ruleUTF8}
	}
	elements, err := cut(data, name, most)
	if err == nil {
		return elements, nil
	}
	// The tokenizer gives up below 10,000 levels, which would make the depth of
	// one element a fault of all.
	flat, parts := flatten(data)
	if flat == nil {
		return nil, err
	}
	for _, part := range parts {
		if !wellFormed(part) {
			return nil, &Error{Path: name, Rule: ruleSyntax}
		}
	}
	return cut(flat, name, most)
}

// wellFormed reports whether a value, however deep, has the syntax of JSON.
func wellFormed(value []byte) bool {
	r := newReader(value, MaxDepth)
	defer r.free()
	r.dec.Reset(&r.buf, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := r.dec.ReadValue(); err == nil {
		return r.end() == nil
	}
	flat, parts := flatten(value)
	return flat != nil && wellFormed(flat) && !slices.ContainsFunc(parts, func(p []byte) bool { return !wellFormed(p) })
}

func cut(data []byte, name string, most int) ([][]byte, error) {
	r := newReader(data, MaxDepth)
	defer r.free()
	r.dec.Reset(&r.buf, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if r.dec.PeekKind() != '{' {
		return nil, r.mismatch(ruleObject)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	var elements [][]byte
	for {
		more, err := r.more('}')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if elements, err = r.only(name, elements, most); err != nil {
			return nil, err
		}
	}
	if elements == nil {
		return nil, &Error{Path: name, Rule: ruleRequired}
	}
	return elements, r.end()
}

// only reads the one member that the carrier may have.
func (r *reader) only(name string, before [][]byte, most int) ([][]byte, error) {
	literal, err := r.scalar()
	if err != nil {
		return nil, err
	}
	switch {
	case !bytes.Equal(unquoteLoosely(literal), []byte(name)):
		return nil, r.fail(ruleUnknown)
	case before != nil:
		return nil, r.fail(ruleDuplicate)
	case r.dec.PeekKind() != '[':
		return nil, r.mismatch(ruleArray)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r.elements(name, most)
}

func (r *reader) elements(name string, most int) ([][]byte, error) {
	count := &Error{Path: name, Rule: "must hold 1 to " + strconv.Itoa(most) + " elements"}
	var elements [][]byte
	for {
		more, err := r.more(']')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		element, err := r.scalar()
		if err != nil {
			return nil, err
		}
		if elements = append(elements, element); len(elements) > most {
			return nil, count
		}
	}
	if len(elements) == 0 {
		return nil, count
	}
	return elements, nil
}

// unquoteLoosely is unquote for a name that may hold a lone surrogate; it then
// equals no name of ours.
func unquoteLoosely(literal []byte) []byte {
	text, err := jsontext.AppendUnquote(nil, literal)
	var syntax *jsontext.SyntacticError
	if err != nil && (errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return nil
	}
	return text
}

// flatDepth is where flatten cuts: a little before the tokenizer gives up, far deeper
// than any rule allows.
const flatDepth = 9_000

// flatten returns a copy of data of the same length in which arrays and objects
// that lie flatDepth levels deep are empty, and those arrays and objects; or nil if none
// lies so deep or the brackets do not balance. The copy is too deep for every rule, like
// the original.
func flatten(data []byte) (flat []byte, parts [][]byte) {
	depth, start, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth == flatDepth {
				start = i
			}
		case c == ']' || c == '}':
			if depth--; depth == flatDepth-1 {
				if flat == nil {
					flat = bytes.Clone(data)
				}
				blank(flat[start : i+1])
				parts = append(parts, data[start:i+1])
			}
		}
	}
	if depth != 0 {
		return nil, nil
	}
	return flat, parts
}

func blank(part []byte) {
	for i := range part {
		part[i] = ' '
	}
	part[0], part[1] = '[', ']'
}

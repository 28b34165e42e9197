package strictjson

import (
	"bytes"
	"slices"
)

// member is one member of an object being put in order: where its name stands, decoded,
// among the reader's names, and its canonical text within the output, with the comma that
// follows. It holds no pointer, so that sorting costs the collector nothing.
type member struct {
	name, nameEnd int
	start, end    int
}

// Check validates a whole document. Levels are counted from level, the number of
// levels that lie around the document in its task object.
func Check(data []byte, level int) error {
	r := newReader(data, MaxDepth-level)
	defer r.free()
	if err := r.skip(); err != nil {
		return err
	}
	return r.end()
}

// AppendCanonical validates a whole document and appends its canonical text:
// names in the order of their UTF-8 bytes, strings with the fewest escapes,
// numbers as coefficient and exponent, no white space. Documents that mean the
// same have the same text.
func AppendCanonical(dst, data []byte, level int) ([]byte, error) {
	r := newReader(data, MaxDepth-level)
	defer r.free()
	dst, err := r.canonical(dst)
	if err != nil {
		return nil, err
	}
	return dst, r.end()
}

// canonical reads the next value and appends its canonical text.
func (r *reader) canonical(dst []byte) ([]byte, error) {
	switch r.dec.PeekKind() {
	case '{':
		return r.canonicalObject(dst)
	case '[':
		return r.canonicalArray(dst)
	}
	text, err := r.scalar()
	if err != nil {
		return nil, err
	}
	switch text[0] {
	case '"':
		return appendLiteral(dst, text), nil
	case 'n', 't', 'f':
		return append(dst, text...), nil
	}
	dst, rule := appendNumber(dst, text, r.longest)
	if rule != "" {
		return nil, r.fail(rule)
	}
	return dst, nil
}

// appendLiteral appends the canonical form of a string literal.
func appendLiteral(dst, literal []byte) []byte {
	if bytes.IndexByte(literal, '\\') < 0 {
		return append(dst, literal...) // nothing escaped, so nothing needs to be
	}
	return AppendCanonicalString(dst, unquote(literal))
}

func (r *reader) canonicalArray(dst []byte) ([]byte, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	dst = append(dst, '[')
	for empty := true; ; empty = false {
		more, err := r.more(']')
		if err != nil {
			return nil, err
		}
		if !more {
			return append(dst, ']'), nil
		}
		if !empty {
			dst = append(dst, ',')
		}
		if dst, err = r.canonical(dst); err != nil {
			return nil, err
		}
	}
}

func (r *reader) canonicalObject(dst []byte) ([]byte, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	start, first, names := len(dst), len(r.members), len(r.names)
	for {
		more, err := r.more('}')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if dst, err = r.canonicalMember(dst); err != nil {
			return nil, err
		}
	}
	dst = r.inOrder(dst, start, r.members[first:])
	r.members, r.names = r.members[:first], r.names[:names]
	if len(dst) > start {
		dst = dst[:len(dst)-1] // the comma after the last member
	}
	return append(dst, '}'), nil
}

func (r *reader) canonicalMember(dst []byte) ([]byte, error) {
	name, err := r.scalar()
	if err != nil {
		return nil, err
	}
	m := member{name: len(r.names), start: len(dst)}
	if bytes.IndexByte(name, '\\') < 0 {
		r.names = append(r.names, name[1:len(name)-1]...)
		dst = append(append(dst, name...), ':')
	} else {
		text := unquote(name)
		r.names = append(r.names, text...)
		dst = append(AppendCanonicalString(dst, text), ':')
	}
	m.nameEnd = len(r.names)
	if dst, err = r.canonical(dst); err != nil {
		return nil, err
	}
	dst = append(dst, ',')
	m.end = len(dst)
	r.members = append(r.members, m)
	return dst, nil
}

// inOrder sorts the members that were written from start on.
func (r *reader) inOrder(dst []byte, start int, members []member) []byte {
	byName := func(a, b member) int { return bytes.Compare(r.names[a.name:a.nameEnd], r.names[b.name:b.nameEnd]) }
	if slices.IsSortedFunc(members, byName) {
		return dst
	}
	slices.SortFunc(members, byName)
	r.scratch = append(r.scratch[:0], dst[start:]...)
	dst = dst[:start]
	for _, m := range members {
		dst = append(dst, r.scratch[m.start-start:m.end-start]...)
	}
	return dst
}

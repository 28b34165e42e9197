package wire

import (
	"bytes"
	"io"
	"sync"
)

// Split takes a frame apart that is spelled the way Orbit's own peers spell it: its members
// are type, id, ref and data in this order, with data and without blanks and escapes. It
// looks at nothing of the data, which are a part of text and whatever is left before the
// last bracket. Once they have been read strictly, the whole frame is strict JSON; if that
// fails, or Split reports false, the frame is to be read as any other, which tells what is
// wrong. So a frame is read once, not twice.
func Split(text []byte) (e Envelope, ok bool) {
	rest, ok := bytes.CutPrefix(text, []byte(`{"type":`))
	if !ok {
		return e, false
	}
	kind, rest, ok := plainString(rest)
	if e.Type = types[string(kind)]; !ok || e.Type == "" {
		return e, false
	}
	for _, m := range []struct {
		name  string
		value *string
	}{{`,"id":`, &e.ID}, {`,"ref":`, &e.Ref}} {
		after, there := bytes.CutPrefix(rest, []byte(m.name))
		if !there {
			continue
		}
		var value []byte
		if value, rest, ok = plainString(after); !ok {
			return e, false
		}
		*m.value = string(value)
	}
	data, ok := bytes.CutPrefix(rest, []byte(`,"data":`))
	if !ok || len(data) < 2 || data[len(data)-1] != '}' {
		return e, false
	}
	e.Data = data[:len(data)-1]
	return e, true
}

// types are the message types, so that reading one makes no new string.
var types = make(map[string]string)

func init() {
	for _, t := range []string{
		TypeHello, TypeCredit, TypeStart, TypeResume, TypeRenew, TypeFinish, TypeReturn, TypeDrain,
		TypeHelloOK, TypeAssign, TypeStarted, TypeResumed, TypeRenewed, TypeFinished, TypeReturned, TypeCancel,
		TypeServerDraining, TypeDrainOK, TypeError,
	} {
		types[t] = t
	}
}

// plainString reads a string without escapes and with visible ASCII only, and what follows.
func plainString(text []byte) (value, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	for i, c := range text[1:] {
		switch {
		case c == '"':
			return text[1 : i+1], text[i+2:], true
		case c == '\\' || c <= ' ' || c > '~':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// keepText is how much memory for a frame is kept for the next one.
const keepText = 32 << 10

var texts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// A Text is the text of one frame. Its memory is borrowed when the frame has come: a
// connection that waits for one holds none.
type Text struct{ memory *bytes.Buffer }

// ReadFrom reads the text of a frame to its end.
func (t *Text) ReadFrom(r io.Reader) (int64, error) {
	t.memory = texts.Get().(*bytes.Buffer)
	return t.memory.ReadFrom(r)
}

// Bytes returns what was read.
func (t *Text) Bytes() []byte { return t.memory.Bytes() }

// Return gives the memory back. Nothing may refer to what it holds any more.
func (t *Text) Return() {
	if t.memory == nil || t.memory.Cap() > keepText {
		return
	}
	t.memory.Reset()
	texts.Put(t.memory)
	t.memory = nil
}

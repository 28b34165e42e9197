//go:build linux

package faults

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"testing"
)

// A message is what the tests want to know of a message of the worker protocol.
type message struct {
	Type, ID, Ref string
	Data          struct {
		AttemptID        string `json:"attempt_id"`
		Status           string `json:"status"`
		Code             string `json:"code"`
		LeaseMS          int64  `json:"lease_ms"`
		ConcurrencyToken string `json:"concurrency_token"`
		Task             struct {
			ID             string `json:"id"`
			ConcurrencyKey string `json:"concurrency_key"`
		} `json:"task"`
	}
}

// parseMessage reads a text frame. What cannot be read has no type.
func parseMessage(text []byte) (m message) {
	if json.Unmarshal(text, &m) != nil {
		return message{}
	}
	return m
}

func (m message) token() uint64 {
	n, _ := strconv.ParseUint(m.Data.ConcurrencyToken, 10, 64)
	return n
}

// A scanner finds the text frames in one direction of a WebSocket connection. Frames of
// this protocol are never split (neither side of gorilla/websocket does it with
// WriteMessage), so that one frame is one message.
type scanner struct {
	skipHead bool              // the HTTP head is still to come
	each     func(text []byte) // is given each text frame, unmasked
	rest     []byte
}

var endOfHead = []byte("\r\n\r\n")

// scan takes the next bytes of the stream.
func (s *scanner) scan(p []byte) {
	s.rest = append(s.rest, p...)
	for {
		raw, text := s.next()
		if raw == 0 {
			return
		}
		s.rest = append([]byte(nil), s.rest[raw:]...)
		if text != nil {
			s.each(text)
		}
	}
}

// next returns the length of what comes next, 0 if not all of it is there, and the text if
// it is a text frame.
func (s *scanner) next() (raw int, text []byte) {
	if s.skipHead {
		at := bytes.Index(s.rest, endOfHead)
		if at < 0 {
			return 0, nil
		}
		s.skipHead = false
		return at + len(endOfHead), nil
	}
	return cutFrame(s.rest)
}

// cutFrame is next for the bytes of frames.
func cutFrame(b []byte) (raw int, text []byte) {
	if len(b) < 2 {
		return 0, nil
	}
	size, at := uint64(b[1]&0x7f), 2
	switch size {
	case 126:
		if at += 2; len(b) >= at {
			size = uint64(binary.BigEndian.Uint16(b[2:]))
		}
	case 127:
		if at += 8; len(b) >= at {
			size = binary.BigEndian.Uint64(b[2:])
		}
	}
	var mask []byte
	if masked := b[1]&0x80 != 0; masked {
		at += 4
		mask = b[min(at-4, len(b)):min(at, len(b))]
	}
	if len(b) < at || uint64(len(b)-at) < size {
		return 0, nil
	}
	const textFrame = 1
	raw = at + int(size)
	if b[0]&0x0f != textFrame {
		return raw, nil
	}
	text = bytes.Clone(b[at:raw])
	for i := range text {
		if mask != nil {
			text[i] ^= mask[i%4]
		}
	}
	return raw, text
}

func TestFramesAreFoundHoweverTheStreamIsCut(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300)
	stream := []byte("GET / HTTP/1.1\r\n\r\n")
	stream = append(stream, 0x81, 0x82, 1, 2, 3, 4, 'h'^1, 'i'^2) // masked
	stream = append(stream, 0x89, 0)                              // a ping
	stream = append(append(stream, 0x81, 126, 1, 44), long...)    // 300 bytes
	stream = append(append(stream, 0x81, 127, 0, 0, 0, 0, 0, 0, 1, 44), long...)
	for step := 1; step <= len(stream); step++ {
		var got []string
		s := scanner{skipHead: true, each: func(text []byte) { got = append(got, string(text)) }}
		for at := 0; at < len(stream); at += step {
			s.scan(stream[at:min(at+step, len(stream))])
		}
		if len(got) != 3 || got[0] != "hi" || got[1] != string(long) || got[2] != string(long) {
			t.Fatalf("in steps of %d: found %d frames %.40q", step, len(got), got)
		}
	}
}

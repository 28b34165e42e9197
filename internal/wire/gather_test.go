package wire_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/wire"
)

// A sink notes the writes that reach the network, and the last deadline set.
type sink struct {
	net.Conn
	writes   []string
	deadline time.Time
	err      error
}

func (s *sink) Write(p []byte) (int, error) {
	s.writes = append(s.writes, string(p))
	return len(p), s.err
}

func (s *sink) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

func TestFramesThatAreHeldBackLeaveTogether(t *testing.T) {
	s, by := &sink{}, time.Now().Add(time.Minute)
	g := wire.Gather(s)
	write := func(text string) {
		t.Helper()
		if n, err := g.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	write("alone")
	g.Hold()
	write("a")
	write("b")
	if want := []string{"alone"}; !slices.Equal(s.writes, want) {
		t.Fatalf("wrote %q before the flush, want %q", s.writes, want)
	}
	if err := g.Flush(by); err != nil || !s.deadline.Equal(by) {
		t.Errorf("Flush = %v with the deadline %v, want %v", err, s.deadline, by)
	}
	write("c")
	if want := []string{"alone", "ab", "c"}; !slices.Equal(s.writes, want) {
		t.Errorf("wrote %q, want %q", s.writes, want)
	}
	if err := g.Flush(by.Add(1)); err != nil || !s.deadline.Equal(by) {
		t.Errorf("Flush of nothing = %v, and moved the deadline", err)
	}
}

func TestNoMoreThanABufferIsHeldBackAndTheOrderStays(t *testing.T) {
	const most = 16 << 10
	s := &sink{}
	g := wire.Gather(s)
	g.Hold()
	var all []byte
	for i, size := range []int{1, most - 1, 1, most + 1, 5, 3 * most, most, most, 7} {
		p := bytes.Repeat([]byte{byte('a' + i)}, size)
		all = append(all, p...)
		if n, err := g.Write(p); n != size || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		sent := 0
		for _, w := range s.writes {
			sent += len(w)
		}
		if len(all)-sent > most {
			t.Errorf("%d bytes are held back, want %d at most", len(all)-sent, most)
		}
	}
	if err := g.Flush(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var sent []byte
	for _, w := range s.writes {
		sent = append(sent, w...)
	}
	if !bytes.Equal(sent, all) {
		t.Error("what left is not what was written, in its order")
	}
}

func TestAFlushTellsThatWhatWasHeldBackDidNotLeave(t *testing.T) {
	s := &sink{err: os.ErrDeadlineExceeded}
	g := wire.Gather(s)
	g.Hold()
	if _, err := g.Write([]byte("a")); err != nil {
		t.Fatalf("Write = %v while it is held back", err)
	}
	if err := g.Flush(time.Now()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Flush = %v, want %v", err, os.ErrDeadlineExceeded)
	}
	if err := g.Flush(time.Now()); err != nil || len(s.writes) != 1 {
		t.Errorf("second Flush = %v after %d writes, want nothing left to write", err, len(s.writes))
	}
}

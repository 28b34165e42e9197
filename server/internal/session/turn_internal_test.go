package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// However many messages of one connection wait, the next batch holds the first of another;
// and what has no answer to wait for does not gather.
func TestABatchHoldsTheNextMessageOfEachConnection(t *testing.T) { // REF-WRK-002
	hub, err := New(sqldb.New(sqldb.SQLite, nil, nil), noAuth{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	join := func() *session {
		s := newSession(hub, auth.Principal{})
		s.process, s.capacity = sqldb.NewID(), 1
		hub.board.join(s, "k", []dispatch.Lane{boardLane}, map[sqldb.ID]held{})
		return s
	}
	say := func(s *session, kind string, n int) {
		t.Helper()
		for i := range n {
			data := fmt.Appendf(nil, `{"attempt_id":%q,"epoch":1}`, sqldb.NewID())
			if kind == wire.TypeDrain {
				data = nil
			}
			if err := s.handle(wire.Envelope{Type: kind, ID: fmt.Sprint(i), Data: data}); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood, other := join(), join()
	say(flood, wire.TypeRenew, 500)
	say(other, wire.TypeRenew, 1)
	say(flood, wire.TypeDrain, 500)
	found := false
	for _, job := range hub.renewals.take() {
		found = found || job.item.Process == other.process
	}
	if !found {
		t.Error("a renewal waits behind all those of a flood")
	}
	if n := len(hub.drains.take()); n != 1 {
		t.Errorf("%d drains of one connection are to be noted, want 1", n)
	}
}

// A worker that does not read its answers is told so, if it ever reads again.
func TestUnreadAnswersEndTheConnection(t *testing.T) {
	hub, err := New(sqldb.New(sqldb.SQLite, nil, nil), noAuth{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(hub, auth.Principal{})
	for n := 0; !s.over(); n++ {
		if s.say(wire.TypeError, "1", wire.Error{Code: "x", Message: strings.Repeat("m", 1<<10)}); n > answerRoom>>10 {
			t.Fatal("answers gather without a bound")
		}
	}
	if s.code != websocket.ClosePolicyViolation || s.queue.answerBytes > answerRoom || s.queue.answerBytes < answerRoom-2<<10 {
		t.Errorf("ended with %d and %d bytes waiting, want %d and %d", s.code, s.queue.answerBytes, websocket.ClosePolicyViolation, answerRoom)
	}
}

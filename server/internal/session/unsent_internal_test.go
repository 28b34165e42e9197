package session

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// newTaker joins a session with credit to a hub that has no database.
func newTaker(t *testing.T, capacity int) *session {
	t.Helper()
	hub, err := New(sqldb.New(sqldb.SQLite, nil, nil), noAuth{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(hub, auth.Principal{})
	s.process, s.capacity = sqldb.NewID(), capacity
	hub.board.join(s, "k", []dispatch.Lane{boardLane}, map[sqldb.ID]held{})
	credit(hub.board, s, capacity)
	return s
}

// assigned is an assignment from the board's lane, made at that time.
func assigned(at time.Time) assignment {
	return assignment{at: at, grant: &dispatch.Grant{
		Attempt: sqldb.NewID(), Epoch: 1, Lease: time.Second, Payload: []byte("{}"),
		Queue: boardLane.Queue, Handler: boardLane.Handler, HandlerVersion: boardLane.Version,
	}}
}

// What waited for longer than its lease is not sent, and takes no room of a worker that
// never heard of it.
func TestAnAssignmentThatIsTooLateTakesNoRoom(t *testing.T) {
	s := newTaker(t, 1)
	a := assigned(time.Now().Add(-time.Minute))
	if !s.hub.board.give(s, a, time.Now().Add(time.Hour)) || s.slots() != 0 {
		t.Fatal("the assignment was not given")
	}
	if err := s.writeWaiting(); err != nil {
		t.Fatal(err)
	}
	if n := s.slots(); n != 1 {
		t.Errorf("%d slots are free, want 1", n)
	}
	if n := len(s.hub.returns.take()); n != 1 {
		t.Errorf("%d assignments are handed back, want 1", n)
	}
}

// A worker that has been told that the node stops is sent no assignment, though some were
// waiting at that moment: they are gone before it is told, however long that takes.
func TestNothingIsSentBehindTheWordThatTheNodeStops(t *testing.T) {
	s := newTaker(t, 2)
	for range 2 {
		s.hub.board.give(s, assigned(time.Now()), time.Now().Add(time.Hour))
	}
	var stopping sync.WaitGroup
	s.hub.board.mu.Lock() // others use the board
	stopping.Go(s.nodeStops)
	time.Sleep(20 * time.Millisecond)
	early, _, _ := s.queue.next() // the connection's writer goes on meanwhile
	s.hub.board.mu.Unlock()
	stopping.Wait()
	if bytes.Contains(early, []byte(wire.TypeServerDraining)) {
		t.Error("server.draining is sent while assignments wait")
	}
	if n := len(s.hub.returns.take()); n != 1 {
		t.Errorf("%d assignments are handed back, want the one that was not sent", n)
	}
	if frame, _, _ := s.queue.next(); !bytes.Contains(frame, []byte(wire.TypeServerDraining)) {
		t.Errorf("the last word is %q, want server.draining", frame)
	}
	if _, _, more := s.queue.next(); more {
		t.Error("something is sent behind server.draining")
	}
}

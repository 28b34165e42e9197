package session_test

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/session"
)

// A tally is what a Watch was told.
type tally struct {
	mu      sync.Mutex
	answers map[string]int // by message and code
	items   map[string]int // by message
	closed  map[string]int
}

func (y *tally) watch() session.Watch {
	count := func(m map[string]int, what string, n int) {
		y.mu.Lock()
		defer y.mu.Unlock()
		m[what] += n
	}
	return session.Watch{
		Answered: func(message string, _ time.Duration, code string) { count(y.answers, message+" "+code, 1) },
		Batched:  func(message string, n int, _ time.Duration, _ error) { count(y.items, message, n) },
		Closed:   func(cause string) { count(y.closed, cause, 1) },
	}
}

func (y *tally) is(answers, closed map[string]int) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return maps.Equal(y.answers, answers) && maps.Equal(y.closed, closed)
}

// issue 4: each message is told of once, a late one by its status, each end of a connection by its
// cause, and the numbers of the moment are those of the connections.
func TestWhatHappensOnConnectionsIsTold(t *testing.T) {
	s := sqliteScene(t)
	y := &tally{answers: map[string]int{}, items: map[string]int{}, closed: map[string]int{}}
	n := s.newNode(s.db.DB, session.Config{Node: "node-b", Watch: y.watch()})
	if got := n.hub.Stats(); got != (session.Stats{}) {
		t.Errorf("without a connection: %+v", got)
	}
	x := dispatchtest.Task{Queue: s.w.NewQueue("q")}
	token := s.worker()
	c := n.connect(t, token)
	first := helloFor(4, x.Queue)
	c.hello(first)
	c.say(wire.TypeCredit, wire.Credit{Slots: 3})
	s.until("the credit", func() bool { return n.hub.Stats() == session.Stats{Connections: 1, Sessions: 1, FreeSlots: 3} })
	s.submit(x, n)
	a := want[wire.Assign](c, wire.TypeAssign, "")
	c.start(a)
	if got := n.hub.Stats(); got != (session.Stats{Connections: 1, Sessions: 1, FreeSlots: 2, Held: 1}) {
		t.Errorf("with an attempt: %+v", got)
	}
	c.finish(a)
	other := finishOf(a)
	other.Receipt = "another"
	if got := want[wire.Finished](c, wire.TypeFinished, c.say(wire.TypeFinish, other)); got.Status != wire.FinishFinished {
		t.Fatalf("second report = %+v", got)
	}
	want[wire.Error](c, wire.TypeError, c.say(wire.TypeStart, wire.Attempt{AttemptID: a.Task.ID, Epoch: 1})) // of nobody
	again := n.connect(t, token)
	again.hello(first)
	broken := n.connect(t, token)
	broken.raw("{")
	again.ws.Close()
	answers := map[string]int{
		"task.start ": 1, "task.start " + orbit.CodeNotFound: 1, "task.finish ": 1, "task.finish " + wire.FinishFinished: 1,
	}
	closed := map[string]int{session.ClosedReplaced: 1, session.ClosedProtocol: 1, session.ClosedByWorker: 1}
	s.until("all to be told", func() bool { return y.is(answers, closed) })
	if y.items[wire.TypeStart] != 2 || y.items[wire.TypeFinish] != 2 {
		t.Errorf("batches of %v messages in all", y.items)
	}
	s.until("the connections to be gone", func() bool { return n.hub.Stats() == session.Stats{} })
}

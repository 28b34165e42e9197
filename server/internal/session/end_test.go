package session_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/session"
)

// A node that stops hands back what it has claimed for a worker and not sent yet, at once,
// and sends no assignment after it has said that it stops.
func TestStoppingNodeHandsBackWhatIsNotSent(t *testing.T) { // CLI-018, WRK-021
	const tasks = 60
	s := sqliteScene(t)
	q := s.w.NewQueue("q")
	n := s.newNode(s.db.DB, session.Config{Node: "node-s", DrainTimeout: time.Minute, WriteTimeout: time.Minute})
	payload := `"` + strings.Repeat("x", orbit.MaxPayloadBytes-2) + `"`
	for range tasks {
		s.submit(spec{Queue: q, Payload: payload})
	}
	c := n.connect(t, s.worker())
	c.hello(helloFor(tasks, q))
	c.say(wire.TypeCredit, wire.Credit{Slots: tasks})
	s.until("assignments wait for the worker to read", func() bool {
		loads := n.hub.Loads()
		return len(loads) == 1 && loads[0].Assigns > orbit.MaxPayloadBytes
	})
	done := make(chan error, 1)
	go func() { done <- n.stop() }()
	const returned = "SELECT COUNT(*) FROM attempt WHERE live IS NULL"
	s.until("what is not sent is handed back", func() bool {
		loads := n.hub.Loads()
		return len(loads) == 1 && loads[0].Assigns == 0 && s.w.Int(returned) > 0
	})
	received := 0
	for {
		e, err := c.hear()
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == wire.TypeServerDraining {
			break
		}
		received++
	}
	if live := s.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); int(live) != received || received == tasks {
		t.Errorf("%d attempts are held, the worker has received %d of %d", live, received, tasks)
	}
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	if code, _ := c.closed(); code != websocket.CloseNormalClosure {
		t.Errorf("closed with %d", code)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// A connection that says nothing is given up: before hello, and when it answers no ping.
func TestSilentConnectionsAreGivenUp(t *testing.T) { // REF-WRK-002
	s := sqliteScene(t)
	n := s.newNode(s.db.DB, session.Config{Node: "node-q", HelloTimeout: 100 * time.Millisecond, Ping: 100 * time.Millisecond})
	c := n.connect(t, s.worker())
	if code, _ := c.closed(); code != websocket.CloseNormalClosure {
		t.Errorf("without hello: closed with %d, want %d", code, websocket.CloseNormalClosure)
	}
	c = n.connect(t, s.worker())
	c.hello(helloFor(1, s.w.NewQueue("q")))
	asked := 0
	c.ws.SetPingHandler(func(string) error { asked++; return nil }) // hears, and does not answer
	if code, _ := c.closed(); code != websocket.CloseNormalClosure || asked == 0 {
		t.Errorf("without pongs: closed with %d after %d pings, want %d after some", code, asked, websocket.CloseNormalClosure)
	}
	s.until("both are forgotten", func() bool { return len(n.hub.Loads()) == 0 })
}

// A registration that cannot be stored is no fault of the worker's: it is to come again.
func TestRegistrationWithoutADatabaseIsToBeRepeated(t *testing.T) { // ERR-002
	s := sqliteScene(t)
	faults := dbfault.Open(t, s.db)
	n := s.newNode(faults.DB, session.Config{Node: "node-f"})
	c := n.connect(t, s.worker())
	q := s.w.NewQueue("q")
	faults.Break()
	code, said := c.after(wire.TypeHello, helloFor(1, q))
	faults.Mend()
	if code != websocket.CloseTryAgainLater || said.Code != orbit.CodeUnavailable {
		t.Errorf("closed with %d after %+v, want %d after UNAVAILABLE", code, said, websocket.CloseTryAgainLater)
	}
	n.connect(t, s.worker()).hello(helloFor(1, q))
}

// A frame over the limit ends the connection before it is read to its end.
func TestFrameOverTheLimitIsNotRead(t *testing.T) { // REF-WRK-002, LIMIT-019
	s := sqliteScene(t)
	c := s.n.connect(t, s.worker())
	c.hello(helloFor(1, s.w.NewQueue("q")))
	w, err := c.ws.NextWriter(websocket.TextMessage)
	for n := 0; err == nil && n < 64*wire.MaxFrame; n += wire.MaxFrame {
		_, err = w.Write(make([]byte, wire.MaxFrame))
	}
	if err == nil {
		t.Error("a frame of 32 MiB was taken to its end")
	}
	c.ws.SetReadDeadline(time.Now().Add(time.Minute))
	if _, _, err := c.ws.ReadMessage(); err == nil || errors.Is(err, websocket.ErrReadLimit) {
		t.Errorf("read = %v, want the end of the connection", err)
	}
}

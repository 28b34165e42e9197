package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/session"
)

// A flood of one connection slows only itself: what it has under way is bounded, and
// another worker goes on with its tasks meanwhile.
func TestAFloodSlowsOnlyItsOwnConnection(t *testing.T) { // REF-WRK-002
	const tasks = 8
	s := sqliteScene(t)
	q := s.w.NewQueue("q")
	token := s.worker()
	f, a := s.running(q, token)
	stop, flood := make(chan struct{}), sync.WaitGroup{}
	about := fmt.Sprintf(`"data":{"attempt_id":%q,"epoch":%d}}`, a.AttemptID, a.Epoch)
	flood.Go(func() { f.pour(stop, about) })
	flood.Go(f.swallow)
	var high session.Load
	waiting := 0
	watch := func() {
		waiting = max(waiting, s.n.hub.Waiting())
		for _, l := range s.n.hub.Loads() {
			high.InFlight, high.Answers = max(high.InFlight, l.InFlight), max(high.Answers, l.Answers)
		}
	}
	s.until("the flood is on", func() bool { watch(); return high.InFlight > session.MostInFlight/2 })
	c := s.n.connect(s.T, token)
	c.hello(helloFor(1, q))
	for range tasks {
		s.submit(spec{Queue: q}, s.n)
		c.say(wire.TypeCredit, wire.Credit{Slots: 1})
		one := want[wire.Assign](c, wire.TypeAssign, "")
		c.start(one)
		want[wire.Renewed](c, wire.TypeRenewed, c.say(wire.TypeRenew, wire.Attempt{AttemptID: one.AttemptID, Epoch: one.Epoch}))
		c.finish(one)
		watch()
	}
	if n := s.w.Int("SELECT COUNT(*) FROM task WHERE state = 5"); n != tasks {
		s.Errorf("%d tasks succeeded, want %d", n, tasks)
	}
	if high.InFlight > session.MostInFlight || high.Answers > session.MostAnswers || waiting > session.MostWaiting+10 {
		s.Errorf("the flood has %+v in memory and %d messages waiting", high, waiting)
	}
	close(stop)
	f.ws.NetConn().Close()
	flood.Wait()
}

// pour sends renewals, starts and drains as fast as the socket takes them.
func (c *client) pour(stop <-chan struct{}, about string) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		frame := fmt.Sprintf(`{"type":%q,"id":"f%d",%s`, []string{wire.TypeRenew, wire.TypeStart}[n%2], n, about)
		if n%10 == 0 {
			frame = fmt.Sprintf(`{"type":"drain","id":"f%d"}`, n)
		}
		if c.ws.WriteMessage(websocket.TextMessage, []byte(frame)) != nil {
			return
		}
	}
}

// swallow reads until the connection ends.
func (c *client) swallow() {
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			return
		}
	}
}

// Answers that nobody reads are kept up to a bound. Then, or when the socket takes nothing
// for the time that the writing of a frame may take, the node gives the connection up, and
// with it what it kept.
func TestConnectionThatReadsNothingIsGivenUp(t *testing.T) { // REF-WRK-002
	s := sqliteScene(t)
	n := s.newNode(s.db.DB, session.Config{Node: "node-w", WriteTimeout: 300 * time.Millisecond})
	c := n.connect(t, s.worker())
	c.hello(helloFor(1, s.w.NewQueue("q")))
	// Each is refused without a question to the database.
	frame := fmt.Appendf(nil, `{"type":"task.finish","id":"%s","data":{"attempt_id":%q,"epoch":1,"receipt":"","outcome":"FAILED"}}`,
		strings.Repeat("i", 64), sqldb.NewID())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c.ws.WriteMessage(websocket.TextMessage, frame) == nil {
		}
	}()
	high := 0
	s.until("the node gives the connection up", func() bool {
		loads := n.hub.Loads()
		for _, l := range loads {
			high = max(high, l.Answers)
		}
		return len(loads) == 0
	})
	c.ws.NetConn().Close()
	<-ended
	if high == 0 || high > session.MostAnswers {
		t.Errorf("up to %d bytes of answers waited, bound is %d", high, session.MostAnswers)
	}
}

// A credential cannot take a node for itself, nor all of them together more than it holds:
// who is refused is told when to come again.
func TestConnectionsAreBounded(t *testing.T) { // REF-WRK-002
	s := sqliteScene(t)
	n := s.newNode(s.db.DB, session.Config{Node: "node-c", MaxSessions: 3, MaxPerCredential: 2})
	one, other := s.worker(), s.worker()
	first := n.connect(t, one)
	n.connect(t, one)
	n.refuses(one, "the credential has", "5")
	n.connect(t, other)
	n.refuses(other, "this node takes no", "1")
	first.ws.Close()
	var ws *websocket.Conn
	s.until("the place of who has gone is free", func() (ok bool) {
		var err error
		ws, _, err = n.dial(one, nil, wire.Protocol)
		return err == nil
	})
	ws.Close()
}

// A node holds the kinds of task of its registrations, up to a bound for all and one for each
// credential: who is over it is told to go elsewhere, and may come when others have left.
func TestKindsOfTaskAreBounded(t *testing.T) { // REF-WRK-002
	s := sqliteScene(t)
	n := s.newNode(s.db.DB, session.Config{Node: "node-k", MaxLanes: 9, MaxLanesPerCredential: 7})
	q, r, u := s.w.NewQueue("q"), s.w.NewQueue("r"), s.w.NewQueue("u")
	one, other := s.worker(), s.worker()
	first := n.connect(t, one)
	first.hello(limitedTo(1, q))
	n.connect(t, one).hello(limitedTo(1, q)) // the same kinds
	for _, c := range []struct {
		token, message string
		queue          sqldb.ID
	}{{one, "the credential holds as many kinds of task", r}, {other, "this node holds as many kinds of task", u}} {
		if c.token == other {
			n.connect(t, other).hello(helloFor(1, r))
		}
		late := n.connect(t, c.token)
		late.say(wire.TypeHello, limitedTo(1, c.queue))
		if code, e := late.closed(); code != websocket.CloseTryAgainLater || e.Code != orbit.CodeUnavailable || !strings.HasPrefix(e.Message, c.message) {
			t.Errorf("closed with %d after %+v, want %q", code, e, c.message)
		}
	}
}

// refuses fails unless a connection is refused for now.
func (n *node) refuses(token, message, retryAfter string) {
	n.t.Helper()
	ws, resp, err := n.dial(token, nil, wire.Protocol)
	if err == nil {
		ws.Close()
	}
	if !errors.Is(err, websocket.ErrBadHandshake) {
		n.t.Fatalf("dial = %v, want a refusal", err)
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	json.NewDecoder(resp.Body).Decode(&body)
	if resp.StatusCode != http.StatusServiceUnavailable || body.Error.Code != "UNAVAILABLE" || !strings.HasPrefix(body.Error.Message, message) ||
		resp.Header.Get("Retry-After") != retryAfter {
		n.t.Errorf("refused with %d %+v, Retry-After %q", resp.StatusCode, body, resp.Header.Get("Retry-After"))
	}
}

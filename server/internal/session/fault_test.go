package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/server/internal/session"
)

// Every message of a worker with every member that it may have.
func legalFrames(queue sqldb.ID) []string {
	about := fmt.Sprintf(`"attempt_id":%q,"epoch":3`, sqldb.NewID())
	frame := func(kind, data string) string { return fmt.Sprintf(`{"type":%q,"id":"7","data":{%s}}`, kind, data) }
	return []string{
		frame(wire.TypeHello, fmt.Sprintf(`"process_id":%q,"handlers":[{"name":"h","version":"v1"}],"queues":[%q],"capacity":4,"concurrency_keys":true,"held":[{%s}]`,
			sqldb.NewID(), queue, about)),
		frame(wire.TypeCredit, fmt.Sprintf(`"slots":4,"limits":[{"queue_id":%q,"handler":"h","handler_version":"v1","slots":1}],"seen":0`, queue)),
		frame(wire.TypeStart, about),
		frame(wire.TypeResume, about),
		frame(wire.TypeRenew, about+`,"progress":"half"`),
		frame(wire.TypeFinish, about+`,"receipt":"r","outcome":"SUCCEEDED","result":{"n":1}`),
		frame(wire.TypeFinish, about+`,"receipt":"r","outcome":"FAILED","retryable":true,"error":"no"`),
		frame(wire.TypeReturn, about),
		frame(wire.TypeDrain, ``),
	}
}

// understood are the members whose rules are about their content: who breaks one of them is
// told so and goes on. To end the connection would only have the message repeated.
func understood(f wiretest.Fault) bool {
	switch f.Path {
	case "data.progress", "data.receipt", "data.outcome", "data.error":
		return strings.HasPrefix(f.Value, `"`) && !strings.Contains(f.Value, `\ud800`)
	}
	return false
}

// Each member of each message, wrong in every way: the worker is told which member breaks
// a rule, over a real TLS WebSocket, and nothing else happens.
func TestEveryFaultOfAClientMessageIsNamed(t *testing.T) { // TEST-015, TEST-016, WRK-009, REF-WRK-002, REF-WRK-006, API-002
	s := sqliteScene(t)
	s.n = s.newNode(s.db.DB, session.Config{Node: "node-p", Ping: time.Hour, Lease: 5 * time.Minute}) // the one that runs says nothing for long
	q := s.w.NewQueue("q")
	token := s.worker()
	running, a := s.running(q, token)
	sessions := s.w.Int("SELECT COUNT(*) FROM worker_session")
	n := 0
	for _, frame := range legalFrames(q) {
		for _, f := range wiretest.Faults(wiretest.Client, frame) {
			n++
			c := s.n.connect(t, token)
			if !strings.Contains(frame, `"process_id"`) {
				c.hello(helloFor(1, q))
				sessions++
			}
			c.raw(f.Frame)
			c.isTold(f)
			c.ws.Close()
		}
	}
	if n < 400 {
		t.Errorf("%d faults were tried, want hundreds", n)
	}
	if got := s.w.Int("SELECT COUNT(*) FROM worker_session"); got != sessions {
		t.Errorf("%d sessions are stored, want %d: only those of good hellos", got, sessions)
	}
	if got := running.finish(a); got.Status != wire.FinishRecorded {
		t.Errorf("another worker's finish = %+v", got)
	}
}

// running has a worker that runs the only attempt.
func (s scene) running(q sqldb.ID, token string) (*client, wire.Assign) {
	s.Helper()
	s.submit(spec{Queue: q, Key: "object", AttemptTimeout: time.Hour})
	c := s.n.connect(s.T, token)
	c.hello(helloFor(1, q))
	c.say(wire.TypeCredit, wire.Credit{Slots: 1})
	a := want[wire.Assign](c, wire.TypeAssign, "")
	c.start(a)
	return c, a
}

// isTold fails unless the worker hears which member is wrong, and then the end of the
// connection if there is to be one.
func (c *client) isTold(f wiretest.Fault) {
	c.Helper()
	e, err := c.hear()
	var said wire.Error
	if err == nil {
		err = json.Unmarshal(e.Data, &said)
	}
	if err != nil || e.Type != wire.TypeError || said.Code != orbit.CodeInvalidArgument || !f.NamedBy(said.Message) {
		c.Errorf("%s: heard %s %+v, %v; want INVALID_ARGUMENT that names the member", f.Name, e.Type, said, err)
		return
	}
	if understood(f) {
		want[wire.Error](c, wire.TypeError, c.say(wire.TypeStart, wire.Attempt{AttemptID: sqldb.NewID().String(), Epoch: 1}))
		return
	}
	_, err = c.hear()
	if closed := (*websocket.CloseError)(nil); !errors.As(err, &closed) || closed.Code != wire.CloseProtocolError {
		c.Errorf("%s: ended with %v, want code %d", f.Name, err, wire.CloseProtocolError)
	}
}

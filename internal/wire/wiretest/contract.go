package wiretest

import (
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/wire"
)

// A Node is a server whose half of the protocol is under test, with what a conversation
// needs besides the protocol. Tasks are for handler h, version v1.
type Node struct {
	URL    string // of the worker endpoint, wss
	TLS    *tls.Config
	Token  string
	Queue  string
	Submit func(payload, key string) (task string) // RECONCILE_ONLY, one attempt
	Cancel func(task, reason string)
	Expire func(task, attempt string) // ends the lease of the live attempt, as time does
}

// contract is what the server says in the conversation, less what differs each time.
//
//go:embed contract.txt
var contract string

// Converse has one worker say to a server what a worker can say in each state of an attempt,
// holds every frame of both sides to the schema, and fails the test unless the server says
// what the contract says. The same conversation judges the server and the one for tests.
func Converse(t *testing.T, n Node) {
	t.Helper()
	p := &peer{t: t, n: n, names: map[string]string{n.Queue: "queue"}}
	p.offers()
	p.resumes()
	p.cancels()
	p.expires()
	p.registers()
	p.drains()
	got, want := strings.Join(p.heard, "\n"), strings.TrimSpace(contract)
	if got != want {
		t.Errorf("the server does not keep to the contract:\n%s", difference(want, got))
	}
}

func difference(want, got string) string {
	var lines []string
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := at(w, i), at(g, i)
		if a != b {
			lines = append(lines, fmt.Sprintf("%d: got  %s\n%d: want %s", i+1, b, i+1, a))
		}
	}
	return strings.Join(lines, "\n")
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

// A peer is a worker that says exactly what it is told to.
type peer struct {
	t     *testing.T
	n     Node
	ws    *websocket.Conn
	last  int
	names map[string]string // of ids
	heard []string
	hello wire.Hello
}

const process = "7f0c2d4f9e5b4a38b1d2c3e4f5061728"

func (p *peer) dial() *websocket.Conn {
	p.t.Helper()
	d := websocket.Dialer{TLSClientConfig: p.n.TLS, Subprotocols: []string{wire.Protocol}}
	ws, _, err := d.Dial(p.n.URL, http.Header{"Authorization": {"Bearer " + p.n.Token}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { ws.Close() })
	p.ws = ws
	return ws
}

// tell says a message.
func (p *peer) tell(kind string, data any) {
	p.t.Helper()
	p.last++
	body, err := json.Marshal(data)
	if err != nil {
		p.t.Fatal(err)
	}
	frame := fmt.Appendf(nil, `{"type":%q,"id":"m%d","data":%s}`, kind, p.last, body)
	if err := Check(Client, frame); err != nil {
		p.t.Fatalf("the conversation is not legal: %s: %v", frame, err)
	}
	if err := p.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
		p.t.Fatal(err)
	}
	p.heard = append(p.heard, "> "+kind)
}

// hear notes the next frame and reads its data into v. An answer must be to the last message.
func (p *peer) hear(v any) {
	p.t.Helper()
	p.ws.SetReadDeadline(time.Now().Add(time.Minute))
	_, text, err := p.ws.ReadMessage()
	if err != nil {
		p.t.Fatalf("after %q: %v", p.heard, err)
	}
	var e wire.Envelope
	if err := errors.Join(Check(Server, text), json.Unmarshal(text, &e)); err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
	if e.Ref != "" && e.Ref != fmt.Sprintf("m%d", p.last) {
		p.t.Errorf("%s: answers another message than m%d", text, p.last)
	}
	data, err := decode(e.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	p.heard = append(p.heard, e.Type+" "+p.normal("", data))
	if v != nil {
		if err := json.Unmarshal(e.Data, v); err != nil {
			p.t.Fatalf("%s: %v", text, err)
		}
	}
}

func (p *peer) ask(kind string, data any) { p.t.Helper(); p.tell(kind, data); p.hear(nil) }

// ended notes how a connection was ended.
func (p *peer) ended(ws *websocket.Conn) {
	p.t.Helper()
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	_, text, err := ws.ReadMessage()
	closed := (*websocket.CloseError)(nil)
	if !errors.As(err, &closed) {
		p.t.Fatalf("heard %s, %v, want the end of the connection", text, err)
	}
	p.heard = append(p.heard, fmt.Sprintf("closed %d", closed.Code))
}

// normal writes data without what differs each time.
func (p *peer) normal(name string, value any) string {
	switch v := value.(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+"="+p.normal(name, v[name]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, p.normal("", one))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case json.Number:
		if strings.HasSuffix(name, "_ms") && v != "0" {
			return "some"
		}
	case string:
		switch name {
		case "node_id", "server_time", "message", "concurrency_token":
			return "some"
		}
		if id := resolve("#/$defs/id")["pattern"].(string); matches(id, v) {
			return p.name(name, v)
		}
	}
	return fmt.Sprint(value)
}

// name calls an id by what it was when it was first seen.
func (p *peer) name(kind, id string) string {
	if p.names[id] == "" {
		p.names[id] = fmt.Sprintf("%s%d", strings.TrimSuffix(kind, "_id"), len(p.names))
	}
	return p.names[id]
}

func (p *peer) register(held ...wire.Attempt) *websocket.Conn {
	p.t.Helper()
	p.hello = wire.Hello{
		ProcessID: process, Handlers: []wire.Handler{{Name: "h", Version: "v1"}}, Queues: []string{p.n.Queue}, Capacity: 2, ConcurrencyKeys: true,
	}
	for _, a := range held {
		p.hello.Held = append(p.hello.Held, wire.Held(a))
	}
	ws := p.dial()
	p.ask(wire.TypeHello, p.hello)
	return ws
}

// take gives credit for one assignment and hears it.
func (p *peer) take() (wire.Attempt, string) {
	p.t.Helper()
	p.tell(wire.TypeCredit, wire.Credit{Slots: 1})
	return p.offered()
}

func (p *peer) offered() (wire.Attempt, string) {
	p.t.Helper()
	var a wire.Assign
	p.hear(&a)
	return wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch}, a.Task.ID
}

func (p *peer) finish(a wire.Attempt, receipt, outcome string) {
	p.t.Helper()
	p.ask(wire.TypeFinish, wire.Finish{AttemptID: a.AttemptID, Epoch: a.Epoch, Receipt: receipt, Outcome: outcome})
}

func (p *peer) renew(a wire.Attempt) {
	p.t.Helper()
	p.ask(wire.TypeRenew, wire.Renew{AttemptID: a.AttemptID, Epoch: a.Epoch, Progress: "half"})
}

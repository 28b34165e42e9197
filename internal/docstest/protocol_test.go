package docstest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

const protocol = "docs/worker-protocol.md"

// A play has the example frames of the document said to a real server, with its ids put
// in, and holds each answer to the examples of the document.
type play struct {
	*testing.T
	url    string
	creds  orbit.Credentials
	api    *orbit.Client
	says   map[string][]wire.Envelope // examples of a worker's frames by type
	shapes map[string]map[string]bool // members that the examples of a server's frames have, by type
	seen   map[string]bool            // types that the server has said
	stop   func()
	lastID int
}

// REF-WRK-003, REF-WRK-006: whoever follows the document gets along with a server, and the
// server says nothing that the document does not show.
func TestTheProtocolIsAsDocumented(t *testing.T) {
	p := newPlay(t)
	c := p.connect()
	c.register()
	first := p.submit("object/42")
	a := c.runAndLose(first)
	c = p.connect()
	c.takeUpAndFinish(first, a)
	c.giveBackAndFail(p.submit(""))
	c.refusals()
	c.drain()
	p.takeOver(c)
	if said, all := slices.Sorted(maps.Keys(p.seen)), slices.Sorted(maps.Keys(p.shapes)); !slices.Equal(said, all) {
		t.Errorf("the server said %v, the document shows %v", said, all)
	}
}

func newPlay(t *testing.T) *play {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	p := &play{T: t, says: map[string][]wire.Envelope{}, shapes: map[string]map[string]bool{}, seen: map[string]bool{}}
	p.readExamples()
	var err error
	p.creds, err = server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
		Application: "app", Namespace: "default", Environment: "test", Queue: "first", WorkerAccess: true, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.serve(db)
	if p.api, err = orbit.NewClient(p.url, p.creds.Token, orbit.ClientConfig{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.api.CloseIdleConnections)
	return p
}

func (p *play) serve(db *dbtest.DB) {
	s, err := server.New(db.DB, server.Config{NodeID: "node-a", StopTimeout: time.Second})
	if err != nil {
		p.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	p.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()
	p.stop = sync.OnceFunc(func() { cancel(); <-ended })
	p.Cleanup(p.stop)
}

// readExamples sorts the frames of the document: those of a worker have an id.
func (p *play) readExamples() {
	for _, b := range blocks(read(p.T, protocol)) {
		if b.language != "json" {
			continue
		}
		var e wire.Envelope
		if err := json.Unmarshal([]byte(b.text), &e); err != nil {
			p.Fatalf("%s:%d: %v", protocol, b.line, err)
		}
		if e.ID != "" {
			p.says[e.Type] = append(p.says[e.Type], e)
			continue
		}
		if p.shapes[e.Type] == nil {
			p.shapes[e.Type] = map[string]bool{}
		}
		maps.Copy(p.shapes[e.Type], members(p.T, e.Data))
	}
}

// members returns the paths of the members of an object, without what lies in a payload.
func members(t *testing.T, data []byte) map[string]bool {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, one := range v {
				if all[path+name] = true; name != "payload" {
					walk(path+name+".", one)
				}
			}
		case []any:
			for _, one := range v {
				walk(path, one)
			}
		}
	}
	walk("", object)
	return all
}

func (p *play) submit(key string) string {
	p.Helper()
	r := orbit.SubmitTaskRequest{
		QueueID: p.creds.QueueID, Handler: "object.update", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"amount":12.50}`), ConcurrencyKey: key,
	}
	accepted, err := p.api.SubmitTask(p.Context(), "key-of-"+key, r)
	if err != nil {
		p.Fatal(err)
	}
	return accepted.Task.ID
}

// A foreign is a connection of a worker that knows the document only.
type foreign struct {
	*play
	ws    *websocket.Conn
	early []byte // an assignment that came before an answer
}

func (p *play) connect() *foreign {
	p.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
	ws, _, err := dialer.Dial("ws"+strings.TrimPrefix(p.url, "http")+wire.Path, http.Header{"Authorization": {"Bearer " + p.creds.Token}})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { ws.Close() })
	return &foreign{play: p, ws: ws}
}

// say says the nth example of a type about an attempt, and returns its id.
func (c *foreign) say(kind string, n int, a wire.Attempt) string {
	c.Helper()
	c.lastID++
	id := strconv.Itoa(c.lastID)
	e := c.says[kind][n]
	var data map[string]any
	if err := json.Unmarshal(e.Data, &data); err != nil {
		c.Fatal(err)
	}
	if _, about := data["attempt_id"]; about {
		data["attempt_id"], data["epoch"] = a.AttemptID, a.Epoch
	}
	if kind == wire.TypeHello {
		data["queues"] = []string{c.creds.QueueID}
	}
	frame, err := json.Marshal(map[string]any{"type": kind, "id": id, "data": data})
	if err == nil {
		err = c.ws.WriteMessage(websocket.TextMessage, frame)
	}
	if err != nil {
		c.Fatal(err)
	}
	return id
}

// hear waits for a frame of a type and reads it into a value.
func hear[M any](c *foreign, kind, ref string) (m M) {
	c.Helper()
	text := c.next(kind)
	var e wire.Envelope
	if err := errors.Join(wiretest.Check(wiretest.Server, text), json.Unmarshal(text, &e)); err != nil {
		c.Fatalf("%s: %v", text, err)
	}
	if e.Type != kind || e.Ref != ref {
		c.Fatalf("heard %s, want %s for %q", text, kind, ref)
	}
	for name := range members(c.T, e.Data) {
		if !c.shapes[kind][name] {
			c.Errorf("%s has the member %s, which no example of the document has", kind, name)
		}
	}
	c.seen[kind] = true
	if err := json.Unmarshal(e.Data, &m); err != nil {
		c.Fatal(err)
	}
	return m
}

// next reads the next frame. An assignment may come at any time, before an answer too: it
// waits until it is asked for.
func (c *foreign) next(kind string) (text []byte) {
	c.Helper()
	if kind == wire.TypeAssign && c.early != nil {
		text, c.early = c.early, nil
		return text
	}
	c.ws.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		_, text, err := c.ws.ReadMessage()
		if err != nil {
			c.Fatalf("waiting for %s: %v", kind, err)
		}
		var e wire.Envelope
		if err := json.Unmarshal(text, &e); err == nil && e.Type == wire.TypeAssign && kind != wire.TypeAssign && c.early == nil {
			c.early = text
			continue
		}
		return text
	}
}

// ask says the nth example of a type and returns its answer.
func ask[M any](c *foreign, kind string, n int, a wire.Attempt, answer string) M {
	c.Helper()
	return hear[M](c, answer, c.say(kind, n, a))
}

func (c *foreign) register() {
	c.Helper()
	ok := ask[wire.HelloOK](c, wire.TypeHello, 0, wire.Attempt{}, wire.TypeHelloOK)
	if ok.LeaseMS != 15000 || ok.PingMS != 15000 || ok.MaxFrame != wire.MaxFrame || len(ok.Attempts) != 0 {
		c.Errorf("hello.ok = %+v", ok)
	}
}

// runAndLose starts and renews an attempt and loses the connection.
func (c *foreign) runAndLose(task string) wire.Attempt {
	c.say(wire.TypeCredit, 0, wire.Attempt{})
	offer := hear[wire.Assign](c, wire.TypeAssign, "")
	if offer.Task.ID != task || offer.ConcurrencyToken == "" || offer.OperationRoot != task {
		c.Errorf("task.assign = %+v", offer)
	}
	a := wire.Attempt{AttemptID: offer.AttemptID, Epoch: offer.Epoch}
	for range 2 { // the second is a repeat
		if got := ask[wire.Started](c, wire.TypeStart, 0, a, wire.TypeStarted); got.LeaseMS == 0 || got.TimeoutMS == 0 {
			c.Errorf("task.started = %+v", got)
		}
	}
	ask[wire.Renewed](c, wire.TypeRenew, 0, a, wire.TypeRenewed)
	c.ws.NetConn().Close()
	return a
}

// takeUpAndFinish goes on with an attempt, hears of a cancel and finishes all the same.
func (c *foreign) takeUpAndFinish(task string, a wire.Attempt) {
	ok := ask[wire.HelloOK](c, wire.TypeHello, 0, wire.Attempt{}, wire.TypeHelloOK)
	if len(ok.Attempts) != 1 || ok.Attempts[0].AttemptID != a.AttemptID || ok.Attempts[0].Epoch != a.Epoch {
		c.Errorf("hello.ok = %+v, want the attempt", ok)
	}
	if got := ask[wire.Resumed](c, wire.TypeResume, 0, a, wire.TypeResumed); got.Status != wire.ResumeKeep || !got.Running {
		c.Errorf("task.resumed = %+v", got)
	}
	now, err := c.api.GetTask(c.Context(), task)
	if err == nil {
		_, err = c.api.CancelTask(c.Context(), task, "cancel-"+task, orbit.CancelTaskRequest{ExpectedRevision: now.Revision, Reason: "ordered twice"})
	}
	if err != nil {
		c.Fatal(err)
	}
	if got := hear[wire.Cancel](c, wire.TypeCancel, ""); got.Reason != "ordered twice" {
		c.Errorf("task.cancel = %+v", got)
	}
	if got := ask[wire.Renewed](c, wire.TypeRenew, 0, a, wire.TypeRenewed); !got.CancelRequested {
		c.Errorf("task.renewed = %+v, want the cancel intent", got)
	}
	for range 2 { // the second is a repeat
		got := ask[wire.Finished](c, wire.TypeFinish, 0, a, wire.TypeFinished)
		if got.Status != wire.FinishRecorded || got.TaskState != orbit.StateSucceeded {
			c.Errorf("task.finished = %+v", got)
		}
	}
	if got := ask[wire.Finished](c, wire.TypeFinish, 1, a, wire.TypeFinished); got.Status != wire.FinishFinished {
		c.Errorf("another result under the same receipt = %+v", got)
	}
	if got := ask[wire.Error](c, wire.TypeRenew, 0, a, wire.TypeError); got.Code != wire.CodeEnded {
		c.Errorf("renewal of an ended attempt = %+v", got)
	}
}

// giveBackAndFail returns an assignment, gets the task again and reports a failure.
func (c *foreign) giveBackAndFail(task string) {
	c.say(wire.TypeCredit, 0, wire.Attempt{})
	for attempt := range uint64(2) {
		offer := hear[wire.Assign](c, wire.TypeAssign, "")
		a := wire.Attempt{AttemptID: offer.AttemptID, Epoch: offer.Epoch}
		if offer.Task.ID != task || offer.Task.AttemptNumber != attempt+1 || offer.ConcurrencyToken != "" {
			c.Errorf("task.assign = %+v", offer)
		}
		if attempt == 0 {
			ask[wire.Returned](c, wire.TypeReturn, 0, a, wire.TypeReturned)
			continue
		}
		if got := ask[wire.Error](c, wire.TypeFinish, 0, a, wire.TypeError); got.Code != orbit.CodeStateConflict {
			c.Errorf("finish before the start = %+v", got)
		}
		ask[wire.Started](c, wire.TypeStart, 0, a, wire.TypeStarted)
		if got := ask[wire.Error](c, wire.TypeReturn, 0, a, wire.TypeError); got.Code != orbit.CodeStateConflict {
			c.Errorf("return of a running attempt = %+v", got)
		}
		if got := ask[wire.Finished](c, wire.TypeFinish, 1, a, wire.TypeFinished); got.TaskState != orbit.StateFailed {
			c.Errorf("task.finished = %+v, want it failed: one attempt is allowed", got)
		}
	}
}

func (c *foreign) refusals() {
	nobody := wire.Attempt{AttemptID: strings.Repeat("0", 32), Epoch: 1}
	for _, kind := range []string{wire.TypeStart, wire.TypeRenew, wire.TypeFinish, wire.TypeReturn} {
		if got := ask[wire.Error](c, kind, 0, nobody, wire.TypeError); got.Code != orbit.CodeNotFound {
			c.Errorf("%s of an unknown attempt = %+v", kind, got)
		}
	}
	if got := ask[wire.Resumed](c, wire.TypeResume, 0, nobody, wire.TypeResumed); got.Status != wire.ResumeLost {
		c.Errorf("task.resumed of an unknown attempt = %+v", got)
	}
}

func (c *foreign) drain() {
	ask[struct{}](c, wire.TypeDrain, 0, wire.Attempt{}, wire.TypeDrainOK)
}

// takeOver connects the process again, breaks the protocol once, and stops the node.
func (p *play) takeOver(old *foreign) {
	c := p.connect()
	c.register()
	if code := old.closeCode(); code != wire.CloseReplaced {
		p.Errorf("the older connection was closed with %d", code)
	}
	c.say(wire.TypeHello, 0, wire.Attempt{})
	c.closes(wire.CloseProtocolError)
	c = p.connect()
	c.register()
	go p.stop()
	if got := hear[wire.ServerDraining](c, wire.TypeServerDraining, ""); got.RetryAfterMS == 0 {
		p.Errorf("server.draining = %+v", got)
	}
	if code := c.closeCode(); code != websocket.CloseGoingAway {
		p.Errorf("a connection that stayed was closed with %d", code)
	}
}

// closes waits for an error and then for the end of the connection.
func (c *foreign) closes(code int) {
	c.Helper()
	_, text, err := c.ws.ReadMessage()
	if err != nil || !strings.Contains(string(text), orbit.CodeInvalidArgument) {
		c.Errorf("heard %s, %v before the end", text, err)
	}
	if got := c.closeCode(); got != code {
		c.Errorf("closed with %d, want %d", got, code)
	}
}

func (c *foreign) closeCode() int {
	c.ws.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		_, _, err := c.ws.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return closed.Code
		case err != nil:
			return 0
		}
	}
}

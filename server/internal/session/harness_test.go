package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/session"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(idleVariable); order != "" { // a process of idle workers
		if err := beIdle(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A scene is a world with one node that serves connections over TLS.
type scene struct {
	*testing.T
	w  *dispatchtest.World
	db *dbtest.DB
	n  *node
}

// A node is a hub behind a TLS server.
type node struct {
	t    *testing.T
	hub  *session.Hub
	srv  *httptest.Server
	stop func() error
}

func run(t *testing.T, f func(s scene)) {
	t.Helper()
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		s := scene{T: t, w: dispatchtest.New(t, db.DB), db: db}
		s.n = s.newNode(db.DB, session.Config{Node: "node-a"})
		f(s)
	}, migrations.Server)
}

// sqliteScene is a scene for what no engine has a part in.
func sqliteScene(t *testing.T) scene {
	t.Helper()
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	s := scene{T: t, w: dispatchtest.New(t, db.DB), db: db}
	s.n = s.newNode(db.DB, session.Config{Node: "node-a"})
	return s
}

// newNode starts a node; it is stopped at the end of the test unless it was before.
func (s scene) newNode(db *sqldb.DB, cfg session.Config) *node {
	s.Helper()
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 100 * time.Millisecond
	}
	hub, err := session.New(db, auth.New(db), cfg)
	if err != nil {
		s.Fatalf("New = %v", err)
	}
	n := &node{t: s.T, hub: hub, srv: httptest.NewUnstartedServer(hub)}
	n.srv.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that tests cut
	n.srv.StartTLS()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		n.srv.Close()
		return err
	})
	s.Cleanup(func() {
		if err := n.stop(); err != nil {
			s.Errorf("Run = %v", err)
		}
	})
	return n
}

// token makes a credential. Without queues it may use all of the namespace.
func (s scene) token(permissions []string, queues ...sqldb.ID) string {
	s.Helper()
	id := sqldb.NewID()
	token, digest := auth.NewToken(id)
	p, err := auth.NewPermissions(permissions)
	if err != nil {
		s.Fatal(err)
	}
	s.w.Exec("INSERT INTO credential (id, namespace_id, name, secret_digest, permissions, all_queues, created_at) VALUES (?, ?, ?, ?, ?, ?, 0)",
		id, s.w.Namespace, []byte(id.String()), digest[:], p.Column(), len(queues) == 0)
	for _, q := range queues {
		s.w.Exec("INSERT INTO credential_queue (credential_id, queue_id) VALUES (?, ?)", id, q)
	}
	return token
}

// worker is the token of an ordinary worker.
func (s scene) worker() string {
	return s.token([]string{auth.WorkersConnect, auth.WorkersConsume})
}

// A client is a raw worker: it says and hears exactly what the test writes.
type client struct {
	*testing.T
	ws   *websocket.Conn
	last int
}

// dial opens a connection; the answer of the server, if it refused.
func (n *node) dial(token string, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	d := websocket.Dialer{TLSClientConfig: n.srv.Client().Transport.(*http.Transport).TLSClientConfig, Subprotocols: protocols}
	if header == nil {
		header = http.Header{}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return d.Dial("wss"+strings.TrimPrefix(n.srv.URL, "https")+wire.Path, header)
}

func (n *node) connect(t *testing.T, token string) *client {
	t.Helper()
	ws, _, err := n.dial(token, nil, wire.Protocol)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { ws.Close() })
	return &client{T: t, ws: ws}
}

// say sends a message and returns its id.
func (c *client) say(kind string, data any) string {
	c.Helper()
	c.last++
	id := fmt.Sprint(c.last)
	body, err := json.Marshal(data)
	if err != nil {
		c.Fatal(err)
	}
	c.raw(fmt.Sprintf(`{"type":%q,"id":%q,"data":%s}`, kind, id, body))
	return id
}

func (c *client) raw(text string) {
	c.Helper()
	if err := c.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.Fatalf("write: %v", err)
	}
}

// hear reads the next message.
func (c *client) hear() (wire.Envelope, error) {
	c.ws.SetReadDeadline(time.Now().Add(time.Minute))
	_, text, err := c.ws.ReadMessage()
	var e wire.Envelope
	if err == nil {
		err = errors.Join(wiretest.Check(wiretest.Server, text), json.Unmarshal(text, &e))
	}
	return e, err
}

// want reads the next message, which is of a kind, into a value.
func want[M any](c *client, kind, ref string) (m M) {
	c.Helper()
	e, err := c.hear()
	if err != nil {
		c.Fatalf("waiting for %s: %v", kind, err)
	}
	if e.Type != kind || e.Ref != ref {
		c.Fatalf("got %s for %q: %s; want %s for %q", e.Type, e.Ref, e.Data, kind, ref)
	}
	if err := json.Unmarshal(e.Data, &m); err != nil {
		c.Fatalf("%s: %v", kind, err)
	}
	return m
}

// silence fails if anything comes within a moment.
func (c *client) silence() {
	c.Helper()
	c.ws.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
	if _, text, err := c.ws.ReadMessage(); err == nil {
		c.Errorf("got %s, want nothing", text)
	}
}

// closed reads to the end of the connection and returns its close code, and the last
// error message before it.
func (c *client) closed() (code int, said wire.Error) {
	c.Helper()
	for {
		e, err := c.hear()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return closed.Code, said
		case err != nil:
			c.Fatalf("waiting for the close frame: %v", err)
		case e.Type == wire.TypeError:
			json.Unmarshal(e.Data, &said)
		}
	}
}

// hello registers a worker for the lanes of tasks and returns the answer.
func (c *client) hello(h wire.Hello) wire.HelloOK {
	c.Helper()
	return want[wire.HelloOK](c, wire.TypeHelloOK, c.say(wire.TypeHello, h))
}

// helloFor is the hello of a new process for handler h of queues.
func helloFor(capacity int, queues ...sqldb.ID) wire.Hello {
	h := wire.Hello{
		ProcessID: sqldb.NewID().String(), Handlers: []wire.Handler{{Name: "h", Version: dispatchtest.Version}},
		Capacity: capacity, ConcurrencyKeys: true,
	}
	for _, q := range queues {
		h.Queues = append(h.Queues, q.String())
	}
	return h
}

// start starts an assigned attempt.
func (c *client) start(a wire.Assign) wire.Started {
	c.Helper()
	return want[wire.Started](c, wire.TypeStarted, c.say(wire.TypeStart, wire.Attempt{AttemptID: a.AttemptID, Epoch: a.Epoch}))
}

func (c *client) finish(a wire.Assign) wire.Finished {
	c.Helper()
	return want[wire.Finished](c, wire.TypeFinished, c.say(wire.TypeFinish, finishOf(a)))
}

func finishOf(a wire.Assign) wire.Finish {
	return wire.Finish{AttemptID: a.AttemptID, Epoch: a.Epoch, Receipt: "r-" + a.AttemptID, Outcome: wire.OutcomeSucceeded, Result: json.RawMessage(`{"n":1.50}`)}
}

// submit accepts a task and wakes the nodes that are told.
func (s scene) submit(x dispatchtest.Task, nodes ...*node) sqldb.ID {
	s.Helper()
	id := s.w.Submit(x)
	for _, n := range nodes {
		n.hub.Wake([]int64{x.Lane().ID()})
	}
	return id
}

// until polls until ok, or fails the test after a time that only a hang can take.
func (s scene) until(what string, ok func() bool) {
	s.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatalf("%s: it did not happen within a minute", what)
}

func (s scene) attempt(a wire.Assign) sqldb.ID {
	s.Helper()
	id, err := sqldb.ParseID(a.AttemptID)
	if err != nil {
		s.Fatal(err)
	}
	return id
}

type spec = dispatchtest.Task

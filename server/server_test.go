package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// A node is a running server.
type node struct {
	*server.Server
	url  string
	stop func() error // cancels Run and returns what it returns
}

func start(t *testing.T, db *sqldb.DB, cfg server.Config) *node {
	t.Helper()
	s, err := server.New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	return &node{Server: s, url: "http://" + listener.Addr().String(), stop: stop}
}

func bootstrap(t *testing.T, db *dbtest.DB) orbit.Credentials {
	t.Helper()
	c, err := server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
		Application: "app", Namespace: "default", Environment: "test", Queue: "first", WorkerAccess: true, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func client(t *testing.T, n *node, c orbit.Credentials) *orbit.Client {
	t.Helper()
	client, err := orbit.NewClient(n.url, c.Token, orbit.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func request(c orbit.Credentials) orbit.SubmitTaskRequest {
	return orbit.SubmitTaskRequest{QueueID: c.QueueID, Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: []byte(`{"n":1}`)}
}

// SUB-058, GET-004, API-032, REF-BATCH, MOD-007: the published client and the server
// agree, on two nodes of one database.
func TestClientAndServerAgree(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		a := client(t, start(t, db.DB, server.Config{NodeID: "a"}), creds)
		b := client(t, start(t, db.Reopen(t).DB, server.Config{NodeID: "b"}), creds)

		caps, err := a.Capabilities(t.Context())
		if err != nil || caps.NamespaceID != creds.NamespaceID {
			t.Fatalf("capabilities = %+v, %v", caps, err)
		}
		accepted, err := a.SubmitTask(t.Context(), "key", request(creds))
		if err != nil || accepted.Deduplicated || accepted.Replayed {
			t.Fatalf("submit = %+v, %v", accepted, err)
		}
		again, err := b.SubmitTask(t.Context(), "key", request(creds))
		if err != nil || !again.Deduplicated || !again.Replayed || again.Task.ID != accepted.Task.ID || again.ContentDigest != accepted.ContentDigest {
			t.Fatalf("repeat on the other node = %+v, %v", again, err)
		}
		other := request(creds)
		other.Priority = 1
		var refused *orbit.APIError
		if _, err := b.SubmitTask(t.Context(), "key", other); !errors.As(err, &refused) || refused.Code != orbit.CodeIdempotencyConflict {
			t.Fatalf("other content = %v", err)
		}
		results, err := b.SubmitTasks(t.Context(), []orbit.BatchItem{{Key: "key", Request: request(creds)}, {Key: "new", Request: other}, {Key: "key", Request: other}})
		if err != nil || results[0].Accepted.Task.ID != accepted.Task.ID || results[1].Accepted.Deduplicated || !errors.As(results[2].Err, &refused) {
			t.Fatalf("batch = %+v, %v", results, err)
		}
		task, err := b.GetTask(t.Context(), accepted.Task.ID)
		if err != nil || task.State != orbit.StateWaiting || !bytes.Equal(task.Payload, []byte(`{"n":1}`)) {
			t.Fatalf("get = %+v, %v", task, err)
		}
		page, err := a.ListAttempts(t.Context(), accepted.Task.ID, orbit.PageRequest{})
		if err != nil || len(page.Items) != 0 {
			t.Fatalf("attempts = %+v, %v", page, err)
		}
	}, migrations.Server)
}

// MIG-008: a server refuses a schema outside its range, and knows the newest.
func TestRunRefusesAnotherSchema(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine)
			s, err := server.New(db.DB, server.Config{})
			if err != nil {
				t.Fatal(err)
			}
			serve := func() error {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer listener.Close()
				return s.Run(t.Context(), listener)
			}
			var version *migrations.VersionError
			if err := serve(); !errors.As(err, &version) || !strings.Contains(err.Error(), "orbit-migrate up") {
				t.Fatalf("empty database: %v, want a VersionError with its remedy", err)
			}
			newest, err := migrations.Latest(migrations.Server, db.Dialect())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: newest - 1}); err != nil {
				t.Fatal(err)
			}
			if err := serve(); !errors.As(err, &version) || version.Found != newest-1 {
				t.Fatalf("old schema: %v, want a VersionError", err)
			}
			if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckSchema(t.Context()); err != nil {
				t.Fatalf("newest schema: %v", err)
			}
		})
	}
}

// CLI-018: a stop finishes the submits under way and leaves nothing running.
func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		faults := dbfault.Open(t, db)
		gate := make(chan struct{})
		before := goleak.IgnoreCurrent()
		n := start(t, faults.DB, server.Config{})
		c := client(t, n, creds)
		if _, err := c.Capabilities(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.OnCommit(func(int) dbfault.Verdict { <-gate; return dbfault.Pass })
		submitted := make(chan error, 1)
		go func() {
			_, err := c.SubmitTask(context.Background(), "key", request(creds))
			submitted <- err
		}()
		for faults.Commits() == 0 {
			time.Sleep(time.Millisecond)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- n.stop() }()
		for { // the stop has begun when no connection is taken any more
			if conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://")); err == nil {
				conn.Close()
				time.Sleep(time.Millisecond)
				continue
			}
			break
		}
		select {
		case err := <-stopped:
			t.Fatalf("Run ended with a submit under way: %v", err)
		default:
		}
		close(gate)
		if err := <-submitted; err != nil {
			t.Errorf("submit under way = %v", err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		c.CloseIdleConnections()
		faults.DB.Close()
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	}, migrations.Server)
}

// A stop that takes too long is given up with an error, not waited for for ever.
func TestStopIsBounded(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds := bootstrap(t, db)
	faults := dbfault.Open(t, db)
	n := start(t, faults.DB, server.Config{StopTimeout: 200 * time.Millisecond})
	c := client(t, n, creds)
	gate := make(chan struct{})
	defer close(gate)
	faults.OnCommit(func(int) dbfault.Verdict { <-gate; return dbfault.Pass })
	go c.SubmitTask(context.Background(), "key", request(creds))
	for faults.Commits() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := n.stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v, want a deadline error", err)
	}
}

// The path of workers leads to the hub, whose refusals carry the envelope too.
func TestWorkersConnectHere(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds := bootstrap(t, db)
	n := start(t, db.DB, server.Config{NodeID: "node-1", Room: server.Room{Connections: 1}})
	resp, err := http.Get(n.url + wire.Path)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if id := resp.Header.Get("X-Request-Id"); resp.StatusCode != 401 || !orbit.ValidID(id) || !strings.Contains(string(body), id) {
		t.Errorf("without a credential: %d %s", resp.StatusCode, body)
	}
	dialer := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
	dial := func() (*websocket.Conn, *http.Response, error) {
		return dialer.Dial("ws"+strings.TrimPrefix(n.url, "http")+wire.Path, http.Header{"Authorization": {"Bearer " + creds.Token}})
	}
	ws, _, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if _, refusal, err := dial(); err == nil || refusal.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one connection more than there is room for: %v, %v", refusal, err)
	}
}

// Requests that come slowly or are too large are cut off by the HTTP server.
func TestOversizeHeadersAreRefused(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	n := start(t, db.DB, server.Config{})
	req, err := http.NewRequest(http.MethodGet, n.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", resp.StatusCode)
	}
}

// A client that never ends its body does not hold up a stop, whether its request is taken
// or refused.
func TestAStalledUploadDoesNotHoldUpAStop(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds := bootstrap(t, db)
	for name, token := range map[string]string{"taken": creds.Token, "refused": "none"} {
		t.Run(name, func(t *testing.T) {
			n := start(t, db.DB, server.Config{StopTimeout: 8 * time.Second})
			conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			expect := map[string]string{"taken": "Expect: 100-continue\r\n"}[name]
			fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\n%sAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", expect, token)
			answers := bufio.NewReader(conn)
			if name == "taken" { // 100 comes when the server begins to read
				if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
					t.Fatalf("got %q, %v; want 100 Continue", line, err)
				}
				if _, err := answers.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				if err := n.stop(); err != nil {
					t.Errorf("stop = %v", err)
				}
			}
			want := map[string]string{"taken": "503", "refused": "401"}[name]
			if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, want) {
				t.Errorf("answer %q, %v; want %s", line, err, want)
			}
			if err := n.stop(); err != nil {
				t.Errorf("stop = %v", err)
			}
		})
	}
}

// What a node does not accept as its name or lease.
func TestNewRefusesBadConfig(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	for _, cfg := range []server.Config{{NodeID: strings.Repeat("n", 65)}, {Lease: time.Second}, {Lease: time.Hour}, {StopTimeout: -time.Second}, {Ping: -time.Second}, {Ping: time.Hour},
		{Room: server.Room{Connections: -1}}, {Room: server.Room{KindsPerCredential: -1}}, {Room: server.Room{Kinds: 9, KindsPerCredential: 10}}} {
		if _, err := server.New(db.DB, cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	a, errA := server.New(db.DB, server.Config{})
	b, errB := server.New(db.DB, server.Config{})
	if errA != nil || errB != nil || a.NodeID() == b.NodeID() || a.NodeID() == "" {
		t.Errorf("default node ids %q, %q", a.NodeID(), b.NodeID())
	}
}

// ERR-015: no part of a node logs what the engine quotes.
func TestLogsOfAllPartsAreQuiet(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		creds := bootstrap(t, db)
		statement := `CREATE TRIGGER quote BEFORE INSERT ON task FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'cannot store canary-77'`
		if db.Engine == dbtest.SQLite {
			statement = `CREATE TRIGGER quote BEFORE INSERT ON task BEGIN SELECT RAISE(ABORT, 'cannot store canary-77'); END`
		}
		if _, err := db.Write().ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		n := start(t, db.DB, server.Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		var unknown *orbit.UnknownOutcomeError
		if _, err := client(t, n, creds).SubmitTask(t.Context(), "key", request(creds)); !errors.As(err, &unknown) {
			t.Fatalf("submit = %v", err)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		for _, bad := range []string{"canary", creds.Token, "INSERT INTO"} {
			if strings.Contains(text, bad) {
				t.Errorf("the log contains %q:\n%s", bad, text)
			}
		}
		if !strings.Contains(text, "request failed") || !strings.Contains(text, "node_id="+n.NodeID()) {
			t.Errorf("log = %s", text)
		}
	}, migrations.Server)
}

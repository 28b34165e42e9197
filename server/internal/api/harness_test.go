package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/command"
)

// A node is one server's HTTP interface over a real socket.
type node struct {
	t     *testing.T
	db    *dbtest.DB
	url   string
	creds orbit.Credentials // over all queues, every permission of a bootstrap
	api   *api.Handler
	log   *safeBuffer

	ready  func(context.Context) error // overrides what /readyz asks
	worker http.HandlerFunc            // overrides what takes the connections of workers

	mu    sync.Mutex
	woken []int64
	told  []told
}

// onEachEngine runs f with a node on a fresh database of each engine.
func onEachEngine(t *testing.T, f func(t *testing.T, n *node)) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) { f(t, newNode(t, db, db.DB)) }, migrations.Server)
}

// onSQLite is for what no engine can change: routes, headers, bodies.
func onSQLite(t *testing.T) *node {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	return newNode(t, db, db.DB)
}

// newNode starts a node that works through the pools of through, on the database db.
func newNode(t *testing.T, db *dbtest.DB, through *sqldb.DB) *node {
	t.Helper()
	creds, err := admin.Bootstrap{
		Application: "app", Namespace: "default", Environment: "test", Queue: "first", WorkerAccess: true, Actor: "test",
	}.Run(t.Context(), db.DB)
	if err != nil {
		t.Fatalf("bootstrap: %v", err)
	}
	n := &node{t: t, db: db, creds: creds, log: &safeBuffer{}}
	n.start(through)
	return n
}

func (n *node) start(through *sqldb.DB) {
	committer := accept.New(through, accept.Config{Wake: n.wake})
	n.api = api.New(api.Config{
		DB:        through,
		Auth:      auth.New(through),
		Committer: committer,
		Commands:  command.New(through, command.Config{Wake: n.wake, Cancelled: n.cancelled}),
		Worker:    http.HandlerFunc(n.takeWorker),
		Ready:     n.probe(through),
		Log:       slog.New(slog.NewJSONHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	web := httptest.NewServer(n.api)
	n.url = web.URL
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { committer.Run(ctx) })
	n.t.Cleanup(func() {
		web.Close()
		cancel()
		running.Wait()
	})
}

// takeWorker is what takes the connections of workers.
func (n *node) takeWorker(w http.ResponseWriter, r *http.Request) {
	if n.worker != nil {
		n.worker(w, r)
		return
	}
	http.NotFound(w, r)
}

// probe is what /readyz asks.
func (n *node) probe(db *sqldb.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		if n.ready != nil {
			return n.ready(ctx)
		}
		return db.Read().PingContext(ctx)
	}
}

func (n *node) wake(lanes []int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.woken = append(n.woken, lanes...)
}

// A told is one call that tells a worker of a cancel intent.
type told struct {
	attempt sqldb.ID
	epoch   int64
	reason  string
}

func (n *node) cancelled(attempt sqldb.ID, epoch int64, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, told{attempt, epoch, reason})
}

// takeTold returns who was told of a cancel intent since the last call.
func (n *node) takeTold() []told {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.told
	n.told = nil
	return list
}

// takeWoken returns the lanes woken since the last call.
func (n *node) takeWoken() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	woken := n.woken
	n.woken = nil
	return woken
}

// An ask is one HTTP request. The zero value is a GET with the node's own token.
type ask struct {
	method string
	path   string
	token  string // "" is the node's own, "-" none
	key    string // idempotency key
	header [][2]string
	body   string
	reader io.Reader // instead of body, without a known length
}

// An answer is one HTTP answer with its envelope.
type answer struct {
	status    int
	header    http.Header
	body      []byte
	requestID string
	data      json.RawMessage
	code      string
	message   string
}

// do sends a and holds the answer to what every answer must have (API-015, API-016,
// API-022).
func (n *node) do(a ask) answer {
	n.t.Helper()
	got, err := n.try(a)
	if err != nil {
		n.t.Fatalf("%s %s: %v", a.method, a.path, err)
	}
	return got
}

func (n *node) try(a ask) (answer, error) {
	req, err := n.request(a)
	if err != nil {
		return answer{}, err
	}
	sent := record(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	got, err := readAnswer(resp, body)
	if err != nil {
		return got, err
	}
	d, err := loadDescription()
	if err != nil {
		return got, err
	}
	return got, d.check(exchange{req, []byte(sent.String()), got.status, got.header, body})
}

// record keeps what is sent of the body of req, which may go on after the answer.
func record(req *http.Request) *safeBuffer {
	sent := &safeBuffer{}
	req.GetBody = nil
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(req.Body, sent), req.Body}
	return sent
}

func (n *node) request(a ask) (*http.Request, error) {
	if a.method == "" {
		a.method = http.MethodGet
	}
	body := a.reader
	if body == nil {
		body = strings.NewReader(a.body)
	}
	req, err := http.NewRequest(a.method, n.url+a.path, body)
	if err != nil {
		return nil, err
	}
	switch a.token {
	case "":
		req.Header.Set("Authorization", "Bearer "+n.creds.Token)
	case "-":
	default:
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	if a.method == http.MethodPost || a.method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		req.Header.Set("Idempotency-Key", a.key)
	}
	for _, h := range a.header {
		switch name, value := h[0], h[1]; {
		case strings.HasPrefix(name, "+"):
			req.Header.Add(name[1:], value)
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

func readAnswer(resp *http.Response, body []byte) (answer, error) {
	got := answer{status: resp.StatusCode, header: resp.Header, body: body, requestID: resp.Header.Get("X-Request-Id")}
	if !orbit.ValidID(got.requestID) {
		return got, fmt.Errorf("answer %d has X-Request-ID %q, want 32 hex characters", got.status, got.requestID)
	}
	if resp.Request.Method == http.MethodHead {
		return got, nil
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		return got, fmt.Errorf("answer %d has Content-Type %q", got.status, kind)
	}
	var envelope struct {
		RequestID string          `json:"request_id"`
		Data      json.RawMessage `json:"data"`
		Error     *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&envelope); err != nil {
		return got, fmt.Errorf("answer %d is no envelope: %v: %s", got.status, err, body)
	}
	if envelope.RequestID != got.requestID {
		return got, fmt.Errorf("request_id %s differs from X-Request-ID %s", envelope.RequestID, got.requestID)
	}
	if ok := got.status < 300; ok != (envelope.Error == nil) || ok != (envelope.Data != nil) {
		return got, fmt.Errorf("answer %d has the wrong half of the envelope: %s", got.status, body)
	}
	if envelope.Error != nil {
		got.code, got.message = envelope.Error.Code, envelope.Error.Message
		if !orbit.CodeBelongsTo(got.status, got.code) {
			return got, fmt.Errorf("code %s does not belong to status %d", got.code, got.status)
		}
	}
	got.data = envelope.Data
	return got, nil
}

// want fails unless the answer has this status and, for an error, code.
func (a answer) want(t *testing.T, status int, code string) answer {
	t.Helper()
	if a.status != status || a.code != code {
		t.Fatalf("answer = %d %s (%s), want %d %s", a.status, a.code, a.message, status, code)
	}
	return a
}

// accepted reads the data of a submit.
func (a answer) accepted(t *testing.T) (deduplicated bool, task json.RawMessage) {
	t.Helper()
	var data struct {
		Deduplicated *bool           `json:"deduplicated"`
		Task         json.RawMessage `json:"task"`
	}
	if err := json.Unmarshal(a.data, &data); err != nil || data.Deduplicated == nil || data.Task == nil {
		t.Fatalf("data of a submit = %s (%v)", a.data, err)
	}
	return *data.Deduplicated, data.Task
}

// taskOf reads the task of a submit's answer.
func (a answer) taskOf(t *testing.T) orbit.Task {
	t.Helper()
	_, raw := a.accepted(t)
	var task orbit.Task
	if err := task.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return task
}

// submit posts body under key.
func (n *node) submit(key, body string) answer {
	n.t.Helper()
	return n.do(ask{method: http.MethodPost, path: "/v1/tasks", key: key, body: body})
}

// body is a submit to the node's queue; members are appended to it as they are.
func (n *node) body(members ...string) string {
	return bodyFor(n.creds.QueueID, members...)
}

func bodyFor(queue string, members ...string) string {
	all := append([]string{
		`"queue_id":"` + queue + `"`, `"handler":"file.convert"`, `"handler_version":"v1"`, `"payload_version":"v1"`,
	}, members...)
	text := strings.Join(all, ",")
	if !strings.Contains(text, `"payload":`) {
		text += `,"payload":{"n":1}`
	}
	return "{" + text + "}"
}

// count counts rows.
func (n *node) count(query string, args ...any) int {
	n.t.Helper()
	var count int
	if err := n.db.Write().QueryRowContext(n.t.Context(), "SELECT COUNT(*) FROM "+query, args...).Scan(&count); err != nil {
		n.t.Fatalf("count %s: %v", query, err)
	}
	return count
}

func (n *node) exec(query string, args ...any) {
	n.t.Helper()
	if _, err := n.db.Write().ExecContext(n.t.Context(), query, args...); err != nil {
		n.t.Fatalf("%s: %v", query, err)
	}
}

// queue makes another queue in the node's namespace.
func (n *node) queue(name string) string {
	n.t.Helper()
	return n.queueIn(n.creds.NamespaceID, name)
}

func (n *node) queueIn(namespace, name string) string {
	n.t.Helper()
	id := sqldb.NewID()
	n.exec(`INSERT INTO queue (id, namespace_id, name, created_at, updated_at) VALUES (?,?,?,1,1)`,
		id, parseID(n.t, namespace), []byte(name))
	return id.String()
}

// credential makes a credential of the node's namespace; no queues means all.
func (n *node) credential(permissions []string, queues ...string) orbit.Credentials {
	n.t.Helper()
	c, err := admin.CredentialRequest{
		Application: "app", Namespace: "default", Permissions: permissions, Queues: queues, Actor: "test",
	}.Run(n.t.Context(), n.db.DB)
	if err != nil {
		n.t.Fatalf("make credential: %v", err)
	}
	return c
}

// namespace makes another namespace of the same application.
func (n *node) namespace(name string) orbit.Credentials {
	n.t.Helper()
	c, err := admin.Bootstrap{
		Application: "app", Namespace: name, Environment: "test", Queue: "first", WorkerAccess: true, Actor: "test",
	}.Run(n.t.Context(), n.db.DB)
	if err != nil {
		n.t.Fatalf("make namespace: %v", err)
	}
	return c
}

func parseID(t *testing.T, text string) sqldb.ID {
	t.Helper()
	id, err := sqldb.ParseID(text)
	if err != nil {
		t.Fatalf("parse id %q: %v", text, err)
	}
	return id
}

// now is the database's time.
func (n *node) now() int64 {
	n.t.Helper()
	now, err := n.db.Now(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return now
}

// A row is what a test looks at of a stored task.
type row struct {
	dispatch int
	lane     sql.NullInt64
	order    int64
	own      int64
	expire   int64
}

func (n *node) row(id string) (r row) {
	n.t.Helper()
	err := n.db.Write().QueryRowContext(n.t.Context(),
		`SELECT dispatch_state, dispatch_lane, order_value, lane, expire_at FROM task WHERE id = ?`, parseID(n.t, id)).
		Scan(&r.dispatch, &r.lane, &r.order, &r.own, &r.expire)
	if err != nil {
		n.t.Fatalf("read task row: %v", err)
	}
	return r
}

// safeBuffer collects what the server logs.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

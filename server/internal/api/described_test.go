package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/api"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/session"
)

// askFor asks for an operation, with ids in its path that name nothing.
func askFor(op *operation) ask {
	a := ask{method: op.method, path: placeholderNames.ReplaceAllString(op.path, strings.Repeat("0", 32))}
	if op.body != nil && op.id != "submitBatch" {
		a.key = "key"
	}
	return a
}

// What holds for every path is answered on every path as it is described: ERR-002, ERR-007,
// ERR-008, ERR-012, API-021, API-027, API-034. The requests go through the harness, which
// holds the answers to openapi.yaml.
func TestWhatEveryPathAnswers(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	faults := dbfault.Open(t, db)
	n := newNode(t, db, faults.DB)
	nobody := orbitToken(n.creds.Token)
	open := map[string]bool{}
	for _, path := range api.Public() {
		open[path] = true
	}
	asked := 0
	for _, op := range openapi(t).operations {
		if open[op.path] {
			continue
		}
		asked++
		a := askFor(op)
		a.token = nobody
		n.do(a).want(t, 401, orbit.CodeUnauthenticated)
		a.token = ""
		other := a
		other.method = http.MethodDelete
		n.do(other).want(t, 405, orbit.CodeInvalidArgument)
		if op.body == nil {
			a.path += "?unknown=1" // LIST-019
			n.do(a).want(t, 400, orbit.CodeInvalidArgument)
			continue
		}
		a.body = strings.Repeat(" ", orbit.MaxBodyBytes+1)
		n.do(a).want(t, 413, orbit.CodeBodyTooLarge)
		a.body, a.header = "{}", [][2]string{{"Content-Type", "text/plain"}}
		n.do(a).want(t, 415, orbit.CodeUnsupportedMediaType)
		a.header = nil
		n.do(a).want(t, 400, orbit.CodeInvalidArgument)
	}
	if asked < 18 {
		t.Fatalf("only %d operations were asked for", asked)
	}
	faults.Break()
	for _, op := range openapi(t).operations {
		if !open[op.path] {
			n.do(askFor(op)).want(t, 503, orbit.CodeUnavailable)
		}
	}
}

// orbitToken is a token of the same form that stands for nobody.
func orbitToken(good string) string {
	return good[:len(good)-64] + strings.Repeat("0", 64)
}

// REF-WRK-002: what the path of workers answers is described too, though what follows is
// no HTTP.
func TestWorkerConnectionsAreDescribed(t *testing.T) {
	n := onSQLite(t)
	authenticator := auth.New(n.db.DB)
	hub, err := session.New(n.db.DB, authenticator, session.Config{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	web := httptest.NewServer(api.New(api.Config{DB: n.db.DB, Auth: authenticator, Worker: hub}))
	defer web.Close()
	reader := n.credential([]string{auth.TasksRead}).Token
	const protocol = "Sec-Websocket-Protocol"
	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", protocol: wire.Protocol}
	for _, c := range []struct {
		status int
		token  string
		header map[string]string
	}{
		{401, orbitToken(n.creds.Token), nil}, {403, reader, nil}, {400, n.creds.Token, nil},
		{400, n.creds.Token, map[string]string{"Connection": "Upgrade", "Upgrade": "websocket"}},
		{403, n.creds.Token, map[string]string{"Origin": "https://example.org"}},
	} {
		n.connect(t, web.URL, c.token, c.header, c.status)
	}
	dialer := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
	credential := http.Header{"Authorization": {"Bearer " + n.creds.Token}}
	ws, resp, err := dialer.Dial("ws"+strings.TrimPrefix(web.URL, "http")+wire.Path, credential)
	if err != nil {
		t.Fatal(err)
	}
	ws.Close()
	sent, err := http.NewRequest(http.MethodGet, web.URL+wire.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent.Header = http.Header{"Upgrade": {"websocket"}, protocol: {wire.Protocol}}
	if err := openapi(t).check(exchange{sent, nil, resp.StatusCode, resp.Header, nil}); err != nil || resp.StatusCode != 101 {
		t.Errorf("status %d: %v", resp.StatusCode, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	n.connect(t, web.URL, n.creds.Token, upgrade, 503)
}

func (n *node) connect(t *testing.T, url, token string, header map[string]string, status int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url+wire.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := openapi(t).check(exchange{req, nil, resp.StatusCode, resp.Header, body}); err != nil || resp.StatusCode != status {
		t.Errorf("status %d, want %d: %v", resp.StatusCode, status, err)
	}
}

package api_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/api"
)

// A logLine is one line of the log about a refusal.
type logLine struct {
	Level      string
	Status     int
	Code       string
	Route      string
	Credential string `json:"credential_id"`
	Address    string
	Withheld   int
}

// refusals returns the lines about refusals by the id of the request. No line has another
// member than those of a refusal.
func (n *node) refusals() map[string]logLine {
	n.t.Helper()
	known := []string{"time", "level", "msg", "request_id", "status", "code", "route", "credential_id", "address", "withheld"}
	lines := map[string]logLine{}
	for scan := bufio.NewScanner(strings.NewReader(n.log.String())); scan.Scan(); {
		var all map[string]any
		var line logLine
		if err := json.Unmarshal(scan.Bytes(), &all); err != nil {
			n.t.Fatalf("log line %s: %v", scan.Text(), err)
		}
		if all["msg"] != "request refused" {
			continue
		}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			n.t.Fatal(err)
		}
		for name := range all {
			if !slices.Contains(known, name) {
				n.t.Errorf("log line has %s: %s", name, scan.Text())
			}
		}
		id, _ := all["request_id"].(string)
		if _, twice := lines[id]; twice {
			n.t.Errorf("request %s is told twice", id)
		}
		lines[id] = line
	}
	return lines
}

// ERR-015, API-014: each refusal is in the log under its request id, and nothing that the
// client wrote is: no key, id, path, parameter, header, payload, reason or token.
func TestRefusalsAreLoggedWithoutWhatTheClientWrote(t *testing.T) {
	n := onSQLite(t)
	id := n.accept()
	n.submit("used", n.body()).want(t, 201, "")
	reader := n.credential([]string{"tasks:read"})
	long := strings.Repeat(" ", 524289)
	for _, c := range []struct {
		ask    ask
		status int
		level  string
		route  string
	}{
		{ask{path: "/" + canary}, 404, "DEBUG", "other"},
		{ask{path: "/v1/tasks/" + canary}, 404, "DEBUG", "/v1/tasks/{id}"},
		{ask{path: "/v1/tasks/" + canary + "/attempts/" + canary}, 404, "DEBUG", "/v1/tasks/{id}/attempts/{id}"},
		{ask{path: "/v1/queues?" + canary + "=" + canary}, 400, "DEBUG", "/v1/queues"},
		{ask{path: n.tasks("business_key=" + canary + "%00")}, 400, "DEBUG", "/v1/tasks"},
		{ask{path: n.tasks("cursor=" + canary)}, 400, "DEBUG", "/v1/tasks"},
		{ask{method: canary, path: "/v1/tasks"}, 405, "DEBUG", "/v1/tasks"},
		{ask{method: "POST", path: "/v1/tasks", key: canary + " x", body: n.body()}, 400, "DEBUG", "/v1/tasks"},
		{ask{method: "POST", path: "/v1/tasks", key: canary, body: n.body(`"` + canary + `":1`)}, 400, "DEBUG", "/v1/tasks"},
		{ask{method: "POST", path: "/v1/tasks", key: "used", body: n.body(`"payload":"` + canary + `"`)}, 409, "DEBUG", "/v1/tasks"},
		{ask{method: "POST", path: "/v1/tasks", key: canary, body: canary + long}, 413, "DEBUG", "/v1/tasks"},
		{ask{method: "POST", path: "/v1/tasks", key: "k", body: "{}", header: [][2]string{{"Content-Type", canary}}}, 415, "DEBUG", "/v1/tasks"},
		{ask{method: "POST", path: "/v1/tasks/" + id + ":cancel", key: canary, body: cancelBody(9, canary)}, 409, "DEBUG", "/v1/tasks/{id}:cancel"},
		{ask{path: "/v1/application", token: reader.Token, header: [][2]string{{"X-Request-ID", canary}, {"X-Forwarded-For", canary}, {"User-Agent", canary}}}, 403, "INFO", "/v1/application"},
		{ask{path: "/v1/capabilities", token: canary}, 401, "INFO", "/v1/capabilities"},
	} {
		got := n.do(c.ask)
		if got.status != c.status {
			t.Fatalf("%s %.60s = %d (%s), want %d", c.ask.method, c.ask.path, got.status, got.message, c.status)
		}
		line, told := n.refusals()[got.requestID]
		if !told || line.Level != c.level || line.Status != c.status || line.Route != c.route || got.code != "" && line.Code != got.code {
			t.Errorf("%s %.60s is logged as %+v (%t)", c.ask.method, c.ask.path, line, told)
		}
	}
	if logged := n.log.String(); strings.Contains(logged, canary) || strings.Contains(logged, id) || strings.Contains(logged, n.creds.Token[38:]) {
		t.Errorf("the log holds what a client wrote:\n%s", logged)
	}
}

// Who is refused is named by the credential, or by the address where none is known.
func TestARefusalNamesTheCredential(t *testing.T) {
	n := onSQLite(t)
	reader := n.credential([]string{"tasks:read"})
	known := n.do(ask{path: "/v1/application", token: reader.Token}).want(t, 403, orbit.CodePermissionDenied)
	unknown := n.do(ask{path: "/v1/application", token: "-"}).want(t, 401, orbit.CodeUnauthenticated)
	lines := n.refusals()
	if got := lines[known.requestID]; got.Credential != reader.Token[6:38] || got.Address != "" {
		t.Errorf("403 is logged as %+v", got)
	}
	if got := lines[unknown.requestID]; got.Credential != "" || got.Address != "127.0.0.1" {
		t.Errorf("401 is logged as %+v", got)
	}
}

// Many refusals of one source are few lines at info level; all are there at debug level.
func TestRepeatedDenialsAreToldSparingly(t *testing.T) {
	n := onSQLite(t)
	reader := n.credential([]string{"tasks:read"})
	const requests = 30
	start := time.Now()
	for range requests {
		n.do(ask{path: "/v1/application", token: reader.Token}).want(t, 403, orbit.CodePermissionDenied)
	}
	most := 1 + int(time.Since(start)/time.Second)
	lines, told := n.refusals(), 0
	for _, line := range lines {
		if line.Level == "INFO" {
			told++
		}
	}
	if len(lines) != requests || told < 1 || told > most {
		t.Errorf("%d lines, %d of them at info level; want %d and at most %d", len(lines), told, requests, most)
	}
}

// What is withheld is counted, and a flood from many addresses stays bounded too.
func TestRefusalLogIsBounded(t *testing.T) {
	l := api.NewRefusalLog()
	now := time.Unix(1_000_000, 0)
	tell := func(address string, wantWithheld int, wantTold bool) {
		t.Helper()
		if withheld, told := l.Tell(address, now); withheld != wantWithheld || told != wantTold {
			t.Errorf("%s at %v: %d, %t; want %d, %t", address, now.Unix(), withheld, told, wantWithheld, wantTold)
		}
	}
	tell("a", 0, true)
	tell("a", 0, false)
	tell("b", 0, true)
	now = now.Add(999 * time.Millisecond)
	tell("a", 0, false)
	now = now.Add(time.Millisecond)
	tell("a", 2, true)
	tell("b", 0, true)
	now = now.Add(time.Hour)
	tell("a", 0, true)
	for range 20 {
		lines := 0
		now = now.Add(time.Second)
		for range 10_000 {
			if _, told := l.Tell(sqldb.NewID().String(), now); told {
				lines++
			}
		}
		if lines != 50 {
			t.Errorf("%d lines in one second, want 50", lines)
		}
	}
	if held := l.Sources(); held > 4096 {
		t.Errorf("%d sources are remembered", held)
	}
}

// What the handler of worker connections refuses is told as well.
func TestRefusedWorkersAreLogged(t *testing.T) {
	n := onSQLite(t)
	n.worker = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	resp, err := http.Get(n.url + "/v1/worker/connect")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want := logLine{Level: "INFO", Status: 401, Code: orbit.CodeUnauthenticated, Route: "/v1/worker/connect", Address: "127.0.0.1"}
	if got := n.refusals()[resp.Header.Get("X-Request-ID")]; got != want {
		t.Errorf("logged %+v, want %+v", got, want)
	}
}

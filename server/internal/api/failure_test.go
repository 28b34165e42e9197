package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// onFaults runs f with a node that works through faults, on each engine.
func onFaults(t *testing.T, f func(t *testing.T, n *node, faults *dbfault.Faults)) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		faults := dbfault.Open(t, db)
		f(t, newNode(t, db, faults.DB), faults)
	}, migrations.Server)
}

// ERR-012, ERR-017, IDEM-013: the answer to COMMIT is lost. Where the outcome can be
// looked up the answer is exact; where it cannot it is 503, and the repeat is exact.
// IDEM-026.
func TestLostCommitOverHTTP(t *testing.T) {
	onFaults(t, func(t *testing.T, n *node, faults *dbfault.Faults) {
		faults.OnCommit(func(n int) dbfault.Verdict {
			if n == 1 {
				return dbfault.LoseAnswer
			}
			return dbfault.Pass
		})
		n.submit("resolved", n.body()).want(t, http.StatusCreated, "")
		if faults.Commits() != 1 {
			t.Fatalf("%d commits, want 1: the fault did not fire or the task was written again", faults.Commits())
		}

		faults.OnCommit(func(int) dbfault.Verdict {
			faults.Break()
			return dbfault.LoseAnswer
		})
		got := n.submit("unknown", n.body()).want(t, http.StatusServiceUnavailable, orbit.CodeUnavailable)
		if faults.Commits() != 1 {
			t.Fatal("the fault did not fire")
		}
		if !strings.Contains(n.log.String(), got.requestID) {
			t.Error("the failed request is not in the log")
		}
		n.do(ask{path: "/v1/capabilities"}).want(t, http.StatusServiceUnavailable, orbit.CodeUnavailable)
		n.do(ask{method: "POST", path: "/v1/tasks:batch", body: `{"items":[` + item("b", n.body()) + `]}`}).
			want(t, http.StatusServiceUnavailable, orbit.CodeUnavailable)
		faults.OnCommit(func(int) dbfault.Verdict { return dbfault.Pass })
		faults.Mend()
		again := n.submit("unknown", n.body()).want(t, http.StatusOK, "")
		if deduplicated, _ := again.accepted(t); !deduplicated {
			t.Error("the repeat says it created the task")
		}
		if got := n.count("task"); got != 2 {
			t.Errorf("%d tasks, want 2", got)
		}
	})
}

// REF-BATCH-002: a batch whose commit is unknown and cannot be looked up is 503 as a
// whole.
func TestUnknownBatchIsUnavailableAsAWhole(t *testing.T) {
	onFaults(t, func(t *testing.T, n *node, faults *dbfault.Faults) {
		items := fmt.Sprintf(`{"items":[%s,%s]}`, item("a", n.body()), item("b", n.body()))
		faults.OnCommit(func(int) dbfault.Verdict {
			faults.Break()
			return dbfault.LoseAnswer
		})
		n.do(ask{method: "POST", path: "/v1/tasks:batch", body: items}).want(t, 503, orbit.CodeUnavailable)
		faults.Mend()
		for _, got := range n.batch(nil, item("a", n.body()), item("b", n.body())) {
			if got.Status != 200 {
				t.Errorf("repeat of an item: %d, want 200", got.Status)
			}
		}
		if got := n.count("task"); got != 2 {
			t.Errorf("%d tasks, want 2", got)
		}
	})
}

const canary = "canary-5f3a"

// ERR-015: neither payload, statement nor token gets into an answer or the log, though the
// engine's own error quotes them.
func TestNoSecretsInAnswersAndLog(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		statement := `CREATE TRIGGER quote_payload BEFORE INSERT ON task FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'cannot store ` + canary + `'`
		if n.db.Engine == dbtest.SQLite {
			statement = `CREATE TRIGGER quote_payload BEFORE INSERT ON task BEGIN SELECT RAISE(ABORT, 'cannot store ` + canary + `'); END`
		}
		n.exec(statement)
		body := n.body(`"payload":{"secret":"`+canary+`"}`, `"business_key":"`+canary+`"`)
		answers := []answer{
			n.submit("key", body).want(t, 503, orbit.CodeUnavailable),
			n.do(ask{method: "POST", path: "/v1/tasks:batch", body: `{"items":[` + item("k2", body) + `]}`}).want(t, 503, orbit.CodeUnavailable),
			n.submit("key", n.body(`"payload":{"`+canary+`":1,"`+canary+`":2}`, `"retry":{"x`+canary+`":1}`)).want(t, 400, orbit.CodeInvalidArgument),
			n.submit(canary+"\u00fc", body).want(t, 400, orbit.CodeInvalidArgument),
			n.do(ask{method: "POST", path: "/v1/tasks", key: "k", body: body, header: [][2]string{{"Content-Type", canary}}}).want(t, 415, orbit.CodeUnsupportedMediaType),
			n.do(ask{path: "/v1/tasks/" + canary}).want(t, 404, orbit.CodeNotFound),
			n.do(ask{path: "/" + canary}).want(t, 404, orbit.CodeNotFound),
			n.do(ask{path: "/v1/capabilities", token: canary}).want(t, 401, orbit.CodeUnauthenticated),
		}
		logged := n.log.String()
		if !strings.Contains(logged, "insert tasks") {
			t.Fatalf("the failure is not in the log: %s", logged)
		}
		for i, a := range answers {
			for _, bad := range []string{"INSERT", "SELECT", "cannot store", n.creds.Token} {
				if strings.Contains(string(a.body), bad) {
					t.Errorf("answer %d contains %q: %s", i, bad, a.body)
				}
			}
			// A field that is named may carry a name of the client's own; its values never.
			if strings.Contains(string(a.body), canary) && a.status != 400 {
				t.Errorf("answer %d contains the canary: %s", i, a.body)
			}
		}
		for _, bad := range []string{canary, "INSERT INTO", n.creds.Token, n.creds.Token[len(n.creds.Token)-64:]} {
			if strings.Contains(logged, bad) {
				t.Errorf("the log contains %q:\n%s", bad, logged)
			}
		}
	})
}

// ERR-014: a panic is 503 in the envelope, and its value does not get into the log.
func TestAPanicIsUnavailable(t *testing.T) {
	n := onSQLite(t)
	n.ready = func(context.Context) error { panic(canary) }
	n.do(ask{path: "/readyz"}).want(t, 503, orbit.CodeUnavailable)
	if logged := n.log.String(); !strings.Contains(logged, "request panicked") || strings.Contains(logged, canary) {
		t.Errorf("log = %s", logged)
	}
	n.ready = nil
	n.do(ask{path: "/healthz"}).want(t, 200, "")
}

// REF-HEALTH-002: no credential, no detail.
func TestHealth(t *testing.T) {
	n := onSQLite(t)
	n.do(ask{path: "/healthz", token: "-"}).want(t, 200, "")
	n.do(ask{path: "/readyz", token: "-"}).want(t, 200, "")
	other := onSQLite(t)
	other.ready = func(context.Context) error { return errors.New("dial " + canary) }
	got := other.do(ask{path: "/readyz", token: "-"}).want(t, 503, orbit.CodeUnavailable)
	if strings.Contains(string(got.body), canary) || got.header.Get("Retry-After") != "1" {
		t.Errorf("answer %s with Retry-After %q", got.body, got.header.Get("Retry-After"))
	}
	other.do(ask{path: "/healthz", token: "-"}).want(t, 200, "")
	n.api.Drain(time.Second)
	n.do(ask{path: "/readyz", token: "-"}).want(t, 503, orbit.CodeUnavailable)
	n.submit("still-served", n.body()).want(t, 201, "")
}

// /readyz costs the database at most one question a second, whoever asks how often.
func TestReadyzAsksTheDatabaseSparingly(t *testing.T) {
	n := onSQLite(t)
	asked := 0
	n.ready = func(context.Context) error { asked++; return nil }
	start := time.Now()
	for range 50 {
		n.do(ask{path: "/readyz", token: "-"}).want(t, 200, "")
	}
	if most := 1 + int(time.Since(start)/time.Second); asked > most {
		t.Errorf("asked %d times, want at most %d", asked, most)
	}
}

// A body that breaks off is not the sender's mistake: 400 would make a relay give the row
// up.
func TestABodyThatBreaksOffIsUnavailable(t *testing.T) {
	n := onSQLite(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", n.creds.Token)
	conn.(*net.TCPConn).CloseWrite()
	answer := make([]byte, 4096)
	size, err := conn.Read(answer)
	if err != nil || !strings.HasPrefix(string(answer[:size]), "HTTP/1.1 503 ") {
		t.Errorf("answer %q, %v; want 503", answer[:size], err)
	}
}

// A chunked body that is cut off may be the network's doing; one of the wrong form is its
// sender's.
func TestMalformedChunksAreABadRequest(t *testing.T) {
	n := onSQLite(t)
	bodies := map[string]string{
		"zz\r\n{}\r\n0\r\n\r\n":                  "400",
		"2\r\n{}xx0\r\n\r\n":                     "400",
		"11111111111111111\r\n{}\r\n":            "400",
		strings.Repeat("1", 5000) + "\r\n{}\r\n": "400",
		"2\r\n{":                                 "503",
		"2\r\n{}\r\n":                            "503",
		"2\r\n{}\r\n0\r\n":                       "503",
	}
	for body, want := range bodies {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%s", n.creds.Token, body)
		conn.(*net.TCPConn).CloseWrite()
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, want) {
			t.Errorf("body %.30q: %q, %v; want %s", body, line, err, want)
		}
		conn.Close()
	}
}

// Many requests that announce much and send little take little memory: a body is held in
// the size that has arrived.
func TestAnAnnouncedBodyTakesNoMemoryBeforeItArrives(t *testing.T) {
	n := onSQLite(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const requests = 100
	for range requests {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", n.creds.Token, orbit.MaxBodyBytes)
		conn.(*net.TCPConn).CloseWrite()
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "503") {
			t.Errorf("answer %q, %v; want 503", line, err)
		}
		conn.Close()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / requests; each > orbit.MaxBodyBytes/2 {
		t.Errorf("%d bytes were allocated for each request", each)
	}
}

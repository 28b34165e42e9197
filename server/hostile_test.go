package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

// API-005: a body that never ends is answered 413 once it is over its bound, and the
// connection is closed instead of read on. Memory stays flat, whatever many clients send.
func TestEndlessBodiesAreCutOff(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds := bootstrap(t, db)
	n := start(t, db.DB, server.Config{})
	const clients, most = 24, 16 << 20 // bytes that the network may swallow meanwhile
	before := heap()
	var largest atomic.Int64
	var sending sync.WaitGroup
	for i := range clients {
		sending.Go(func() {
			body := &endless{start: `{"queue_id":"` + creds.QueueID + `","payload":"`}
			req, err := http.NewRequest(http.MethodPost, n.url+"/v1/tasks", body)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+creds.Token)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
			resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusRequestEntityTooLarge {
					t.Errorf("endless body: status %d, want 413", resp.StatusCode)
				}
			} // else the connection was closed while the client still wrote: cut off as well
			if sent := body.sent.Load(); sent > most {
				t.Errorf("the server let the client send %d bytes", sent)
			}
			for grown := heap() - before; ; {
				if old := largest.Load(); grown <= old || largest.CompareAndSwap(old, grown) {
					break
				}
			}
		})
	}
	sending.Wait()
	if grown := largest.Load(); grown > 96<<20 {
		t.Errorf("%d endless bodies took %d MiB of memory", clients, grown>>20)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An endless body begins like a submit and goes on until its reader ends.
type endless struct {
	start  string
	sent   atomic.Int64
	closed atomic.Bool
}

func (e *endless) Read(p []byte) (int, error) {
	if e.closed.Load() {
		return 0, errors.New("closed")
	}
	n := copy(p, e.start)
	e.start = e.start[n:]
	for i := n; i < len(p); i++ {
		p[i] = 'x'
	}
	e.sent.Add(int64(len(p)))
	return len(p), nil
}

func (e *endless) Close() error {
	e.closed.Store(true)
	return nil
}

// Slow clients hold their own connections and nobody else: beside hundreds of requests
// whose headers or bodies do not come on, others are answered.
func TestSlowClientsHoldUpNobody(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds := bootstrap(t, db)
	n := start(t, db.DB, server.Config{StopTimeout: 4 * time.Second})
	address := strings.TrimPrefix(n.url, "http://")
	starts := []string{
		"GET /v1/capabilities HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + creds.Token +
			"\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 300000\r\n\r\n{",
		"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + creds.Token +
			"\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":",
	}
	for i := range 300 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, starts[i%len(starts)]); err != nil {
			t.Fatal(err)
		}
	}
	c := client(t, n, creds)
	for i := range 20 {
		if _, err := c.SubmitTask(t.Context(), fmt.Sprint("quick-", i), request(creds)); err != nil {
			t.Fatalf("submit beside slow clients: %v", err)
		}
	}
}

// One credential cannot fill the room for bodies: beside as many stalled bodies as the node
// takes of it, another credential is served at once.
func TestStalledBodiesOfOneCredentialLeaveRoomForOthers(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	creds := bootstrap(t, db)
	other, err := server.CreateCredential(t.Context(), db.DB, server.CredentialRequest{
		Application: "app", Namespace: "default", Name: "other", Permissions: []string{"tasks:submit"}, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, db.DB, server.Config{StopTimeout: 4 * time.Second})
	part := strings.Repeat("x", 500<<10)
	var sending sync.WaitGroup
	for range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sending.Go(func() {
			fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 520000\r\n\r\n%s", creds.Token, part)
		})
	}
	c := client(t, n, other)
	r := request(creds)
	for i := range 20 {
		if _, err := c.SubmitTask(t.Context(), fmt.Sprint("quick-", i), r); err != nil {
			t.Fatalf("submit beside stalled bodies: %v", err)
		}
	}
	n.stop()
	sending.Wait()
}

// A header that does not come on is cut off after a while (no client holds a connection by
// sending nothing).
func TestHeadersThatDoNotEndAreCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the server's patience with headers, 10 s")
	}
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	n := start(t, db.DB, server.Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	// It ends by itself: with nothing, or with an answer that closes.
	if _, err := io.ReadAll(bufio.NewReader(conn)); err != nil {
		t.Errorf("read = %v, want the end of the connection", err)
	}
}

// A refused write sends its refusal though the body goes on: 401 and 415 need no body.
func TestRefusalsDoNotWaitForTheBody(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	n := start(t, db.DB, server.Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer none\r\nContent-Length: 400000\r\n\r\n{")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "401") {
		t.Errorf("answer %q, %v; want 401 at once", line, err)
	}
}

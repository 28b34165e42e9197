package session_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/session"
)

// An idle connection costs a bounded piece of memory and no question to the database. The
// workers' side is in a process of its own.
func TestIdleConnectionsCostLittle(t *testing.T) { // cost law 7
	const (
		connections = 200
		mostEach    = 50 << 10 // bytes, goroutines and TLS included
		mostCalls   = 60       // of the database while all are idle; far below one for each
		patience    = 10 * time.Second
	)
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	faults := dbfault.Open(t, db)
	s := scene{T: t, w: dispatchtest.New(t, db.DB), db: db}
	n := s.newNode(faults.DB, session.Config{Node: "node-i", Ping: patience})
	q, token := s.w.NewQueue("q"), s.worker()
	few := s.idle(n, idlers{token, q, 20})
	before := footprint()
	many := s.idle(n, idlers{token, q, connections})
	s.until("all are there", func() bool { return len(n.hub.Loads()) == connections+20 && n.hub.HotLanes() == 0 })
	each := (footprint() - before) / connections
	t.Logf("%d bytes for each connection", each)
	if each > mostEach && !underRace {
		t.Errorf("an idle connection takes %d bytes, want %d at most", each, mostEach)
	}
	faults.Arm(mostCalls, dbfault.Pass)
	time.Sleep(patience / 5) // pings of many connections
	if _, more := faults.Disarm(); more {
		t.Errorf("%d idle connections had the database called more than %d times", connections, mostCalls)
	}
	if got := len(n.hub.Loads()); got != connections+20 {
		t.Errorf("%d connections are left, want %d", got, connections+20)
	}
	many()
	few()
}

// footprint is what this process has in memory now.
func footprint() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a first one only marks
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

// idlers are workers of another process that are given nothing.
type idlers struct {
	token string
	queue sqldb.ID
	count int
}

const idleVariable = "ORBIT_TEST_IDLE_WORKERS"

// An idleOrder is what their process must know.
type idleOrder struct {
	URL, Token string
	Hello      wire.Hello
	Count      int
}

// idle starts idlers and returns when they are registered and have given credit.
func (s scene) idle(n *node, w idlers) (stop func()) {
	s.Helper()
	order, err := json.Marshal(idleOrder{"wss" + strings.TrimPrefix(n.srv.URL, "https") + wire.Path, w.token, helloFor(4, w.queue), w.count})
	if err != nil {
		s.Fatal(err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), idleVariable+"="+string(order))
	child.Stderr = os.Stderr
	in, _ := child.StdinPipe()
	out, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		s.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		in.Close()
		child.Wait()
		s.Fatalf("the idle workers say %q, %v", line, err)
	}
	return func() {
		in.Close()
		if err := child.Wait(); err != nil {
			s.Errorf("idle workers: %v", err)
		}
	}
}

// beIdle is the other process. It ends with its input.
func beIdle(text string) error {
	var order idleOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return err
	}
	// The certificate is that of a test server of the parent.
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{wire.Protocol}}
	for i := range order.Count {
		ws, _, err := dialer.Dial(order.URL, http.Header{"Authorization": {"Bearer " + order.Token}})
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		order.Hello.ProcessID = sqldb.NewID().String()
		hello, err := json.Marshal(order.Hello)
		if err != nil {
			return err
		}
		if err := ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"hello","id":"1","data":%s}`, hello)); err != nil {
			return err
		}
		if _, text, err := ws.ReadMessage(); err != nil || !strings.Contains(string(text), wire.TypeHelloOK) {
			return fmt.Errorf("connection %d: %s, %v", i, text, err)
		}
		if err := ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"credit","id":"2","data":{"slots":4}}`)); err != nil {
			return err
		}
		go func() { // answers pings
			for {
				if _, _, err := ws.NextReader(); err != nil {
					return
				}
			}
		}()
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin) // until it is closed
	return nil
}

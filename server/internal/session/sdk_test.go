package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/session"
	"github.com/orbitkit/orbit/worker"
)

// The automatic worker against two real nodes, over a network that breaks all the time:
// keyed tasks over two queues run one at a time per key, once each, whatever answers get
// lost (TEST-019).
func TestAutomaticWorkersOverABreakingNetwork(t *testing.T) { // WRK-020, TEST-019, REF-WRK-001
	const tasks = 40
	run(t, func(s scene) {
		queues := []sqldb.ID{s.w.NewQueue("a"), s.w.NewQueue("b")}
		nodes := []*node{s.n, s.newNode(s.db.Reopen(s.T).DB, session.Config{Node: "node-b"})}
		for i := range tasks {
			s.submit(spec{Queue: queues[i%2], Key: fmt.Sprintf("key-%d", i%4)})
		}
		var (
			ran  resources
			wg   sync.WaitGroup
			stop []func()
		)
		for i, n := range nodes {
			cut := &cutter{}
			w := s.newWorker(n, queues[i], cut, ran.handle)
			ctx, cancel := context.WithCancel(context.Background())
			stop = append(stop, cancel)
			wg.Go(func() {
				if err := w.Run(ctx); err != nil {
					s.Errorf("worker: %v", err)
				}
			})
			s.Cleanup(func() {
				if s.Logf("%d connections were cut", cut.cuts); cut.cuts == 0 {
					s.Error("no connection was cut")
				}
			})
		}
		s.until("all tasks succeed", func() bool { return s.w.Int("SELECT COUNT(*) FROM task WHERE state = 5") == tasks })
		for _, f := range stop {
			f()
		}
		wg.Wait()
		ran.check(s, tasks)
	})
}

// A dialer opens connections, as a test wants them.
type dialer interface {
	dial(ctx context.Context, network, address string) (net.Conn, error)
}

// newWorker makes a worker of one queue that dials its own way.
func (s scene) newWorker(n *node, queue sqldb.ID, way dialer, h worker.HandlerFunc) *worker.Worker {
	s.Helper()
	w, err := worker.NewWorker(n.srv.URL, s.worker(), worker.Config{
		Queues: []string{queue.String()}, Capacity: 4,
		Handlers:     map[worker.Handler]worker.HandlerFunc{{Name: "h", Version: dispatchtest.Version}: h},
		MinReconnect: time.Millisecond, MaxReconnect: 20 * time.Millisecond,
		Network: worker.Network{
			TLS:         n.srv.Client().Transport.(*http.Transport).TLSClientConfig,
			DialContext: way.dial,
		},
		OnError: func(error) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.Fatalf("NewWorker = %v", err)
	}
	return w
}

// resources notes what handlers do to each key.
type resources struct {
	mu     sync.Mutex
	active map[string]int
	token  map[string]uint64
	tokens map[string]uint64 // by attempt
	faults []string
	runs   map[string]int
}

func (r *resources) handle(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	key := e.Task.ConcurrencyKey
	r.enter(key, e)
	time.Sleep(20 * time.Millisecond) // the work
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active[key]--
	return json.RawMessage(`1`), nil
}

func (r *resources) enter(key string, e worker.Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == nil {
		r.active, r.token, r.tokens, r.runs = map[string]int{}, map[string]uint64{}, map[string]uint64{}, map[string]int{}
	}
	if r.active[key]++; r.active[key] > 1 {
		r.faults = append(r.faults, fmt.Sprintf("%d handlers at once for %s", r.active[key], key))
	}
	if e.ConcurrencyToken <= r.token[key] {
		r.faults = append(r.faults, fmt.Sprintf("token %d of %s after %d", e.ConcurrencyToken, key, r.token[key]))
	}
	r.token[key] = e.ConcurrencyToken
	r.tokens[e.AttemptID] = e.ConcurrencyToken
	r.runs[e.Task.ID]++
}

func (r *resources) check(s scene, tasks int) {
	s.Helper()
	for _, f := range r.faults {
		s.Error(f)
	}
	if len(r.runs) != tasks {
		s.Errorf("%d tasks ran, want %d", len(r.runs), tasks)
	}
	for id, n := range r.runs {
		if n != 1 {
			s.Errorf("task %s ran %d times", id, n)
		}
	}
	for attempt, token := range r.tokens {
		id, err := sqldb.ParseID(attempt)
		if err != nil {
			s.Fatal(err)
		}
		if s.w.Int("SELECT COUNT(*) FROM attempt WHERE id = ? AND concurrency_token = ? AND started_at IS NOT NULL", id, s.w.DB.Dialect().Uint64(token)) != 1 {
			s.Errorf("attempt %s ran with token %d, which is not what is stored", attempt, token)
		}
	}
}

// A cutter dials, and cuts what it dialled after a few reads, whatever was under way. It
// stops after many cuts, so that a slow machine comes to an end too.
type cutter struct {
	mu   sync.Mutex
	cuts int
}

const mostCuts = 40

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The handshake takes some; what is left lets at least hello through.
	return &frailConn{Conn: conn, of: c, left: 9 + c.cuts%5}, nil
}

// cut reports whether a connection is to be cut, and counts it.
func (c *cutter) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts == mostCuts {
		return false
	}
	c.cuts++
	return true
}

// A frailConn breaks after some reads.
type frailConn struct {
	net.Conn
	of   *cutter
	left int
}

func (c *frailConn) Read(b []byte) (int, error) {
	if c.left--; c.left == 0 && c.of.cut() {
		c.Close()
	}
	return c.Conn.Read(b)
}

package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/worker"
)

// A gate lets connections through while it is open.
type gate struct {
	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		conn.Close()
		return nil, errors.New("the gate is closed")
	}
	g.conns = append(g.conns, conn)
	return conn, nil
}

// close cuts every connection, and lets nobody through until open.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, conn := range g.conns {
		conn.Close()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}

// A task is cancelled while its worker is away: the answer to the worker's resume ends the
// handler's context with that cause, and what it reports then counts.
func TestAutomaticWorkerHearsOfACancelWhenItResumes(t *testing.T) { // CAN-023, REF-CAN-002, WRK-014
	run(t, func(s scene) {
		q := s.w.NewQueue("q")
		id := s.submit(spec{Queue: q, Key: "object"})
		started, cause := make(chan struct{}), make(chan error, 1)
		g := &gate{}
		w := s.newWorker(s.n, q, g, func(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil, worker.Cancelled(nil)
		})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		<-started
		g.close()
		s.until("the node has noticed", func() bool { return len(s.n.hub.Loads()) == 0 })
		s.cancel(id, "ordered twice") // nobody can be told
		g.open()
		if err := <-cause; !errors.Is(err, worker.ErrCancelRequested) {
			s.Errorf("the handler's context ended with %v", err)
		}
		s.until("the report counts", func() bool { return s.w.Task(id).State == "CANCELLED" })
		stop()
		if err := <-ended; err != nil {
			s.Errorf("Run = %v", err)
		}
	})
}

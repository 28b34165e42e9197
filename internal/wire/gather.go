package wire

import (
	"net"
	"sync"
	"time"
)

// gatherBytes is how much a connection holds back at most. It fills one record of TLS.
const gatherBytes = 16 << 10

// A GatherConn is a connection that can hold back what is written to it, so that many
// small frames leave by one system call. Its Write may be called while another goroutine
// calls the other methods. It keeps a buffer only while it holds something back.
type GatherConn struct {
	net.Conn

	mu      sync.Mutex
	holding bool
	held    *[]byte // from the pool; nil while there is nothing
}

var gatherBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, gatherBytes)
	return &b
}}

// Gather returns a connection over c that holds nothing back until it is asked to.
func Gather(c net.Conn) *GatherConn { return &GatherConn{Conn: c} }

// Hold has writes gathered from now on, up to 16 KiB. More is written at once, what was
// held before it first, under the write deadline that is set then.
func (g *GatherConn) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = true
}

// Flush writes what is held back, by deadline, and holds back no more. An error is one of
// what was held: the connection is of no use after it.
func (g *GatherConn) Flush(deadline time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = false
	if g.held == nil {
		return nil
	}
	if err := g.Conn.SetWriteDeadline(deadline); err != nil {
		g.drop()
		return err
	}
	return g.writeHeld()
}

// Write implements [net.Conn]. What is held back counts as written; that it could not be
// is the error of a later call.
func (g *GatherConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := 0
	if g.held != nil {
		waiting = len(*g.held)
	}
	if !g.holding || waiting+len(p) > gatherBytes {
		if err := g.writeHeld(); err != nil {
			return 0, err
		}
	}
	if !g.holding || len(p) > gatherBytes {
		return g.Conn.Write(p)
	}
	if g.held == nil {
		g.held = gatherBuffers.Get().(*[]byte)
	}
	*g.held = append(*g.held, p...)
	return len(p), nil
}

func (g *GatherConn) writeHeld() error {
	if g.held == nil {
		return nil
	}
	_, err := g.Conn.Write(*g.held)
	g.drop()
	return err
}

func (g *GatherConn) drop() {
	*g.held = (*g.held)[:0]
	gatherBuffers.Put(g.held)
	g.held = nil
}

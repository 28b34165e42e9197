package worker

import (
	"context"
	"sync"
)

// A link is the connection of the moment. Attempts outlive connections, so they
// ask here each time.
type link struct {
	mu      sync.Mutex
	conn    *Conn // nil while there is none on which attempts have been resumed
	changed chan struct{}
}

func newLink() *link { return &link{changed: make(chan struct{})} }

// set replaces the connection; nil takes it away.
func (l *link) set(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = c
	close(l.changed)
	l.changed = make(chan struct{})
}

// now returns the connection, or nil if there is none or it is over.
func (l *link) now() (*Conn, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.conn.Err() != nil {
		return nil, l.changed
	}
	return l.conn, l.changed
}

// wait returns the connection as soon as there is one.
func (l *link) wait(ctx context.Context) (*Conn, error) {
	for {
		c, changed := l.now()
		if c != nil {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// health serves GET /healthz: the process answers.
func (c *call) health() error {
	return c.respond(http.StatusOK, []byte(`{"status":"ok"}`))
}

// ready serves GET /readyz: the node can do its work.
func (c *call) ready() error {
	if c.draining.Load() {
		return unavailable("the server is stopping")
	}
	if err := c.readies.check(c.r.Context()); err != nil {
		c.logFailure(err)
		return unavailable("the database cannot be reached or its schema does not fit this server")
	}
	return c.respond(http.StatusOK, []byte(`{"status":"ready"}`))
}

const (
	readyFor     = time.Second     // how long an answer of the probe is good
	readyTimeout = 3 * time.Second // of the probe
)

// readiness asks the probe at most once a second, since nobody who asks it has to show a
// credential.
type readiness struct {
	probe func(context.Context) error
	mu    sync.Mutex
	at    time.Time
	err   error
}

func (r *readiness) check(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < readyFor {
		return r.err
	}
	// One who goes away must not spoil the answer for the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	r.err = r.probe(ctx)
	r.at = time.Now()
	return r.err
}

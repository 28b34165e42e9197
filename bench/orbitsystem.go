package main

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server"
)

// An orbitSystem is our server, or some of its nodes, with worker processes of the SDK.
type orbitSystem struct {
	o      options
	w      *workshop
	own    bool // the workshop is closed with it
	nodes  []*node
	bodies [][]byte
	crew   *crew
	held   int // attempts that are meant to go on
}

func newOrbitSystem(ctx context.Context, o options, cfg server.Config) (*orbitSystem, error) {
	w, err := newWorkshop(ctx, o.dsn, "server")
	if err != nil {
		return nil, err
	}
	s := &orbitSystem{o: o, w: w, own: true}
	if err := s.addNode(ctx, cfg); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// addNode adds a node on the same database.
func (s *orbitSystem) addNode(ctx context.Context, cfg server.Config) error {
	var creds orbit.Credentials
	if len(s.nodes) > 0 {
		creds = s.nodes[0].creds
	}
	n, err := startNode(ctx, s.w, creds, cfg)
	if err != nil {
		return err
	}
	s.nodes = append(s.nodes, n)
	s.bodies, err = frozenBodies(n.creds.QueueID)
	return err
}

func (s *orbitSystem) close() {
	for _, n := range s.nodes {
		n.stop()
	}
	if s.own {
		s.w.close()
	}
}

func (s *orbitSystem) fill(ctx context.Context, run string, n int) error {
	_, err := rate(4, n/len(s.bodies), func(i int) error {
		return s.nodes[i%len(s.nodes)].submitBatch(ctx, fmt.Sprintf("%s-%d", run, i), s.bodies)
	})
	return err
}

func (s *orbitSystem) submit(ctx context.Context, key string, i int) error {
	return s.nodes[i%len(s.nodes)].submit(ctx, key, i)
}

func (s *orbitSystem) work(ctx context.Context) (func() error, error) {
	var err error
	if s.crew, err = startCrew(ctx, s.o, s.nodes...); err != nil {
		return nil, err
	}
	return s.crew.stop, s.crew.begin()
}

// ended first waits for the handlers, and then for their attempts to have ended.
func (s *orbitSystem) ended(ctx context.Context, n int) error {
	err := waitUntil(ctx, func() (bool, error) {
		handled, err := s.crew.handled()
		return handled >= int64(n), err
	})
	if err != nil {
		return err
	}
	return waitUntil(ctx, func() (bool, error) {
		var live int
		err := s.w.QueryRowContext(ctx, "SELECT COUNT(*) FROM attempt WHERE live = 1").Scan(&live)
		return live <= s.held, err
	})
}

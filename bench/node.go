package main

import (
	"context"
	"fmt"
	"net"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/server"
)

// A node is a task server in this process, on a database of its own bench.
type node struct {
	url    string
	client *orbit.Client
	creds  orbit.Credentials
	stop   func() error
}

// startNode serves the database of w. A first node makes the credential, the second one
// of a pair is given it.
func startNode(ctx context.Context, w *workshop, creds orbit.Credentials, cfg server.Config) (*node, error) {
	db, err := drivers.Open(ctx, "mysql:"+w.dsn)
	if err != nil {
		return nil, err
	}
	if creds.Token == "" {
		creds, err = server.Bootstrap(ctx, db, server.BootstrapRequest{
			Application: "bench", Namespace: "default", Environment: "bench", Queue: "bench", WorkerAccess: true, Actor: "bench",
		})
		if err != nil {
			return nil, fmt.Errorf("bootstrap: %w", err)
		}
	}
	s, err := server.New(db, cfg)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	url := "http://" + l.Addr().String()
	client, err := orbit.NewClient(url, creds.Token, orbit.ClientConfig{MinimalBatchAnswers: true})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running, l) }()
	return &node{url: url, client: client, creds: creds, stop: func() error {
		client.CloseIdleConnections()
		cancel()
		err := <-ended
		db.Close()
		return err
	}}, nil
}

//go:build linux

package faults

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/server"
)

// A nodeConfig is what a node process is told. It listens on descriptor 3.
type nodeConfig struct {
	Name     string
	Database string // address
	Lease    time.Duration
	Ping     time.Duration // default 15s
	Stop     time.Duration // stop timeout
}

// nodeMain is a server node, as cmd/orbit makes it, with a lease as short as the test
// wants.
func nodeMain(text string) int {
	cfg := configured[nodeConfig](text)
	if err := runNode(cfg); err != nil {
		fmt.Fprintf(os.Stderr, "node: %v\n", err)
		return 1
	}
	return 0
}

func runNode(cfg nodeConfig) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := drivers.OpenExisting(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	node, err := server.New(db, server.Config{
		NodeID: cfg.Name, Lease: cfg.Lease, ShortLease: true, Ping: cfg.Ping, StopTimeout: cfg.Stop,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	inherited := os.NewFile(3, "listener")
	listener, err := net.FileListener(inherited)
	inherited.Close() // the listener has a copy
	if err != nil {
		return err
	}
	go commands(func(words []string) {
		if words[0] == "stats" {
			tellStats(cfg.Name)
		}
	})
	journal(cfg.Name, event{What: evReady})
	return node.Run(ctx, listener)
}

// A node is a server node as a process.
type node struct {
	*process
	addr string
	url  string
}

// A nodeOption changes what startNode does by default.
type nodeOption func(*nodeConfig, *string)

// withLease sets the length of the leases. The default is that of the scene.
func withLease(d time.Duration) nodeOption { return func(c *nodeConfig, _ *string) { c.Lease = d } }

// withPing sets how often a silent worker is asked for a sign of life.
func withPing(d time.Duration) nodeOption { return func(c *nodeConfig, _ *string) { c.Ping = d } }

// at sets the address to listen on, such as that of a node that is no more.
func at(addr string) nodeOption { return func(_ *nodeConfig, a *string) { *a = addr } }

// onDatabase makes the node reach the database by another address, such as a proxy's.
func onDatabase(address string) nodeOption {
	return func(c *nodeConfig, _ *string) { c.Database = address }
}

// startNode starts a node on the scene's database and waits until it is ready.
func (s *scene) startNode(name string, options ...nodeOption) *node {
	s.Helper()
	cfg := nodeConfig{Name: name, Database: s.db.Address, Lease: s.lease, Stop: 10 * time.Second}
	addr := "127.0.0.1:0"
	for _, option := range options {
		option(&cfg, &addr)
	}
	// The node inherits the listener, so that nobody else can get the port in between.
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		s.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		s.Fatal(err)
	}
	defer file.Close()
	n := &node{
		process: s.launch(launch{name: name, role: asNode, config: cfg, files: []*os.File{file}}),
		addr:    listener.Addr().String(), url: "http://" + listener.Addr().String(),
	}
	listener.Close() // else a request after the node's end would wait for ever
	file.Close()
	s.awaitReady(n)
	return n
}

func (s *scene) awaitReady(n *node) {
	s.Helper()
	poll(s.T, n.name+" to be ready", func() bool {
		if n.over() {
			s.Fatalf("%s ended: %v\n%s", n.name, n.ProcessState, n.log)
		}
		resp, err := quick.Get(n.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// quick is for questions that are asked again.
var quick = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// client returns a client of the node. It goes straight there, whatever proxy the
// environment names.
func (s *scene) client(n *node) *orbit.Client {
	s.Helper()
	c, err := orbit.NewClient(n.url, s.creds.Token, orbit.ClientConfig{AllowInsecure: true, Transport: &http.Transport{}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(c.CloseIdleConnections)
	return c
}

//go:build linux

package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A balancer stands in front of nodes as a load balancer does: a new connection goes to
// the next node that says it is ready.
type balancer struct {
	url string

	mu    sync.Mutex
	nodes []string // addresses
	next  int
	used  map[string]int // connections by node
}

func startBalancer(t *testing.T, nodes ...*node) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{url: "http://" + ln.Addr().String(), used: map[string]int{}}
	for _, n := range nodes {
		b.nodes = append(b.nodes, n.addr)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go b.serve(conn)
		}
	}()
	return b
}

func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	server := b.dial()
	if server == nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(client, server)
		client.Close()
	}()
	io.Copy(server, client)
}

// dial connects to the next node that is ready, if there is one.
func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	b.next++
	turn := slices.Concat(b.nodes[b.next%len(b.nodes):], b.nodes[:b.next%len(b.nodes)])
	b.mu.Unlock()
	for _, addr := range turn {
		if resp, err := quick.Get("http://" + addr + "/readyz"); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
			continue
		}
		if conn, err := net.Dial("tcp", addr); err == nil {
			b.mu.Lock()
			b.used[addr]++
			b.mu.Unlock()
			return conn
		}
	}
	return nil
}

// nodesUsed returns how many nodes got connections.
func (b *balancer) nodesUsed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.used)
}

// A load are tasks that are submitted all the time, through whatever happens.
type load struct {
	s      *scene
	client *orbit.Client
	make   func(i int) order
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	ids     []string
	repeats int // submits that had to be said again
}

// startLoad submits the tasks that make returns, one after the other by each of a few
// submitters, with a pause after each.
func (s *scene) startLoad(url string, submitters int, pause time.Duration, make func(i int) order) *load {
	s.Helper()
	client, err := orbit.NewClient(url, s.creds.Token, orbit.ClientConfig{AllowInsecure: true})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{s: s, client: client, make: make, stop: cancel}
	for i := range submitters {
		l.wg.Go(func() {
			for n := i; ctx.Err() == nil; n += submitters {
				l.submit(make(n))
				time.Sleep(pause)
			}
		})
	}
	s.Cleanup(func() {
		cancel()
		l.wg.Wait()
		client.CloseIdleConnections()
	})
	return l
}

// submit says the same until it is answered: then it was accepted once.
func (l *load) submit(o order) {
	key, r := sqldb.NewID().String(), l.s.request(o)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		accepted, err := l.client.SubmitTask(ctx, key, r)
		cancel()
		if err == nil {
			l.s.expect(accepted.Task.ID, orbit.StateSucceeded)
			l.mu.Lock()
			l.ids = append(l.ids, accepted.Task.ID)
			l.mu.Unlock()
			return
		}
		l.mu.Lock()
		l.repeats++
		l.mu.Unlock()
		if time.Now().After(end) {
			l.s.Errorf("a submit is not accepted: %v", err)
			return
		}
	}
}

// end ends the submits and returns the tasks that were accepted.
func (l *load) end() []string {
	l.stop()
	l.wg.Wait()
	return l.ids
}

func (l *load) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids)
}

// awaitMore waits until so many tasks more are accepted: the load goes on.
func (l *load) awaitMore(n int) {
	l.s.Helper()
	want := l.accepted() + n
	poll(l.s.T, fmt.Sprintf("%d more tasks to be accepted", n), func() bool { return l.accepted() >= want })
}

// drained waits until every task has ended.
func (s *scene) drained() {
	s.Helper()
	poll(s.T, "every task to end", func() bool { return s.count("SELECT COUNT(*) FROM task WHERE state < 4") == 0 })
}

// runsOnce holds tasks to one run each, in all of these workers together, and to one start.
func (s *scene) runsOnce(ids []string, books ...*book) {
	s.Helper()
	runs := map[string]int{}
	for _, b := range books {
		for _, e := range b.all(of(evStart, "")) {
			runs[e.Task]++
		}
	}
	for _, id := range ids {
		if runs[id] != 1 {
			s.Errorf("the handler of task %s ran %d times, want once", id, runs[id])
		}
	}
	if n := s.count("SELECT COUNT(*) FROM task WHERE started_count <> 1"); n != 0 {
		s.Errorf("%d tasks were not started exactly once", n)
	}
}

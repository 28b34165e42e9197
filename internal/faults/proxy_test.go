//go:build linux

package faults

import (
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/wire"
)

// A proxy stands between workers and a node. It can lose what one side says from a certain
// message on, fall silent, and cut connections; it never says a word of its own.
type proxy struct {
	addr, url string

	mu       sync.Mutex
	target   string // "": nobody is there
	links    map[*relayed]bool
	holdUp   string // from a message of this type on, nothing of the worker arrives
	loseDown string // after a message of this type has arrived, nothing of the node comes back
	silent   bool   // nothing passes, nothing ends
	lost     []message
	dropped  int // connections that the node ended while nobody could tell the worker
	hellos   int // registrations that were confirmed to workers
}

// A relayed connection is one through a proxy.
type relayed struct {
	of               *proxy
	client, server   net.Conn
	upGone, downGone bool // nothing passes any more; guarded by of.mu
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String(), url: "http://" + ln.Addr().String(), target: target, links: map[*relayed]bool{}}
	t.Cleanup(func() { ln.Close(); p.point("") })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

// serve relays one connection to its end.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if target == "" {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	r := &relayed{of: p, client: client, server: server}
	p.mu.Lock()
	p.links[r] = true
	p.mu.Unlock()
	defer func() { p.mu.Lock(); delete(p.links, r); p.mu.Unlock() }()
	var down sync.WaitGroup
	down.Go(func() {
		r.pump(client, server, r.passDown)
		r.ended(client)
	})
	r.pump(server, client, r.passUp)
	r.ended(server)
	down.Wait()
}

// ended closes the other side of a connection when one has ended, unless a silent proxy
// keeps that for itself until it is healed.
func (r *relayed) ended(other net.Conn) {
	p := r.of
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		if other == r.client {
			p.dropped++
		}
		return
	}
	other.Close()
}

// pump copies what pass lets through, frame by frame.
func (r *relayed) pump(to, from net.Conn, pass func(text []byte) bool) {
	s := scanner{skipHead: true}
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		s.rest = append(s.rest, buffer[:n]...)
		for {
			raw, text := s.next()
			if raw == 0 {
				break
			}
			if pass(text) {
				if _, err := to.Write(s.rest[:raw]); err != nil {
					return
				}
			}
			s.rest = slices.Clone(s.rest[raw:])
		}
		if err != nil {
			return
		}
	}
}

// passUp decides on something of the worker; text is nil for what is no message.
func (r *relayed) passUp(text []byte) bool {
	p, m := r.of, parseMessage(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Type != "" && m.Type == p.holdUp {
		r.upGone = true
	}
	if m.Type != "" && m.Type == p.loseDown {
		r.downGone = true // before the node can answer
	}
	return r.pass(r.upGone, m)
}

// passDown decides on something of the node.
func (r *relayed) passDown(text []byte) bool {
	m := parseMessage(text)
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	passes := r.pass(r.downGone, m)
	if passes && m.Type == wire.TypeHelloOK {
		r.of.hellos++
	}
	return passes
}

func (r *relayed) pass(gone bool, m message) bool {
	if !gone && !r.of.silent {
		return true
	}
	if m.Type != "" {
		r.of.lost = append(r.of.lost, m)
	}
	return false
}

// holdBack loses what workers say from a message of the type on.
func (p *proxy) holdBack(kind string) { p.set(func() { p.holdUp = kind }) }

// loseAnswersTo loses what the node says after a message of the type has come through.
func (p *proxy) loseAnswersTo(kind string) { p.set(func() { p.loseDown = kind }) }

// silence loses everything in both directions; connections stay open.
func (p *proxy) silence() { p.set(func() { p.silent = true }) }

// heal loses nothing on new connections, and ends those that have lost something.
func (p *proxy) heal() {
	p.set(func() { p.silent, p.holdUp, p.loseDown = false, "", "" })
	p.cut()
}

func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// cut resets every connection at both ends, as a router that has forgotten them does.
func (p *proxy) cut() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.links {
		reset(r.client)
		reset(r.server)
		n++
	}
	return n
}

func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// point drops what is connected and leads to another node from now on.
func (p *proxy) point(target string) {
	p.set(func() { p.target = target })
	p.cut()
}

// registered returns how often a worker was told that it is registered.
func (p *proxy) registered() (n int) {
	p.set(func() { n = p.hellos })
	return n
}

// hasLost reports whether a message of the type about the attempt was lost on the way.
func (p *proxy) hasLost(kind, attempt string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.lost, func(m message) bool { return m.Type == kind && m.Data.AttemptID == attempt })
}

//go:build linux

package faults

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A line carries TCP connections to some address, and can be cut and led elsewhere.
type line struct {
	addr string

	mu     sync.Mutex
	target string // "": nobody is there
	ends   map[net.Conn]bool
}

func startLine(t *testing.T, target string) *line {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{addr: ln.Addr().String(), target: target, ends: map[net.Conn]bool{}}
	t.Cleanup(func() { ln.Close(); l.point("") })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go l.carry(conn)
		}
	}()
	return l
}

func (l *line) carry(near net.Conn) {
	defer near.Close()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	if target == "" {
		return
	}
	far, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer far.Close()
	l.mu.Lock()
	l.ends[near], l.ends[far] = true, true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.ends, near)
		delete(l.ends, far)
	}()
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(near, far)
		near.Close()
	})
	io.Copy(far, near)
	far.Close()
	back.Wait()
}

// cut resets every connection at both ends, and returns how many there were.
func (l *line) cut() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end := range l.ends {
		reset(end)
		n++
	}
	return n / 2
}

// point cuts what is connected and leads to another address from now on; to nobody with "".
func (l *line) point(target string) {
	l.mu.Lock()
	l.target = target
	l.mu.Unlock()
	l.cut()
}

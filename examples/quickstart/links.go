package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// A heldLink stands between the relay and the task server. It lets some submits pass,
// then forwards one, waits for the server's answer, and keeps that answer to itself.
// That is the moment in which a relay may die: the server has accepted, and the relay
// does not know.
type heldLink struct {
	address string
	server  *http.Server
	proxy   *httputil.ReverseProxy

	mu      sync.Mutex
	pass    int           // answers to let through before one is kept; negative: keep none
	held    chan struct{} // closed when an answer is being kept
	release chan struct{} // closed to let go of it
}

func startHeldLink(target string, pass int) (*heldLink, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &heldLink{address: "http://" + ln.Addr().String(), pass: pass, held: make(chan struct{}), release: make(chan struct{})}
	l.proxy = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: l.keepBack,
	}
	l.server = &http.Server{Handler: l.proxy}
	go l.server.Serve(ln)
	return l, nil
}

func (l *heldLink) keepBack(answer *http.Response) error {
	if answer.Request.Method != http.MethodPost || answer.StatusCode >= 300 {
		return nil
	}
	l.mu.Lock()
	hold := l.pass == 0
	l.pass--
	l.mu.Unlock()
	if hold {
		close(l.held)
		<-l.release
	}
	return nil
}

func (l *heldLink) close() {
	close(l.release)
	l.server.Close()
}

// A cutLink stands between a worker and the task server and can be cut, so that the
// worker loses its lease while its code is still running.
type cutLink struct {
	address string
	target  string
	ln      net.Listener

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]struct{}
}

func startCutLink(target string) (*cutLink, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &cutLink{address: "http://" + ln.Addr().String(), target: to.Host, ln: ln, conns: make(map[net.Conn]struct{})}
	go l.accept()
	return l, nil
}

// cut drops every connection and refuses new ones until mend.
func (l *cutLink) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for c := range l.conns {
		c.Close()
	}
}

func (l *cutLink) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}

func (l *cutLink) close() {
	l.ln.Close()
	l.cut()
}

func (l *cutLink) accept() {
	for {
		conn, err := l.ln.Accept()
		if err != nil {
			return
		}
		go l.forward(conn)
	}
}

func (l *cutLink) forward(worker net.Conn) {
	defer worker.Close()
	if !l.track(worker) {
		return
	}
	defer l.untrack(worker)
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(worker, server)
		worker.Close()
	}()
	io.Copy(server, worker)
}

func (l *cutLink) track(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *cutLink) untrack(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

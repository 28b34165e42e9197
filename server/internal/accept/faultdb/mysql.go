package faultdb

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
)

func (f *Faults) openMySQL(t testing.TB, db *dbtest.DB) {
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(db.Address, "mysql:"))
	if err != nil {
		t.Fatal("malformed address of the test database")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{f: f, target: cfg.Addr, open: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(listener) })
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		serving.Wait()
	})
	cfg.Addr = listener.Addr().String()
	if f.DB, err = drivers.Open(t.Context(), "mysql:"+cfg.FormatDSN()); err != nil {
		t.Fatalf("open test database through a proxy: %v", err)
	}
}

// A proxy forwards connections and knows a COMMIT when it sees one.
type proxy struct {
	f      *Faults
	target string

	mu      sync.Mutex
	open    map[net.Conn]bool
	running sync.WaitGroup
}

func (p *proxy) serve(listener net.Listener) {
	defer p.running.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if p.f.Broken() {
			client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.add(client, server)
		l := &link{p: p, client: client, server: server}
		p.running.Go(l.requests)
		p.running.Go(l.answers)
	}
}

func (p *proxy) add(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
}

func (p *proxy) close(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.open, c)
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
	clear(p.open)
}

// A link is one connection through the proxy.
type link struct {
	p              *proxy
	client, server net.Conn
	losing         atomic.Bool // the next answer is to be lost
}

// commit is the packet that the driver sends: COM_QUERY and the statement.
const commit = "\x03COMMIT"

// requests forwards the packets of the client one by one.
func (l *link) requests() {
	defer l.p.close(l.client, l.server)
	var header [4]byte
	for {
		if _, err := io.ReadFull(l.client, header[:]); err != nil {
			return
		}
		size := binary.LittleEndian.Uint32([]byte{header[0], header[1], header[2], 0})
		packet := make([]byte, 4+size)
		copy(packet, header[:])
		if _, err := io.ReadFull(l.client, packet[4:]); err != nil {
			return
		}
		if l.p.f.Broken() {
			return
		}
		if string(packet[4:]) == commit {
			switch l.p.f.commit() {
			case CutBefore:
				return
			case LoseAnswer:
				l.losing.Store(true)
			}
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

// answers forwards what the server says, unless it is to be lost: then it has been said,
// so the COMMIT is in force.
func (l *link) answers() {
	defer l.p.close(l.client, l.server)
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if err != nil || l.losing.Load() {
			return
		}
		if _, err := l.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

package callfault

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

func (c *Calls) openMySQL(t testing.TB, db *dbtest.DB) {
	t.Helper()
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(db.Address, "mysql:"))
	if err != nil {
		t.Fatal("malformed address of the test database")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{calls: c, target: cfg.Addr}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(listener) })
	t.Cleanup(func() { // after the pools are closed, which ends the connections
		listener.Close()
		serving.Wait()
	})
	cfg.Addr = listener.Addr().String()
	if c.DB, err = drivers.Open(t.Context(), "mysql:"+cfg.FormatDSN()); err != nil {
		t.Fatalf("open test database through a proxy: %v", err)
	}
}

// A proxy forwards connections and breaks one at a call.
type proxy struct {
	calls  *Calls
	target string
	links  sync.WaitGroup
}

func (p *proxy) serve(listener net.Listener) {
	defer p.links.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{calls: p.calls, client: client, server: server}
		p.links.Go(l.requests)
		p.links.Go(l.answers)
	}
}

// A link is one connection through the proxy.
type link struct {
	calls          *Calls
	client, server net.Conn
	losing         atomic.Bool // the next answer is lost
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// comQuery is the command of a packet that holds a statement.
const comQuery = 3

// requests forwards what the client says, packet by packet.
func (l *link) requests() {
	defer l.close()
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
		if header[3] == 0 && size > 0 && packet[4] == comQuery { // the first packet of a command
			if fail, when := l.calls.call(); fail && when == Before {
				return
			} else if fail {
				l.losing.Store(true)
			}
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

// answers forwards what the server says, unless it is to be lost: by then it is said, so
// the call had its effect.
func (l *link) answers() {
	defer l.close()
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

package dbfault

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
	t.Helper()
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(db.Address, "mysql:"))
	if err != nil {
		t.Fatal("malformed address of the test database")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{f: f, network: cfg.Net, target: cfg.Addr, open: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(listener) })
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		serving.Wait()
	})
	cfg.Net, cfg.Addr = "tcp", listener.Addr().String()
	f.Address = "mysql:" + cfg.FormatDSN()
	if f.DB, err = drivers.Open(t.Context(), f.Address); err != nil {
		t.Fatalf("open test database through a proxy: %v", err)
	}
}

// A proxy forwards connections and understands just enough of what they say.
type proxy struct {
	f               *Faults
	network, target string

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
		server, err := net.Dial(p.network, p.target)
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

// A link is one connection through the proxy. A client says nothing before it has the
// answer to what it said last.
type link struct {
	p              *proxy
	client, server net.Conn
	manual         bool                   // a statement outside of a transaction begins one
	inside         bool                   // a transaction is open
	trapped        bool                   // it has the statement of a trap
	sprung         atomic.Pointer[Trap]   // goes off with the next answer
	losing         atomic.Bool            // the next answer is to be lost
	instead        atomic.Pointer[[]byte] // what is said instead of the next answer
}

// comQuery is the command of a packet that holds a statement.
const comQuery = "\x03"

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
		if statement, is := strings.CutPrefix(string(packet[4:]), comQuery); is && header[3] == 0 {
			if packet = l.judge(packet, statement); packet == nil {
				return
			}
		}
		if _, err := l.server.Write(packet); err != nil {
			return
		}
	}
}

// judge returns what is sent to the server in place of a statement's packet: nil for a
// connection that breaks.
func (l *link) judge(packet []byte, statement string) []byte {
	call := l.place(statement)
	if l.trap(call, statement) {
		return nil
	}
	verdict := l.p.f.call(call)
	switch verdict {
	case CutBefore:
		return nil
	case LoseAnswer:
		l.losing.Store(true)
	case Deadlock, LockWait:
		answer := refusal(verdict)
		l.instead.Store(&answer)
		// A deadlock rolls back, and so does a COMMIT that waits too long.
		if verdict == Deadlock || call == Commit || call == Rollback {
			l.inside = false
			return query("ROLLBACK")
		}
		return query("DO 0")
	}
	return packet
}

// trap springs the trap of a transaction at its COMMIT, and reports whether the connection
// breaks before that.
func (l *link) trap(call Call, statement string) (cut bool) {
	if call == Inside && l.p.f.tread(statement) {
		l.trapped = true
	}
	if call == Inside || !l.trapped {
		return false
	}
	l.trapped = false
	if call != Commit {
		return false
	}
	switch trap := l.p.f.spring(); {
	case trap == nil: // another connection was faster
	case trap.Before:
		trap.Do()
		return true
	default:
		l.sprung.Store(trap)
	}
	return false
}

// place tells where a statement stands.
func (l *link) place(statement string) Call {
	switch statement {
	case "START TRANSACTION":
		l.inside = true
	case "COMMIT":
		l.inside = false
		return Commit
	case "ROLLBACK":
		l.inside = false
		return Rollback
	}
	switch {
	case strings.HasPrefix(statement, "SET SESSION "):
		l.manual = l.manual || strings.Contains(statement, "SESSION autocommit = 0")
	case l.manual:
		l.inside = true
	}
	if l.inside {
		return Inside
	}
	return Outside
}

// answers forwards what the server says, unless it is to be lost or to be another: by then
// it is said, so the call has had its effect.
func (l *link) answers() {
	defer l.p.close(l.client, l.server)
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if trap := l.sprung.Load(); trap != nil && err == nil {
			trap.Do()
			return
		}
		if err != nil || l.losing.Load() {
			return
		}
		said := buffer[:n]
		if other := l.instead.Swap(nil); other != nil { // n is a whole OK: some ten bytes
			said = *other
		}
		if _, err := l.client.Write(said); err != nil {
			return
		}
	}
}

func packet(sequence byte, body string) []byte {
	n := len(body)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), sequence}, body...)
}

func query(statement string) []byte { return packet(0, comQuery+statement) }

// refusal is the engine's error packet.
func refusal(v Verdict) []byte {
	code, text := 1213, "#40001Deadlock found by the test"
	if v == LockWait {
		code, text = 1205, "#HY000Lock wait timeout by the test"
	}
	return packet(1, "\xff"+string([]byte{byte(code), byte(code >> 8)})+text)
}

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/freeport"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/server"
)

// A strait is the way to a MySQL server. While it is shut, connections are taken and what
// is said on them is neither forwarded nor answered, as by a server that hangs.
type strait struct {
	listener net.Listener
	server   string
	shut     atomic.Bool
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

func newStrait(t *testing.T, server string) *strait {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newStraitOn(t, listener, server)
}

func newStraitOn(t *testing.T, listener net.Listener, server string) *strait {
	s := &strait{listener: listener, server: server}
	s.running.Go(s.accept)
	t.Cleanup(func() {
		listener.Close()
		s.cut()
		s.running.Wait()
	})
	return s
}

func (s *strait) keep(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, conns...)
}

// cut breaks all connections.
func (s *strait) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *strait) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.keep(client)
		if s.shut.Load() {
			continue
		}
		server, err := net.Dial("tcp", s.server)
		if err != nil {
			client.Close()
			continue
		}
		s.keep(server)
		s.running.Go(func() { s.forward(server, client) })
		s.running.Go(func() { s.forward(client, server) })
	}
}

func (s *strait) forward(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			to.Close()
			return
		}
		if s.shut.Load() {
			continue // swallowed: what is on its way is lost
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			from.Close()
			return
		}
	}
}

// A plan is a configuration file.
type plan struct {
	t       *testing.T
	path    string
	targets strings.Builder
	sources strings.Builder
	listen  string
}

func newPlan(t *testing.T) *plan {
	return &plan{t: t, path: filepath.Join(t.TempDir(), "relay.yaml")}
}

// add adds a source with the target of its own server. Address is where the relay finds the
// database.
func (p *plan) add(name string, s *site, address, more string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "database")
	if err := os.WriteFile(file, []byte(address), 0o600); err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(&p.targets, "  shop-%s: {url: %q, credentials_file: %q}\n", name, s.url, s.file)
	fmt.Fprintf(&p.sources, "  %s: {database_file: %q, targets: [shop-%s]%s}\n", name, file, name, more)
}

func (p *plan) write() {
	p.t.Helper()
	text := "relay: {lease: 2s, send_timeout: 1s, poll: 100ms}\n" + p.listen + "targets:\n" + p.targets.String() + "sources:\n" + p.sources.String()
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// enqueueTo enqueues rows for a target, each in a transaction of its own.
func (s *site) enqueueTo(target string, keys ...string) (seqs []int64) {
	s.t.Helper()
	s.target = target
	return s.enqueue(keys...)
}

func (s *site) delivered(seqs []int64) bool {
	s.t.Helper()
	for _, seq := range seqs {
		if s.row(seq).State != outbox.Delivered {
			return false
		}
	}
	return true
}

func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s-%d", prefix, i))
	}
	return keys
}

// serverOf returns host and port of a database server.
func serverOf(address string) string {
	_, rest, _ := strings.Cut(address, "(")
	at, _, _ := strings.Cut(rest, ")")
	return at
}

// One relay serves a database of each engine, one that hangs from the beginning and one that
// refuses. A server's database begins to hang while rows are under way: the rows of the
// others are delivered all the same, and its own once it answers again (REL-015, REL-019).
func TestADatabaseThatHangsHoldsUpNoOther(t *testing.T) {
	p := newPlan(t)
	sites := map[string]*site{}
	ways := map[string]*strait{}
	for _, engine := range available() {
		s := newSite(t, engine)
		sites[engine] = s
		address := s.db.Address
		if engine != dbtest.SQLite {
			ways[engine] = newStrait(t, serverOf(address))
			address = strings.Replace(address, serverOf(address), ways[engine].listener.Addr().String(), 1)
		}
		p.add(engine, s, address, ", connections: 6")
	}
	hole := newStrait(t, "127.0.0.1:1")
	hole.shut.Store(true)
	lost := newSite(t, dbtest.SQLite)
	p.add("hangs", lost, "mysql:relay:sesame@tcp("+hole.listener.Addr().String()+")/shop", "")
	p.add("refuses", lost, "mysql:relay:sesame@tcp(127.0.0.1:1)/shop", "")
	address := freeport.Address(t)
	p.listen = "listen: {address: " + address + "}\n"
	p.write()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log output
	ended := make(chan int, 1)
	go func() { ended <- callTo(ctx, &log, "run", "--config", p.path) }()
	for engine, s := range sites {
		seqs := s.enqueueTo("shop-"+engine, names("first", 5)...)
		eventually(t, engine+" delivers", func() bool { return s.delivered(seqs) })
	}
	for engine, way := range ways { // one after the other hangs
		way.shut.Store(true)
		held := sites[engine].enqueueTo("shop-"+engine, names("held", 5)...)
		for other, s := range sites {
			if other == engine {
				continue
			}
			for round := range 5 {
				seqs := s.enqueueTo("shop-"+other, names(fmt.Sprintf("while-%s-%d", engine, round), 20)...)
				eventually(t, other+" delivers while "+engine+" hangs", func() bool { return s.delivered(seqs) })
			}
		}
		if sites[engine].delivered(held[:1]) {
			t.Errorf("%s did not hang", engine)
		}
		way.shut.Store(false)
		way.cut()
		eventually(t, engine+" goes on", func() bool { return sites[engine].delivered(held) })
	}
	resp, err := http.Get("http://" + address + "/status")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if n := strings.Count(string(text), `"opening"`); n != 2 {
		t.Errorf("status tells of %d sources that are not open, want 2: %s", n, text)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, want 0: %s", code, &log)
	}
	if strings.Contains(log.String(), "sesame") || !strings.Contains(log.String(), "source=refuses") {
		t.Errorf("the log shows a secret, or not the source that cannot be opened: %s", &log)
	}
	for engine, s := range sites {
		st, err := s.store.Status(t.Context())
		if err != nil || int64(s.tasks()) != st.Count[outbox.Delivered] || st.Count[outbox.Pending] != 0 {
			t.Errorf("%s: %d tasks, %v, %v", engine, s.tasks(), st.Count, err)
		}
	}
}

// available are the engines that this run has a server for.
func available() []string {
	all := []string{dbtest.SQLite}
	for engine, variable := range map[string]string{dbtest.MySQL: "ORBIT_TEST_MYSQL_DSN", dbtest.MariaDB: "ORBIT_TEST_MARIADB_DSN"} {
		if os.Getenv(variable) != "" {
			all = append(all, engine)
		}
	}
	return all
}

// rotate replaces the credential in the file. What it returns revokes the one before.
func (s *site) rotate() (revoke func()) {
	s.t.Helper()
	old, err := orbit.LoadCredentials(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	id, err := server.CredentialID(old.Token)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := server.CreateCredential(s.t.Context(), s.serverDB.DB, server.CredentialRequest{
		Application: "shop", Namespace: "default", Name: "next", Permissions: []string{"tasks:submit"}, Queues: []string{"orders"}, Actor: "test",
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.Remove(s.file); err != nil {
		s.t.Fatal(err)
	}
	if err := orbit.SaveCredentials(s.file, c); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := server.NewOperator(s.serverDB.DB, "test").Revoke(s.t.Context(), id, "rotated"); err != nil {
			s.t.Error(err)
		}
	}
}

// A real process is told to read its configuration again while rows come in all the time: a
// file with mistakes changes nothing, sources come, change and go, a credential is replaced,
// and no row is lost or doubled. A source that does not change keeps its lease.
func TestAReloadUnderLoadLosesNothing(t *testing.T) {
	engines := available()
	kept, other := newSite(t, engines[0]), newSite(t, engines[len(engines)-1])
	one, both, changed := newPlan(t), newPlan(t), newPlan(t)
	both.path, changed.path = one.path, one.path
	one.add("kept", kept, kept.db.Address, "")
	both.add("kept", kept, kept.db.Address, "")
	both.add("other", other, other.db.Address, "")
	changed.add("kept", kept, kept.db.Address, "")
	changed.add("other", other, other.db.Address, ", connections: 8, relay: {senders: 2}")
	both.write()
	relay := kept.spawn("relay", nil, "run", "--config", one.path)
	reload := func(want string) {
		t.Helper()
		relay.signal(syscall.SIGHUP)
		eventually(t, "the reload is told", func() bool { return strings.Count(relay.log.String(), want) >= 1 })
	}
	ctx, cancel := context.WithCancel(t.Context())
	var loads sync.WaitGroup
	var sent [2]int
	for i, s := range []*site{kept, other} {
		target := []string{"shop-kept", "shop-other"}[i]
		loads.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				sent[i] += len(s.enqueueTo(target, names(fmt.Sprintf("load-%d", n), 3)...))
				time.Sleep(10 * time.Millisecond) // the pace of the load
			}
		})
	}
	running := func(s *site, atLeast int) {
		t.Helper()
		eventually(t, "rows go on", func() bool { return s.tasks() >= atLeast })
	}
	running(kept, 10)
	running(other, 10)
	epoch := kept.leader().Epoch

	if err := os.WriteFile(one.path, []byte("sources: {kept: {database: 7}}\nspeed: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reload("configuration refused, the old one goes on\" err=\"" + one.path + ":2: speed: is unknown")
	running(other, other.tasks()+10)
	changed.write()
	reload(`changed=other removed="" kept=kept`)
	running(other, other.tasks()+10)
	revoke := other.rotate()
	relay.signal(syscall.SIGHUP)
	eventually(t, "the new credential is taken", func() bool { return strings.Count(relay.log.String(), `changed=other removed="" kept=kept`) >= 2 })
	revoke()
	running(other, other.tasks()+10)
	one.write()
	reload(`removed=other kept=kept`)
	eventually(t, "the source that has gone gives its shard back", func() bool { return other.leader().Left <= 0 })
	changed.write()
	reload(`added=other changed="" removed="" kept=kept`)
	running(other, other.tasks()+10)
	running(kept, kept.tasks()+10)
	if now := kept.leader(); now.Epoch != epoch || now.Left <= 0 {
		t.Errorf("the source that did not change was led in epoch %d and is now in %+v", epoch, now)
	}
	cancel()
	loads.Wait()
	for i, s := range []*site{kept, other} {
		eventually(t, "every row is delivered", func() bool {
			st, err := s.store.Status(t.Context())
			return err == nil && st.Count[outbox.Pending] == 0 && st.Count[outbox.Delivered] == int64(sent[i])
		})
		if n := s.tasks(); n != sent[i] {
			t.Errorf("%d rows became %d tasks", sent[i], n)
		}
	}
	relay.stop()
}

// callTo runs the program inside the test and writes its log to log.
func callTo(ctx context.Context, log *output, args ...string) int {
	return program.Run(ctx, args, cliEnvironment(map[string]string{}, log, log))
}

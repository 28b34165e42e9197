//go:build linux

package faults

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// What a storm does.
const (
	relayKilled  = "relay killed"
	relayPaused  = "relay paused"
	relayStopped = "relay stopped"
	serverCut    = "way to the server cut"
	businessCut  = "way to the business database cut"
)

// stormLease is that of the relays of a storm.
const stormLease = time.Second

// The issue, "done when": relays, server nodes and their database are killed, stopped and
// cut off for a minute while business transactions commit and roll back. At the end the command
// orbit-relay verify is clean, and each committed row is exactly one task, accepted as it was frozen.
//
// A minute on MySQL, less on the others. On the servers of its own the database is killed
// too. ORBIT_FAULT_SECONDS makes it longer; with ORBIT_SOAK_DONE_ROWS the storm goes on in a
// table with so many rows that were delivered long ago.
func TestRelayStorm(t *testing.T) { // REL-001, REL-015, REL-016, REL-017, REL-018, OUT-003, OUT-005, OUT-007, OUT-008, TEST-053, REF-OUTBOX-001
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			usual := 20 * time.Second
			if engine == dbtest.MySQL {
				usual = 60 * time.Second
			}
			if engine == dbtest.SQLite {
				sc := newScene(t, dbtest.Open(t, engine, migrations.Server))
				storm(newShop(sc, dbtest.Open(t, engine, migrations.Outbox), 1), nil, usual)
				return
			}
			d := startDatabase(t, engine, false)
			storm(newShop(newScene(t, d.open()), d.openAs("shop", migrations.Outbox), 4), d, usual)
		})
	}
}

func storm(s *shop, d *database, usual time.Duration) {
	s.relayLease, s.lease = stormLease, stormLease // pauses are measured by it
	s.addDoneRows()
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	w := newWeather(s, d, rand.New(rand.NewPCG(seed, 0)))
	stop := s.startBusiness(seed)
	begin := time.Now()
	end, told := begin.Add(seconds(s.T, usual)), begin
	for time.Now().Before(end) && !s.Failed() || !w.complete() || !s.Failed() && s.acceptedBefore() == 0 {
		w.next()
		if time.Since(told) >= progressEvery {
			told = time.Now()
			s.Logf("%v: %d rows; %v", time.Since(begin).Round(time.Second), s.committed(), w)
		}
	}
	w.calm()
	stop()
	s.settled()
	for _, r := range w.relays {
		r.stop(s)
	}
	epochs := s.businessCount("SELECT SUM(epoch) FROM orbit_outbox_lease")
	if epochs < 5 {
		s.Errorf("%d epochs: the storm has not met the relays", epochs)
	}
	s.check()
	s.verified()
	s.Logf("%v: %d rows, %d of them accepted by an earlier send, %d epochs; %v", time.Since(begin).Round(time.Second), s.committed(), s.acceptedBefore(), epochs, w)
}

// committed returns how many rows were committed.
func (s *shop) committed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frozen)
}

// acceptedBefore returns how many rows the server knew already when their answer was read.
func (s *shop) acceptedBefore() int64 {
	s.Helper()
	return s.businessCount("SELECT COUNT(*) FROM orbit_outbox WHERE deduplicated = 1")
}

// startBusiness enqueues all the time: small requests, large ones, strays, and some that are
// rolled back.
func (s *shop) startBusiness(seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var tellers sync.WaitGroup
	for i := range 2 {
		tellers.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(i+1))); ctx.Err() == nil; time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond) {
				s.doBusiness(r)
			}
		})
	}
	stop = func() { cancel(); tellers.Wait() }
	s.Cleanup(stop)
	return stop
}

func (s *shop) doBusiness(r *rand.Rand) {
	switch n := r.IntN(40); {
	case n == 0:
		s.enqueue(s.message(s.creds.QueueID, 256<<10-100))
	case n == 1:
		s.enqueue(s.stray(), s.good())
	case n < 6:
		s.rollBack(s.good())
	default:
		messages := make([]outbox.Message, 1+r.IntN(5))
		for i := range messages {
			messages[i] = s.good()
		}
		s.enqueue(messages...)
	}
}

// A weather is relays and nodes to which something happens all the time. Its methods belong
// to the goroutine of the test.
type weather struct {
	*mischief
	s        *shop
	server   *line // between relays and nodes
	business *line // between relays and the business database; nil on SQLite
	relays   []*relayProcess
	address  string // of the business database, for relays
}

func newWeather(s *shop, d *database, r *rand.Rand) *weather {
	s.Helper()
	m := &mischief{s: s.scene, database: d, rand: r, wake: map[*process]time.Time{}, done: tally{}}
	for i := range 2 {
		m.nodes = append(m.nodes, s.startNode(fmt.Sprintf("node-%c", 'a'+i), patiently))
	}
	m.balancer = startBalancer(s.T, m.nodes...)
	w := &weather{mischief: m, s: s, address: s.business.Address}
	w.server = startLine(s.T, strings.TrimPrefix(m.balancer.url, "http://"))
	if d != nil {
		w.business = startLine(s.T, net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port)))
		w.address = through(s.T, s.business.Address, w.business)
	}
	for i := range 4 {
		w.relays = append(w.relays, w.start(fmt.Sprintf("relay-%d", i)))
	}
	return w
}

// through returns the address of the same database behind a line.
func through(t *testing.T, address string, l *line) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(address, "mysql:"))
	if err != nil {
		t.Fatal("malformed address of the test database")
	}
	cfg.Addr = l.addr
	return "mysql:" + cfg.FormatDSN()
}

func (w *weather) start(name string) *relayProcess {
	w.s.Helper()
	return w.s.startRelay(name, "http://"+w.server.addr, func(c *relayConfig) { c.Database = w.address })
}

// next waits a moment and lets one thing happen. All of it happens in some order, then in
// another.
func (w *weather) next() {
	w.s.Helper()
	if len(w.left) == 0 {
		w.rounds++
		w.left = []string{relayKilled, relayKilled, relayPaused, relayPaused, relayStopped, serverCut, serverCut, nodeKilled, nodePaused}
		if w.database != nil {
			w.left = append(w.left, businessCut, businessCut, databaseRestarted)
		}
		w.rand.Shuffle(len(w.left), func(i, j int) { w.left[i], w.left[j] = w.left[j], w.left[i] })
	}
	for end := time.Now().Add(100*time.Millisecond + rand.N(600*time.Millisecond)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		w.wakeUp(time.Now())
	}
	what := w.left[0]
	w.left = w.left[1:]
	w.do(what)
	w.done[what]++
}

func (w *weather) do(what string) {
	w.s.Helper()
	i := w.leading()
	r := w.relays[i]
	switch what {
	case relayKilled:
		w.resume(r.process)
		r.kill(w.s.T)
		w.relays[i] = w.start(r.name)
	case relayPaused:
		w.pause(r.process)
	case relayStopped:
		w.calm() // so that nothing keeps it from an end in order
		r.stop(w.s)
		w.relays[i] = w.start(r.name)
	case serverCut:
		w.server.cut()
	case businessCut:
		w.business.cut()
	default:
		w.doToServers(what)
	}
}

// leading chooses a relay, mostly one that leads a shard.
func (w *weather) leading() int {
	i := w.rand.IntN(len(w.relays))
	if w.rand.IntN(4) == 0 {
		return i
	}
	st, err := w.s.store.Status(w.s.Context())
	if err != nil || len(st.Leaders) == 0 {
		return i
	}
	name := st.Leaders[w.rand.IntN(len(st.Leaders))].Leader
	return max(0, slices.IndexFunc(w.relays, func(r *relayProcess) bool { return r.name == name }))
}

// calm ends every pause.
func (w *weather) calm() { w.rest() }

func (w *weather) String() string {
	var all []string
	for what, n := range w.done {
		all = append(all, fmt.Sprintf("%d × %s", n, what))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// addDoneRows fills the outbox with rows that were delivered long ago, if it is asked to.
func (s *shop) addDoneRows() {
	s.Helper()
	text := os.Getenv("ORBIT_SOAK_DONE_ROWS")
	if text == "" {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		s.Fatalf("ORBIT_SOAK_DONE_ROWS=%q: must be a number of rows", text)
	}
	s.fillDone(n)
}

// fillDone copies one delivered row n times, each under a key and for a task of its own.
func (s *shop) fillDone(n int) {
	s.Helper()
	m := s.good()
	m.Key = "done"
	rows, err := s.tryEnqueue(s.Context(), []outbox.Message{m})
	if err != nil {
		s.Fatal(err)
	}
	seq := rows[m.Key].seq
	s.change(`UPDATE orbit_outbox SET state = 2, due_at = 0, attempts = 1, outcome = 1, answer_status = 201,
  task_id = x'00000000000000000000000000000001', accepted_at = created_at, settled_at = created_at`)
	const columns = `operation, operation_task_id, shard, lane, size, target, queue_id, handler, request, request_sha256,
  content_algorithm, content_digest, traceparent, created_at, state, due_at, window_from, attempts, outcome, answer_status,
  task_id, accepted_at, settled_at`
	const perStatement = 500
	insert := "INSERT INTO orbit_outbox (identity, idempotency_key, " + columns + ")\nSELECT k.i, k.k, " + columns +
		" FROM orbit_outbox, (SELECT ? AS i, ? AS k" + strings.Repeat(" UNION ALL SELECT ?, ?", perStatement-1) + ") AS k WHERE seq = ?"
	for done := 0; done < n; done += perStatement {
		args := make([]any, 0, 2*perStatement+1)
		for i := range perStatement {
			key := fmt.Sprintf("done-%d", done+i)
			args = append(args, doneIdentity(key), []byte(key))
		}
		s.change(insert, append(args, seq)...)
		if done%1_000_000 == 0 {
			s.Logf("%d rows done", done)
		}
	}
}

// doneIdentity is what the outbox makes of a submit for the target under a key.
func doneIdentity(key string) []byte {
	sum := sha256.Sum256(append([]byte{byte(len(targetName))}, targetName+"\x01\x00"+key...))
	return sum[:]
}

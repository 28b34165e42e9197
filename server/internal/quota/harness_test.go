package quota_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/recovery"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A scene is an application with two nodes. When the test ends, every invariant must hold,
// that of the counters among them (LIC-018).
type scene struct {
	*testing.T
	w     *dispatchtest.World
	db    *dbtest.DB
	nodes []*node
	watch watch
}

// A node is what one server does with tasks.
type node struct {
	*accept.Committer
	dispatcher *dispatch.Dispatcher
	recovery   *recovery.Recovery
}

func run(t *testing.T, f func(s *scene)) {
	t.Helper()
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) { f(newScene(t, db)) }, migrations.Server)
}

// runOnServers is for what SQLite, with its one writer, cannot show.
func runOnServers(t *testing.T, f func(s *scene)) {
	t.Helper()
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) { f(newScene(t, dbtest.Open(t, engine, migrations.Server))) })
	}
}

func newScene(t *testing.T, db *dbtest.DB) *scene {
	s := &scene{T: t, db: db, w: dispatchtest.New(t, db.DB)}
	s.startNodes(s.open)
	return s
}

// startNodes gives the scene two nodes on databases that open returns.
func (s *scene) startNodes(open func() *sqldb.DB) {
	s.nodes = nil
	for i := range 2 {
		own := open()
		n := &node{Committer: accept.New(own, accept.Config{}), recovery: recovery.New(own, recovery.Config{})}
		var err error
		if n.dispatcher, err = dispatch.New(own, fmt.Sprint("node-", i), dispatch.Config{}); err != nil {
			s.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { n.Run(ctx) })
		s.Cleanup(func() {
			cancel()
			running.Wait()
		})
		s.nodes = append(s.nodes, n)
	}
}

// open opens the database once more, watched where that is possible.
func (s *scene) open() *sqldb.DB {
	if s.db.Engine == dbtest.SQLite {
		return s.db.Reopen(s.T).DB
	}
	cfg, err := mysql.ParseDSN(strings.TrimPrefix(s.db.Address, "mysql:"))
	if err != nil {
		s.Fatal("malformed address of the test database")
	}
	isolation := map[string]string{dbtest.MySQL: "transaction_isolation", dbtest.MariaDB: "tx_isolation"}[s.db.Engine]
	cfg.InterpolateParams = true
	cfg.Params = map[string]string{isolation: "'READ-COMMITTED'", "time_zone": "'+00:00'"}
	cfg.DialFunc = s.watch.dial
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		s.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(20)
	pool.SetMaxIdleConns(20)
	s.Cleanup(func() { pool.Close() })
	return sqldb.New(sqldb.MySQL, pool, pool)
}

// A watch counts what goes over connections to a MySQL or MariaDB server.
type watch struct {
	statements atomic.Int64
	deadlocks  atomic.Int64
}

func (w *watch) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &watchedConn{conn, w}, err
}

type watchedConn struct {
	net.Conn
	watch *watch
}

// Write sees one command at a time; 3 is that of a statement.
func (c *watchedConn) Write(p []byte) (int, error) {
	if len(p) > 4 && p[3] == 0 && p[4] == 3 {
		c.watch.statements.Add(1)
	}
	return c.Conn.Write(p)
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.watch.deadlocks.Add(int64(bytes.Count(p[:n], []byte("#40001"))))
	return n, err
}

// item is a submit to queue, with a key of its own.
func (s *scene) item(queue sqldb.ID, change ...func(*orbit.SubmitTaskRequest)) accept.Item {
	r := orbit.SubmitTaskRequest{
		QueueID: queue.String(), Handler: "h", HandlerVersion: dispatchtest.Version, PayloadVersion: "p1", Payload: json.RawMessage(`{}`),
	}
	for _, f := range change {
		f(&r)
	}
	_, submission, err := r.Freeze()
	if err != nil {
		panic(err) // some tests make items on other goroutines
	}
	return accept.Item{
		Namespace: s.w.Namespace, Queue: queue, Credential: s.w.Credential, Request: sqldb.NewID(),
		Key: sqldb.NewID().String(), Submission: submission,
	}
}

func (s *scene) items(queue sqldb.ID, n int) []accept.Item {
	items := make([]accept.Item, n)
	for i := range items {
		items[i] = s.item(queue)
	}
	return items
}

// submit submits to the first node and returns the errors.
func (s *scene) submit(items ...accept.Item) []error {
	outcomes := s.nodes[0].Submit(s.Context(), items)
	errs := make([]error, len(outcomes))
	for i, o := range outcomes {
		errs[i] = o.Err
	}
	return errs
}

// accept submits what must be accepted.
func (s *scene) accept(items ...accept.Item) {
	s.Helper()
	for i, err := range s.submit(items...) {
		if err != nil {
			s.Fatalf("item %d: %v, want it accepted", i, err)
		}
	}
}

func (s *scene) limitQueue(queue sqldb.ID, most int64) {
	s.Helper()
	ctx := s.Context()
	if err := s.w.DB.Tx(ctx, func(tx *sqldb.Tx) error { return quota.LimitQueue(ctx, tx, queue, most) }); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) limitApplication(most int64) {
	s.Helper()
	ctx := s.Context()
	if err := s.w.DB.Tx(ctx, func(tx *sqldb.Tx) error { return quota.LimitApplication(ctx, tx, s.w.Application, most) }); err != nil {
		s.Fatal(err)
	}
}

// unfinished counts the rows themselves.
func (s *scene) unfinished(queue sqldb.ID) int64 {
	return s.w.Int("SELECT COUNT(*) FROM task WHERE queue_id = ? AND state IN (1, 2, 3, 4)", queue)
}

// lease claims one task of a queue and, if asked, starts it.
func (s *scene) lease(queue sqldb.ID, start bool) dispatch.Ref {
	s.Helper()
	lane := dispatchtest.Task{Queue: queue}.Lane()
	taker := s.w.Taker(1, lane)
	n := s.nodes[1].dispatcher
	c, err := n.Claim(s.Context(), []dispatch.Lane{lane}, []dispatch.Taker{taker})
	if err != nil || len(c.Grants) != 1 {
		s.Fatalf("Claim = %d grants, %v; want one", len(c.Grants), err)
	}
	g := c.Grants[0]
	ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: taker.Namespace}
	if start {
		if got, err := n.Start(s.Context(), []dispatch.Ref{ref}); err != nil || got[0].Refusal != nil {
			s.Fatalf("Start = %+v, %v", got, err)
		}
	}
	return ref
}

func (s *scene) finish(ref dispatch.Ref, outcome task.Outcome) {
	s.Helper()
	f := dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: outcome}
	for range 2 { // the repeat changes nothing
		if got, err := s.nodes[1].dispatcher.Finish(s.Context(), []dispatch.Finish{f}); err != nil || got[0].Status != "recorded" {
			s.Fatalf("Finish = %+v, %v", got, err)
		}
	}
}

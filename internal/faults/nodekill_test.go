//go:build linux

package faults

import (
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/worker"
)

// onServers runs f at the same time on each engine to which a node speaks over a network.
func onServers(t *testing.T, f func(s *scene)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f(newScene(t, dbtest.Open(t, engine, migrations.Server)))
		})
	}
}

// A doomed node is one that is killed at a certain COMMIT.
type doomed struct {
	*node
	died atomic.Bool
}

// startDoomed starts a node that dies at the COMMIT of the first transaction with a
// statement that writes this column of attempts: before it reaches the database, or when
// the database has answered, before the node hears of it.
func (s *scene) startDoomed(name, column string, before bool) *doomed {
	s.Helper()
	faults := dbfault.Open(s.T, s.db)
	d := &doomed{node: s.startNode(name, onDatabase(faults.Address))}
	faults.Set(dbfault.Trap{
		Before: before,
		Statement: func(text string) bool {
			return writesAttempts.MatchString(text) && strings.Contains(text, column)
		},
		Do: func() {
			d.Process.Kill()
			<-d.ended
			d.died.Store(true)
		},
	})
	return d
}

var writesAttempts = regexp.MustCompile(`(^|;)\s*(INSERT INTO|UPDATE) attempt\s`) // they travel with others

// Statements of the transactions, by a column that no transaction before them writes.
const (
	claimsIt   = "concurrency_token"
	startsIt   = "started_at"
	finishesIt = "finish_digest"
)

// Issue C, "server node killed between claim commit and assign": nobody was told of the
// attempt. It ends unstarted, and the task runs once, in another attempt under a greater
// token, by another node.
func TestNodeKilledBetweenClaimAndAssign(t *testing.T) { // TEST-021, LIC-019, TOK-011
	onServers(t, func(s *scene) {
		a, b := s.startDoomed("node-a", claimsIt, false), s.startNode("node-b")
		p := startProxy(s.T, a.addr)
		w := s.startWorker("worker", p.url)
		poll(s.T, "the worker to be registered", func() bool { return p.registered() == 1 })
		c := s.client(b)
		id := s.submit(c, order{key: "k", reconcil: true})
		poll(s.T, "node A to be killed", a.died.Load)
		first := s.attempts(c, id)
		if len(first) != 1 || first[0].State != orbit.AttemptLeased || w.count(evStart, id) != 0 {
			s.Fatalf("after the kill the attempts are %+v and the handler ran %d times, want one LEASED and 0", first, w.count(evStart, id))
		}
		p.point(b.addr)
		task := s.awaitState(c, id, orbit.StateSucceeded)
		all := s.attempts(c, id)
		if len(all) != 2 || all[0].StartedAt != nil || all[1].ConcurrencyToken <= all[0].ConcurrencyToken || w.count(evStart, id) != 1 || task.EffectUncertain {
			s.Errorf("the task took the attempts %+v and %d runs, uncertain %v; want the second under a greater token, 1 run, false", all, w.count(evStart, id), task.EffectUncertain)
		}
	})
}

// A node that is stopped inside a transaction, or whose machine is gone, keeps what it has
// locked for half a minute at most: then the database ends its transaction, and another node
// gives the task away, in its first attempt.
func TestNodeStoppedInsideATransactionHoldsNothingForLong(t *testing.T) { // LIC-019
	onServers(t, func(s *scene) {
		faults := dbfault.Open(s.T, s.db)
		a, b := s.startNode("node-a", onDatabase(faults.Address)), s.startNode("node-b")
		stopped, end := make(chan struct{}), make(chan struct{})
		s.Cleanup(func() { close(end) })
		faults.Set(dbfault.Trap{
			Before:    true,
			Statement: func(text string) bool { return writesAttempts.MatchString(text) && strings.Contains(text, claimsIt) },
			Do: func() {
				a.pause(s.T)
				close(stopped)
				<-end // the connection stays, and says nothing
			},
		})
		s.startWorker("deaf", a.url)
		c := s.client(b)
		id := s.submit(c, order{key: "k", reconcil: true})
		<-stopped
		w := s.startWorker("worker", b.url)
		s.ranOnce(c, w, id)
		if all := s.attempts(c, id); len(all) != 1 || all[0].Number != 1 {
			s.Errorf("the task took the attempts %+v, want one: nothing of node A was committed", all)
		}
	})
}

// Issue C, "server node killed between Start commit and ACK, and during Finish": the worker
// says it again to another node and gets the answer that is in force. The task must not run
// twice; it does not, and nobody has to review it.
func TestNodeKilledAtAStartOrAFinish(t *testing.T) { // TEST-021, WRK-012, WRK-013, WRK-015, TOK-010
	cases := map[string]struct {
		column string
		before bool
	}{
		"start committed":      {startsIt, false},
		"finish not committed": {finishesIt, true},
		"finish committed":     {finishesIt, false},
	}
	for name, at := range cases {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(s *scene) {
				a, b := s.startDoomed("node-a", at.column, at.before), s.startNode("node-b")
				p := startProxy(s.T, a.addr)
				w := s.startWorker("worker", p.url)
				c := s.client(b)
				id := s.submit(c, order{key: "k", reconcil: true})
				poll(s.T, "node A to be killed", a.died.Load)
				state := orbit.StateRunning
				if at.column == finishesIt && !at.before {
					state = orbit.StateSucceeded
				}
				if task, err := c.GetTask(s.Context(), id); err != nil || task.State != state {
					s.Fatalf("after the kill the task is %s (%v), want %s", task.State, err, state)
				}
				p.point(b.addr)
				s.ranOnce(c, w, id)
			})
		})
	}
}

// Issue C, "node A killed and B resumes": the handler goes on through it all, in the same
// attempt and under the same token.
func TestNodeKilledWhileAHandlerRunsAndAnotherResumes(t *testing.T) { // WRK-013, WRK-021, TOK-010, LIC-004
	onEngines(t, func(s *scene) {
		a, b := s.startNode("node-a"), s.startNode("node-b")
		p := startProxy(s.T, a.addr)
		w := s.startWorker("worker", p.url)
		c := s.client(b)
		id := s.submit(c, order{key: "k", reconcil: true, work: work{Hold: true}})
		began := w.awaitStart(s, id)
		before := s.attempts(c, id)[0]
		a.kill(s.T)
		p.point(b.addr)
		poll(s.T, "node B to renew the lease", func() bool {
			now := s.attempts(c, id)[0]
			return now.LeaseUntil == nil || now.LeaseUntil.Sub(*before.LeaseUntil) > s.lease/2
		})
		w.release(s, id)
		s.ranOnce(c, w, id)
		if now := s.attempts(c, id); len(now) != 1 || now[0].ID != began.Attempt || now[0].ConcurrencyToken != began.Token {
			s.Errorf("attempts %+v, want %s under token %d", now, began.Attempt, began.Token)
		}
	})
}

// The same with a task of another queue that waits for the key, and with a worker that says
// its Finish once more when that task is running: it gets the answer of the first time, and
// the attempt that holds the key now goes on.
func TestNodeKilledWhileAnotherQueueWaitsForTheKey(t *testing.T) { // TEST-020, TOK-010, TOK-011, LIC-004, LIC-005
	onEngines(t, func(s *scene) {
		s.lease *= 2 // the original is renewed by hand
		a, b := s.startNode("node-a"), s.startNode("node-b")
		c := s.client(b)
		queue, err := c.CreateQueue(s.Context(), "other", orbit.CreateQueueRequest{Name: "other"})
		if err != nil {
			s.Fatal(err)
		}
		original := s.enrol(a)
		id := s.submit(c, order{key: "k", reconcil: true})
		first := original.take(s, id)
		heir := s.startWorker("heir", b.url, func(c *workerConfig, _ *launch) { c.Queue = queue.ID })
		next := s.submitTo(c, queue.ID, order{key: "k", reconcil: true, work: work{Hold: true}})
		a.kill(s.T)
		original.resume(s, b, first.Attempt)
		// Node B has looked for work of the other queue by then: a task without a key has run.
		plain := s.submitTo(c, queue.ID, order{})
		poll(s.T, "the task without a key to have run", func() bool {
			original.renew(s, first.Attempt)
			task, err := c.GetTask(s.Context(), plain)
			return err == nil && task.State == orbit.StateSucceeded
		})
		if task := s.awaitState(c, next, orbit.StateWaiting); task.AttemptCount != 0 || len(s.attempts(c, next)) != 0 {
			s.Errorf("the task of the other queue has %d attempts while the key is held, want 0", task.AttemptCount)
		}
		report := worker.Report{Receipt: "once", Outcome: orbit.OutcomeSucceeded, Result: []byte(`{"done":true}`)}
		original.finish(s, first.Attempt, report)
		began := heir.awaitStart(s, next)
		if began.Token <= first.ConcurrencyToken {
			s.Errorf("the next attempt has token %d after %d, want a larger one", began.Token, first.ConcurrencyToken)
		}
		original.finish(s, first.Attempt, report)
		before := s.attempts(c, next)[0]
		if before.State != orbit.AttemptRunning || before.LeaseUntil == nil {
			s.Fatalf("after the replay the next attempt is %+v, want it running", before)
		}
		s.verify() // the permit is the next task's still
		poll(s.T, "the next attempt to be renewed after the replay", func() bool {
			now := s.attempts(c, next)[0]
			return now.LeaseUntil == nil || now.LeaseUntil.After(*before.LeaseUntil)
		})
		heir.release(s, next)
		s.ranOnce(c, heir, next)
		if all := s.attempts(c, id); len(all) != 1 || all[0].ID != first.Attempt.ID || all[0].ConcurrencyToken != first.ConcurrencyToken {
			s.Errorf("the original has the attempts %+v, want %s under token %d alone", all, first.Attempt.ID, first.ConcurrencyToken)
		}
	})
}

// submitTo submits to a queue other than the scene's.
func (s *scene) submitTo(c *orbit.Client, queue string, o order) string {
	s.Helper()
	r := s.request(o)
	r.QueueID = queue
	accepted, err := c.SubmitTask(s.Context(), sqldb.NewID().String(), r)
	if err != nil {
		s.Fatal(err)
	}
	s.expect(accepted.Task.ID, orbit.StateSucceeded)
	return accepted.Task.ID
}

// A member of the crew that the test itself plays, message by message.
type played struct {
	registration worker.Registration
	conn         *worker.Conn
}

// enrol connects a worker of the scene's queue to a node.
func (s *scene) enrol(n *node) *played {
	s.Helper()
	w := &played{registration: worker.Registration{
		ProcessID: worker.NewProcessID(), Queues: []string{s.creds.QueueID}, Capacity: 1, ConcurrencyKeys: true,
		Handlers: []worker.Handler{{Name: handlerName, Version: handlerVersion}},
	}}
	w.dial(s, n)
	s.Cleanup(func() { w.conn.Close() })
	return w
}

func (w *played) dial(s *scene, n *node, held ...worker.Attempt) {
	s.Helper()
	conn, err := worker.Dial(s.Context(), n.url, s.creds.Token, w.registration, worker.Network{AllowInsecure: true}, held...)
	if err != nil {
		s.Fatal(err)
	}
	w.conn = conn
}

// take waits for a task and starts it.
func (w *played) take(s *scene, id string) *worker.Assignment {
	s.Helper()
	if err := w.conn.Credit(s.Context(), 1); err != nil {
		s.Fatal(err)
	}
	event, err := w.conn.Next(s.Context())
	given, ok := event.(*worker.Assignment)
	if !ok || given.Task.ID != id {
		s.Fatalf("the node says %+v, %v; want task %s", event, err, id)
	}
	if _, err := w.conn.Start(s.Context(), given.Attempt); err != nil {
		s.Fatal(err)
	}
	return given
}

// resume goes on with an attempt at another node.
func (w *played) resume(s *scene, n *node, held worker.Attempt) {
	s.Helper()
	w.conn.Close()
	w.dial(s, n, held)
	if got, err := w.conn.Resume(s.Context(), held); err != nil || !got.Kept || !got.Running {
		s.Fatalf("Resume = %+v, %v; want the right to go on", got, err)
	}
}

func (w *played) renew(s *scene, held worker.Attempt) {
	s.Helper()
	if _, err := w.conn.Renew(s.Context(), held, ""); err != nil {
		s.Fatal(err)
	}
}

// finish reports, for the first time or again: the answer is the same.
func (w *played) finish(s *scene, held worker.Attempt, r worker.Report) {
	s.Helper()
	if got, err := w.conn.Finish(s.Context(), held, r); err != nil || !got.Recorded {
		s.Fatalf("Finish = %+v, %v; want it recorded", got, err)
	}
}

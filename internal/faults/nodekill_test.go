//go:build linux

package faults

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
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
// statement that inserts these columns of an attempt: before it reaches the database, or
// when the database has answered, before the node hears of it.
func (s *scene) startDoomed(name, columns string, before bool) *doomed {
	s.Helper()
	faults := dbfault.Open(s.T, s.db)
	d := &doomed{node: s.startNode(name, onDatabase(faults.Address))}
	faults.Set(dbfault.Trap{
		Before: before,
		Statement: func(text string) bool {
			return strings.Contains(text, "INSERT INTO attempt") && strings.Contains(text, columns)
		},
		Do: func() {
			d.Process.Kill()
			<-d.ended
			d.died.Store(true)
		},
	})
	return d
}

// Statements of the transactions, by the last columns that they insert.
const (
	claimsIt   = "concurrency_token)"
	startsIt   = "started_at, timeout_at)"
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

// Issue C, "server node killed between Start commit and ACK, and during Finish": the worker
// says it again to another node and gets the answer that is in force. The task must not run
// twice; it does not, and nobody has to review it.
func TestNodeKilledAtAStartOrAFinish(t *testing.T) { // TEST-021, WRK-012, WRK-013, WRK-015, TOK-010
	cases := map[string]struct {
		columns string
		before  bool
	}{
		"start committed":      {startsIt, false},
		"finish not committed": {finishesIt, true},
		"finish committed":     {finishesIt, false},
	}
	for name, at := range cases {
		t.Run(name, func(t *testing.T) {
			onServers(t, func(s *scene) {
				a, b := s.startDoomed("node-a", at.columns, at.before), s.startNode("node-b")
				p := startProxy(s.T, a.addr)
				w := s.startWorker("worker", p.url)
				c := s.client(b)
				id := s.submit(c, order{key: "k", reconcil: true})
				poll(s.T, "node A to be killed", a.died.Load)
				state := orbit.StateRunning
				if at.columns == finishesIt && !at.before {
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

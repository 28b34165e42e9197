//go:build linux

package faults

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
)

// A relayStep is a place between two steps of a relay.
type relayStep struct {
	name      string
	at, since string // as in halt
	after     bool
	stopping  bool // is met after a SIGTERM
	inside    bool // a transaction
	large     bool // is met by rows that are too large to be read with the index
	harmless  bool // no lease is held, so none can be lost
}

// relaySteps are the steps from the look for shards to the release, each as the relay
// takes it. What lies before one of them lies after the one before.
var relaySteps = []relayStep{
	{name: "before shards are listed", at: "FROM orbit_outbox_lease\nORDER BY shard", harmless: true},
	{name: "before the server is asked who it is", at: "GET", harmless: true},
	{name: "before the lease is read", at: "SELECT leader, holder, epoch", harmless: true},
	{name: "before the lease is taken", at: "SET leader = ", harmless: true},
	{name: "after the lease was taken", at: "SET leader = ", after: true},
	{name: "before lanes are listed", at: "SELECT lane, seq, target, queue_id"},
	{name: "before holds are read", at: "FROM orbit_outbox_hold"},
	{name: "before due rows are read", at: "SELECT d.seq, d.size, d.due_at"},
	{name: "after due rows were read", at: "SELECT d.seq, d.size, d.due_at", after: true},
	{name: "before large requests are read", at: "SELECT r.seq, r.size, r.due_at", large: true},
	{name: "after large requests were read", at: "SELECT r.seq, r.size, r.due_at", large: true, after: true},
	{name: "before the mark of a take-over", at: "INSERT INTO orbit_outbox_answer", inside: true},
	{name: "before the mark is committed", at: "COMMIT", since: "INSERT INTO orbit_outbox_answer", inside: true},
	{name: "before the request is sent", at: "POST"},
	{name: "after the server has answered", at: "POST", after: true},
	{name: "before the answer is settled", at: "SET state = 2"},
	{name: "after the answer was settled", at: "SET state = 2", after: true},
	{name: "before a block is written", at: "SET state = CASE", inside: true},
	{name: "before a block is committed", at: "COMMIT", since: "SET state = CASE", inside: true},
	{name: "after a block was committed", at: "COMMIT", since: "SET state = CASE", after: true},
	{name: "before the lease is renewed", at: "SET expires_at = "},
	{name: "after the lease was renewed", at: "SET expires_at = ", after: true},
	{name: "before the lease is released", at: "SET holder = ", stopping: true},
	{name: "after the lease was released", at: "SET holder = ", stopping: true, after: true, harmless: true},
}

// enqueueFor enqueues what the relay that is to halt at the step will meet.
func (s *shop) enqueueFor(step relayStep) {
	s.Helper()
	s.enqueue(s.good(), s.good(), s.stray())
	if step.large {
		s.enqueue(s.message(s.creds.QueueID, 256<<10-100))
	}
}

// startHalting starts a relay that halts at the step, lets it get there and returns it.
func (s *shop) startHalting(name, url string, step relayStep, sig syscall.Signal) *relayProcess {
	s.Helper()
	r := s.startRelay(name, url, func(c *relayConfig) {
		c.Halt = &halt{At: step.at, Since: step.since, After: step.after, Signal: sig}
	})
	if step.stopping {
		s.settled()
		r.signal(s.T, syscall.SIGTERM)
	}
	poll(s.T, name+" to get to the step", func() bool {
		if r.over() && r.count(evHalt, "") == 0 {
			s.Fatalf("%s ended with %v before it got there\n%s", name, r.ProcessState, r.log.tail())
		}
		return r.over() || sig == syscall.SIGSTOP && r.count(evHalt, "") > 0 && r.stopped()
	})
	return r
}

// The issue, "kill -9 of the relay between every pair of steps": one relay after another
// is killed, each at another place, and the next one takes over what it has left. Not a row
// is lost and none becomes two tasks.
func TestRelayKilledBetweenEveryPairOfSteps(t *testing.T) { // REL-015, REL-016, REL-007, OUT-003, OUT-013, TEST-053
	inShops(t, func(s *shop) {
		n := s.startNode("node")
		s.deadLeader()
		for i, step := range relaySteps {
			s.enqueueFor(step)
			s.endLeases()
			r := s.startHalting(fmt.Sprintf("relay-%d", i), n.url, step, syscall.SIGKILL)
			if ws := r.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
				s.Fatalf("%s: the relay ended with %v, want it killed\n%s", step.name, r.ProcessState, r.log.tail())
			}
		}
		s.endLeases()
		last := s.startRelay("last", n.url)
		s.settled()
		last.stop(s)
		if s.acceptedBefore() == 0 {
			s.Error("no row was accepted twice: no kill came between a send and its settling")
		}
		s.check()
	})
}

// The issue, "SIGSTOP of the relay between every pair of steps": it sleeps past its lease
// and wakes up at that very place while another relay leads, which cannot reach the server
// and so leaves every row as it is. The sleeper changes no row and no lease any more, and
// ends in order; then the other one settles everything.
func TestRelayStoppedPastItsLeaseBetweenStepsChangesNothing(t *testing.T) { // REL-015, REL-017, REL-018, REL-022, TEST-053
	inShops(t, func(s *shop) {
		n := s.startNode("node")
		way := startLine(s.T, "")
		for i, step := range relaySteps {
			if step.inside && s.business.Engine == dbtest.SQLite {
				continue // it holds the file as it sleeps, so nobody can take over
			}
			s.enqueueFor(step)
			s.deadLeader()
			sleeper := s.startHalting(fmt.Sprintf("sleeper-%d", i), n.url, step, syscall.SIGSTOP)
			s.endLeases()
			endHeir := s.startHeir("http://" + way.addr)
			before := s.everything()
			sleeper.resume(s.T)
			sleeper.await(s.T, step.name+": the sleeper to go on", of(evPast, ""))
			sleeper.stop(s)
			if after := s.everything(); after != before {
				s.Errorf("%s: the sleeper changed rows or lease to\n%s\nfrom\n%s", step.name, after, before)
			}
			way.point(n.addr)
			s.settled()
			endHeir()
			way.point("")
		}
		s.check()
	})
}

// deadLeader leaves the shard as a relay does that was killed some time ago.
func (s *shop) deadLeader() {
	s.Helper()
	if _, err := s.store.Lead(s.Context(), 0, "dead", time.Hour); err != nil {
		s.Fatal(err)
	}
	s.endLeases()
}

// startHeir runs a relay inside the test, which leads when it returns, until the returned
// function is called.
func (s *shop) startHeir(url string) (end func()) {
	s.Helper()
	cfg := s.relayConfig("heir", url)
	cfg.Lease = 20 * cfg.Lease // it is not to be renewed while the test compares
	r, err := newRelay(s.store, cfg, &http.Transport{})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	poll(s.T, "the heir to lead", func() bool { return len(r.Stats().Shards) == 1 })
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("the heir ended with %v", err)
		}
	}
}

// everything returns what is stored of every row and lease.
func (s *shop) everything() (text string) {
	s.Helper()
	s.businessRows(`SELECT seq, state, due_at, attempts, outcome, outcome_unknown, HEX(task_id), HEX(answer_request_id), settled_at
FROM orbit_outbox ORDER BY seq`, func(scan func(...any) error) error {
		var n [7]int64
		var task, request string
		err := scan(&n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &task, &request, &n[6])
		text += fmt.Sprintln(n, task, request)
		return err
	})
	s.businessRows("SELECT HEX(holder), epoch, expires_at FROM orbit_outbox_lease", func(scan func(...any) error) error {
		var holder string
		var epoch, expires int64
		err := scan(&holder, &epoch, &expires)
		text += fmt.Sprintln("lease", holder, epoch, expires)
		return err
	})
	return text
}

//go:build linux

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
)

// Issue C, "database clock jumps ±1 h", under load. Every time is the database's.
//
// Forward, each lease is over at once: what may be repeated is, under a greater token, and
// the guarded resource takes no write of the attempt before. Backward, what runs goes on in
// its attempt and what comes new is done at once; what waited already, and what nobody
// works on any more, waits longer by the jump, and no longer.
func TestDatabaseClockJumps(t *testing.T) { // LIC-019, TOK-004, TOK-011
	onOwnServers(t, true, func(s *scene, d *database) {
		s.openGuard()
		const hour = time.Hour
		a, b := s.startNode("node-a"), s.startNode("node-b")
		lb, c := startBalancer(s.T, a, b), s.client(a)
		w := s.startWorker("worker", lb.url, capacity(8))
		load := func() *load {
			return s.startLoad(lb.url, 2, 50*time.Millisecond, func(i int) order {
				return order{key: fmt.Sprintf("key-%d", i%5), attempts: 100, work: work{MS: i % 30, Write: true, Late: true}}
			})
		}
		l := load()
		held := work{Hold: true, Write: true, Late: true}

		again := s.submit(c, order{key: "forward", work: held})
		first := w.awaitStart(s, again)
		l.awaitMore(10)
		d.jump(hour)
		second := w.await(s.T, "the task to run again", func(e event) bool { return e.What == evStart && e.Task == again && e.Attempt != first.Attempt })
		if second.Token <= first.Token {
			s.Errorf("after the jump forward the token is %d, was %d", second.Token, first.Token)
		}
		w.release(s, again) // both handlers go on, and both write
		s.awaitState(c, again, orbit.StateSucceeded)
		l.awaitMore(10)

		stays := s.submit(c, order{key: "backward", work: held})
		w.awaitStart(s, stays)
		victim := s.startWorker("victim", lb.url, capacity(8))
		orphan := s.heldBy(c, victim, w, held)
		victim.kill(s.T)
		d.jump(0)
		s.newTasksRun(c, 10)
		s.leasesPass(2)
		for id, most := range map[string]time.Duration{stays: 0, orphan: hour + s.lease} {
			got := s.attempts(c, id)
			if len(got) != 1 || got[0].State != orbit.AttemptRunning {
				s.Errorf("after the jump backward the attempts are %+v, want the one that ran", got)
			} else if left := got[0].LeaseUntil.Sub(s.clock()); most > 0 && left > most {
				s.Errorf("the lease of a dead worker lasts %v more, want at most the jump and a lease", left)
			}
		}
		w.release(s, stays)
		s.awaitState(c, stays, orbit.StateSucceeded)

		l.end()
		d.jump(hour + s.lease) // the clock has come to where it was
		w.awaitStart(s, orphan)
		w.release(s, orphan)
		s.drained()
		s.checkWrites()
		for id, want := range map[string]uint64{again: 2, stays: 1, orphan: 2} {
			if task := s.awaitState(c, id, orbit.StateSucceeded); uint64(task.AttemptCount) != want {
				s.Errorf("task %s took %d attempts, want %d", id, task.AttemptCount, want)
			}
		}
	})
}

// clock reads the database's clock.
func (s *scene) clock() time.Time {
	s.Helper()
	return time.UnixMicro(s.count("SELECT " + s.db.Dialect().Clock))
}

// leasesPass waits until the database's clock has gone on by so many leases.
func (s *scene) leasesPass(n int) {
	s.Helper()
	end := s.clock().Add(time.Duration(n) * s.lease)
	poll(s.T, "leases to pass", func() bool { return s.clock().After(end) })
}

// newTasksRun holds tasks that are accepted now to run now.
func (s *scene) newTasksRun(c *orbit.Client, n int) {
	s.Helper()
	var ids []string
	for range n {
		ids = append(ids, s.submit(c, order{}))
	}
	for _, id := range ids {
		s.awaitState(c, id, orbit.StateSucceeded)
	}
}

// heldBy returns a task that is held in one of two workers, and not in the other.
func (s *scene) heldBy(c *orbit.Client, one, other *workerProcess, held work) (id string) {
	s.Helper()
	poll(s.T, "a task to be given to "+one.name, func() bool {
		id = s.submit(c, order{key: "orphan", work: held})
		poll(s.T, "the task to run", func() bool { return one.count(evStart, id)+other.count(evStart, id) > 0 })
		if one.count(evStart, id) > 0 {
			return true
		}
		other.release(s, id)
		s.awaitState(c, id, orbit.StateSucceeded)
		return false
	})
	return id
}

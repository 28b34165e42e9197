//go:build linux

package faults

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
)

// Issue C, "1,000 reconnects without a goroutine leak": the connection of a worker is reset
// again and again, as soon as it is registered, while one of its handlers runs. Neither
// side keeps a goroutine, a socket or memory of it, and the attempt lives through all.
func TestReconnectsLeaveNothingBehind(t *testing.T) { // WRK-021, WRK-024, TOK-010
	onEngines(t, func(s *scene) {
		cuts := 1000
		if s.db.Engine != dbtest.SQLite {
			cuts = 50 // what could leak does not depend on the engine
		}
		n := s.startNode("node-a", withLease(time.Minute)) // it is not renewed when the machine is busy
		c := s.client(n)
		p := startProxy(s.T, n.addr)
		w := s.startWorker("worker", p.url, quickly)
		id := s.submit(c, order{key: "k", reconcil: true, work: work{Hold: true}})
		w.awaitStart(s, id)
		cutOften(s, p, 20) // pools and buffers have their size now
		node, work := n.settled(s), w.settled(s)
		cutOften(s, p, cuts)
		n.staysLike(s, node)
		w.staysLike(s, work)
		w.release(s, id)
		s.ranOnce(c, w, id)
		if a := s.attempts(c, id); len(a) != 1 || a[0].Outcome != orbit.OutcomeSucceeded {
			s.Errorf("attempts are %+v, want the one that lived through it all", a)
		}
	})
}

func quickly(c *workerConfig, _ *launch) { c.MaxReconnect = 2 * time.Millisecond }

// cutOften resets the connection n times, each time as soon as the worker is registered.
func cutOften(s *scene, p *proxy, n int) {
	s.Helper()
	for range n {
		before := p.registered()
		if p.cut() == 0 {
			s.Fatal("there was no connection to cut")
		}
		poll(s.T, "the worker to be back", func() bool { return p.registered() > before })
	}
}

// settled returns the figures of a process when they no longer fall.
func (p *process) settled(s *scene) event {
	s.Helper()
	last := p.stats(s.T)
	poll(s.T, p.name+" to settle", func() bool {
		e := p.stats(s.T)
		still := e.Goroutines >= last.Goroutines && e.Files >= last.Files
		last = e
		return still
	})
	return last
}

// staysLike waits until a process has no more than it had before, within what connections
// to the database come and go.
func (p *process) staysLike(s *scene, before event) {
	s.Helper()
	const few, some = 12, 8 << 20
	var e event
	defer func() { // also when it waits in vain
		s.Logf("%s: goroutines %d → %d, files %d → %d, heap %d → %d KiB", p.name, before.Goroutines, e.Goroutines, before.Files, e.Files, before.Heap>>10, e.Heap>>10)
	}()
	poll(s.T, p.name+" to be as before", func() bool {
		e = p.stats(s.T)
		return e.Goroutines <= before.Goroutines+few && e.Files <= before.Files+few && e.Heap <= before.Heap+some
	})
}

//go:build linux

package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// readiness is what a node answers to /readyz; 0 means nothing.
func (n *node) readiness() int {
	resp, err := quick.Get(n.url + "/readyz")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Issue C, "database restarted under load": the server is killed and started again on what
// it left. Nodes and workers come back by themselves; what was accepted is there, and what
// was started runs once.
func TestDatabaseRestartedUnderLoadLosesAndDoublesNothing(t *testing.T) { // ERR-017, IDEM-013, REF-HEALTH-002
	onOwnServers(t, false, func(s *scene, d *database) {
		s.lease = 20 * time.Second
		nodes := []*node{s.startNode("node-a"), s.startNode("node-b")}
		b := startBalancer(s.T, nodes...)
		books := []*book{s.startWorker("worker-1", b.url, capacity(4)).book, s.startWorker("worker-2", b.url, capacity(4)).book}
		l := s.startLoad(b.url, 3, 10*time.Millisecond, func(i int) order {
			o := order{work: work{MS: i % 20}}
			if i%2 == 0 {
				o.key = fmt.Sprintf("key-%d", i%10)
			}
			return o
		})
		l.awaitMore(20)
		var longest time.Duration
		for range 2 {
			down := time.Now()
			d.kill()
			for _, n := range nodes {
				poll(s.T, n.name+" to say that it is not ready", func() bool { return n.readiness() == http.StatusServiceUnavailable })
			}
			d.start()
			for _, n := range nodes {
				poll(s.T, n.name+" to be ready again", func() bool { return n.readiness() == http.StatusOK })
			}
			longest = max(longest, time.Since(down))
			l.awaitMore(20)
		}
		ids := l.end()
		s.drained()
		if l.repeats == 0 {
			s.Error("no submit had to be said again: the database was not missed")
		}
		if longest < s.lease/2 {
			s.runsOnce(ids, books...)
		}
		s.Logf("%d tasks, %d submits said again, away for %v at most, %d attempts", len(ids), l.repeats, longest.Round(time.Millisecond), s.count("SELECT COUNT(*) FROM attempt"))
	})
}

//go:build linux

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/wire"
)

// Issue C, "rolling restart of two nodes under load with zero failed tasks": each node is
// asked to stop and started again, in turn, several times. Nobody hears of it but the
// workers, who go elsewhere: every task starts once and succeeds. What was claimed and not
// yet sent is handed back, so no task waits for the end of a lease.
func TestRollingRestartUnderLoadFailsNoTask(t *testing.T) { // REF-WRK-003
	onEngines(t, func(s *scene) {
		s.lease = 20 * time.Second // longer than the test, but for what nobody hands back
		nodes := []*node{s.startNode("node-a"), s.startNode("node-b")}
		b := startBalancer(s.T, nodes...)
		books := []*book{s.startWorker("worker-1", b.url, tapping, capacity(4)).book, s.startWorker("worker-2", b.url, tapping, capacity(4)).book}
		l := s.startLoad(b.url, 3, 10*time.Millisecond, func(i int) order {
			o := order{reconcil: true, work: work{MS: i % 20}}
			if i%3 == 0 {
				o.key = fmt.Sprintf("key-%d", i%5)
			}
			return o
		})
		l.awaitMore(20)
		for range 3 {
			for i, n := range nodes {
				n.terminate(s.T)
				l.awaitMore(10)
				nodes[i] = s.startNode(n.name, at(n.addr))
				l.awaitMore(10)
			}
		}
		ids := l.end()
		s.drained()
		s.runsOnce(ids, books...)
		if n := b.nodesUsed(); n != len(nodes) {
			s.Errorf("%d nodes were used, want both", n)
		}
		told := 0
		for _, book := range books {
			told += len(book.all(func(e event) bool { return e.What == evGot && e.Kind == wire.TypeServerDraining }))
		}
		if told == 0 {
			s.Error("no worker was told that its node is stopping: nobody was connected")
		}
		if n := s.count("SELECT COUNT(*) FROM task_event WHERE reason = ?", []byte("lease_expired")); n != 0 {
			s.Errorf("%d attempts ended with their lease, want all handed back", n)
		}
		s.Logf("%d tasks, %d submits said again, %d times told, %d attempts handed back", len(ids), l.repeats, told, s.count("SELECT COUNT(*) FROM attempt")-int64(len(ids)))
	})
}

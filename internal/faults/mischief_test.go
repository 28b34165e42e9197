//go:build linux

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"
)

// What a mischief does.
const (
	workerKilled      = "worker killed"
	workerPaused      = "worker paused"
	workerDrained     = "worker drained"
	nodeKilled        = "node killed"
	nodePaused        = "node paused"
	nodeStopped       = "node stopped"
	databaseRestarted = "database killed"
)

var mischiefs = []string{workerKilled, workerPaused, workerDrained, nodeKilled, nodePaused, nodeStopped, databaseRestarted}

// A mischief is nodes and workers to which something happens all the time. Its methods
// belong to the goroutine of the test.
type mischief struct {
	s        *scene
	database *database // nil on SQLite
	rand     *rand.Rand
	balancer *balancer
	nodes    []*node
	workers  []*workerProcess
	wake     map[*process]time.Time // those that are paused, and until when
	left     []string               // what is to happen before all of it happens again
	done     tally
	rounds   int
	hired    int
	runs     map[string]map[string]int // by task and attempt, in processes that are gone
}

func newMischief(s *scene, d *database, r *rand.Rand) *mischief {
	s.Helper()
	m := &mischief{s: s, database: d, rand: r, wake: map[*process]time.Time{}, done: tally{}, runs: map[string]map[string]int{}}
	for i := range 2 {
		m.nodes = append(m.nodes, s.startNode(fmt.Sprintf("node-%c", 'a'+i), patiently))
	}
	m.balancer = startBalancer(s.T, m.nodes...)
	for range 3 {
		m.workers = append(m.workers, m.hire())
	}
	return m
}

// patiently bounds a graceful stop by more than a node on SQLite waits for another one that
// was stopped while it had the file locked.
func patiently(c *nodeConfig, _ *string) { c.Stop = 40 * time.Second }

func (m *mischief) hire() *workerProcess {
	m.s.Helper()
	m.hired++
	return m.s.startWorker(fmt.Sprintf("worker-%d", m.hired), m.balancer.url, capacity(4))
}

// complete reports whether everything has happened at least once.
func (m *mischief) complete() bool { return m.rounds > 1 || m.rounds == 1 && len(m.left) == 0 }

func (m *mischief) String() string { return m.done.String() }

// next waits a while and lets one thing happen. All of it happens in some order, then in
// another.
func (m *mischief) next() {
	m.s.Helper()
	if len(m.left) == 0 {
		m.rounds++
		m.left = slices.Clone(mischiefs)
		if m.database == nil {
			m.left = m.left[:len(m.left)-1]
		}
		m.rand.Shuffle(len(m.left), func(i, j int) { m.left[i], m.left[j] = m.left[j], m.left[i] })
	}
	for end := time.Now().Add(200*time.Millisecond + rand.N(1600*time.Millisecond)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		m.wakeUp(time.Now())
	}
	what := m.left[0]
	m.left = m.left[1:]
	m.do(what)
	m.done[what]++
}

func (m *mischief) do(what string) {
	m.s.Helper()
	switch what {
	case workerKilled, workerPaused, workerDrained:
		m.doToWorker(what)
	default:
		m.doToServers(what)
	}
}

func (m *mischief) doToWorker(what string) {
	m.s.Helper()
	i := m.rand.IntN(len(m.workers))
	w := m.workers[i]
	if what == workerPaused {
		m.pause(w.process)
		return
	}
	m.resume(w.process)
	if what == workerKilled {
		w.kill(m.s.T)
	} else {
		w.terminate(m.s.T)
	}
	m.retire(w.process)
	m.workers[i] = m.hire()
}

func (m *mischief) doToServers(what string) {
	m.s.Helper()
	k := m.rand.IntN(len(m.nodes))
	n := m.nodes[k]
	switch what {
	case nodePaused:
		m.pause(n.process)
	case nodeKilled, nodeStopped:
		m.resume(n.process)
		if what == nodeKilled {
			n.kill(m.s.T)
		} else {
			m.stop(n)
		}
		m.retire(n.process)
		m.nodes[k] = m.s.startNode(n.name, at(n.addr), patiently)
	case databaseRestarted:
		m.database.kill()
		time.Sleep(rand.N(500 * time.Millisecond))
		m.database.start()
	}
}

// stop asks a node to stop. Those that it waits for go on meanwhile.
func (m *mischief) stop(n *node) {
	m.s.Helper()
	n.signal(m.s.T, syscall.SIGTERM)
	poll(m.s.T, n.name+" to stop", func() bool {
		m.wakeUp(time.Now())
		return n.over()
	})
}

// pause stops a process for up to two and a half leases.
func (m *mischief) pause(p *process) {
	m.s.Helper()
	if _, paused := m.wake[p]; !paused {
		p.pause(m.s.T)
		m.wake[p] = time.Now().Add(rand.N(5 * m.s.lease / 2))
	}
}

func (m *mischief) resume(p *process) {
	m.s.Helper()
	if _, paused := m.wake[p]; paused {
		p.resume(m.s.T)
		delete(m.wake, p)
	}
}

func (m *mischief) wakeUp(now time.Time) {
	m.s.Helper()
	for p, until := range m.wake {
		if !now.Before(until) {
			m.resume(p)
		}
	}
}

// rest lets everything go on undisturbed.
func (m *mischief) rest() {
	m.s.Helper()
	m.wakeUp(time.Now().Add(time.Hour))
}

// retire takes what is to be known of a process that is gone, and forgets the rest.
func (m *mischief) retire(p *process) {
	m.s.Helper()
	if text := p.log.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		m.s.Errorf("%s has a data race or a panic:\n%s", p.name, p.log.tail())
	}
	if code := p.ProcessState.ExitCode(); code > 0 {
		m.s.Errorf("%s ended with exit status %d:\n%s", p.name, code, p.log.tail())
	}
	m.count(p.book)
	p.log.mu.Lock()
	p.log.text = nil
	p.log.mu.Unlock()
	p.book.mu.Lock()
	p.book.events = nil
	p.book.mu.Unlock()
}

func (m *mischief) count(b *book) {
	for _, e := range b.all(of(evStart, "")) {
		if m.runs[e.Task] == nil {
			m.runs[e.Task] = map[string]int{}
		}
		m.runs[e.Task][e.Attempt]++
	}
}

// takeRuns returns how often the handler ran, by task and attempt.
func (m *mischief) takeRuns() map[string]map[string]int {
	for _, w := range m.workers {
		m.count(w.book)
	}
	return m.runs
}

//go:build linux

package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/worker"
)

const (
	// longLease has the largest margin that a worker takes off a lease, one second: a busy
	// machine must not need more.
	longLease = 10 * time.Second
	shortPing = 2 * time.Second
)

// A breakable network carries a worker's connection and can go dead without telling
// anybody.
type breakable struct {
	url     string
	join    func(*workerConfig, *launch)
	joined  func(*workerProcess) // the worker's process is there and waits
	kill    func()               // from now on nothing passes
	revive  func()
	dropped func() bool // whether the server has given the connection up
}

// Issue C, "half-open connection (network namespace, link down)": see deadNetwork.
func TestLinkGoesDown(t *testing.T) { // WRK-021, WRK-025, LIC-019
	needNetworkNamespace(t)
	onEngines(t, func(s *scene) {
		s.lease = longLease
		v := s.newVeth()
		n := s.startNode("node-a", withPing(shortPing), at(v.host+":0"))
		s.deadNetwork(n, breakable{
			url:    n.url,
			join:   func(_ *workerConfig, l *launch) { l.attr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET} },
			joined: v.joinTo, kill: v.down, revive: v.up,
			dropped: func() bool { return !established(s.T, n, v.peer) },
		})
	})
}

// needNetworkNamespace skips the test for whoever may not make a network namespace, as most
// people who run make test may not. In CI somebody must.
func needNetworkNamespace(t *testing.T) {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("CI") != "" {
		missing = t.Fatalf
	}
	if os.Geteuid() != 0 {
		missing("needs root: makes a network namespace")
	}
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		missing("needs the right to make a network namespace: %v\n%s", err, out)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		missing("needs ip: %v", err)
	}
}

// Issue C, "half-open connection", without rights: a proxy that loses everything and keeps
// every socket open. See deadNetwork.
func TestNetworkFallsSilent(t *testing.T) { // WRK-021, WRK-025, LIC-019
	onEngines(t, func(s *scene) {
		s.lease = longLease
		n := s.startNode("node-a", withPing(shortPing))
		p := startProxy(s.T, n.addr)
		s.deadNetwork(n, breakable{
			url: p.url, join: func(*workerConfig, *launch) {}, joined: func(*workerProcess) {},
			kill: p.silence, revive: p.heal,
			dropped: func() (yes bool) { p.set(func() { yes = p.dropped > 0 }); return yes },
		})
	})
}

// deadNetwork lets a network die while a handler runs. The server gives the connection up
// by its pings; the handler is told by its own clock before the server's lease ends; when
// the network is back the worker connects again, and everything comes to its end.
func (s *scene) deadNetwork(n *node, b breakable) {
	c := s.client(n)
	w := s.startWorker("worker", b.url, b.join, func(c *workerConfig, _ *launch) { c.Wait, c.Insecure = true, true })
	b.joined(w)
	w.say(s.T, "go")
	id := s.submit(c, order{key: "k", work: work{Hold: true}})
	attempt := w.awaitStart(s, id).Attempt
	if b.dropped() {
		s.Fatal("the connection is gone before the network is")
	}
	b.kill()
	meanwhile := s.submit(c, order{})

	told := w.await(s.T, "the handler to be told", of(evCancel, id))
	alive := s.attempts(c, id)[0]
	poll(s.T, "the server to give the connection up", b.dropped)
	poll(s.T, "the lease to end", func() bool { return s.attempts(c, id)[0].State == orbit.AttemptEnded })
	ended := s.attempts(c, id)[0]
	if ended.ID != attempt || ended.Outcome != orbit.OutcomeUnknown || ended.Reason != "lease_expired" {
		s.Errorf("attempt ended %s because of %q, want UNKNOWN because of lease_expired", ended.Outcome, ended.Reason)
	}
	if alive.LeaseUntil == nil || !wall(told.At).Before(*alive.LeaseUntil) || ended.EndedAt.Before(*alive.LeaseUntil) {
		s.Errorf("the handler was told at %v, want a time before the server's lease ends at %v; the server ended it at %v", wall(told.At), alive.LeaseUntil, ended.EndedAt)
	}
	if !strings.Contains(told.Text, worker.ErrLeaseLost.Error()) {
		s.Errorf("the handler was told %q, want that the right is lost", told.Text)
	}
	if w.count(evStart, meanwhile) != 0 {
		s.Error("a task got through the dead network")
	}

	b.revive()
	poll(s.T, "the handler to run again", func() bool { return w.count(evStart, id) == 2 })
	w.release(s, id)
	s.awaitState(c, meanwhile, orbit.StateSucceeded)
	if task := s.awaitState(c, id, orbit.StateSucceeded); task.AttemptCount != 2 || task.EffectUncertain {
		s.Errorf("task has %d attempts, uncertain %v; want 2, false", task.AttemptCount, task.EffectUncertain)
	}
	poll(s.T, "the report of the first attempt to be kept", func() bool {
		page, err := c.ListEvidence(s.Context(), id, orbit.PageRequest{})
		return err == nil && len(page.Items) == 1 && page.Items[0].AttemptID == attempt
	})
}

// wall turns a time of now into one of the calendar.
func wall(at time.Duration) time.Time { return time.Now().Add(at - now()) }

// A veth is a pair of network interfaces, one of them in a worker's namespace.
type veth struct {
	s          *scene
	name       string
	host, peer string // addresses
	pid        int
}

var veths atomic.Int64

// newVeth makes the pair. Its addresses are of a range for measurements, which leads
// nowhere (RFC 2544).
func (s *scene) newVeth() *veth {
	s.Helper()
	id := int64(os.Getpid()%512)*16 + veths.Add(1)
	v := &veth{s: s, name: fmt.Sprintf("orbit%d", id)}
	v.host, v.peer = fmt.Sprintf("198.18.%d.%d", id/64, id%64*4+1), fmt.Sprintf("198.18.%d.%d", id/64, id%64*4+2)
	s.ip("ip", "link", "add", "name", v.name, "type", "veth", "peer", "name", v.name+"p")
	s.Cleanup(func() { exec.Command("ip", "link", "del", v.name).Run() }) // gone already if its namespace is
	s.ip("ip", "addr", "add", v.host+"/30", "dev", v.name)
	s.ip("ip", "link", "set", v.name, "up")
	return v
}

// joinTo moves one end into the namespace of a process.
func (v *veth) joinTo(w *workerProcess) {
	v.pid = w.Process.Pid
	v.s.ip("ip", "link", "set", v.name+"p", "netns", fmt.Sprint(v.pid))
	v.inside("ip", "addr", "add", v.peer+"/30", "dev", v.name+"p")
	v.up()
}

func (v *veth) down() { v.inside("ip", "link", "set", v.name+"p", "down") }
func (v *veth) up()   { v.inside("ip", "link", "set", v.name+"p", "up") }

func (v *veth) inside(words ...string) {
	v.s.ip(append([]string{"nsenter", "--net", "--target", fmt.Sprint(v.pid)}, words...)...)
}

func (s *scene) ip(words ...string) {
	s.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// established reports whether the node has a connection with the address.
func established(t *testing.T, n *node, peer string) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", n.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		const isEstablished = "01"
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[2], hexAddress(peer)+":") && f[3] == isEstablished {
			return true
		}
	}
	return false
}

// hexAddress is how the kernel shows an address: as the bytes lie in memory.
func hexAddress(text string) string {
	b := net.ParseIP(text).To4()
	return fmt.Sprintf("%02X%02X%02X%02X", b[3], b[2], b[1], b[0])
}

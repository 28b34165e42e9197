package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/outbox"
)

// A link is a forwarding proxy before the task server that can keep the answers to
// submits back, or answer them itself.
type link struct {
	*httptest.Server
	server  string
	keep    atomic.Bool // keep the next answers back
	held    chan struct{}
	release chan struct{}
	once    sync.Once
	refuse  atomic.Int64 // answer so many submits with 503, unforwarded
	refused atomic.Int64
}

func newLink(t *testing.T, server string) *link {
	l := &link{server: server, held: make(chan struct{}), release: make(chan struct{})}
	l.Server = httptest.NewServer(http.HandlerFunc(l.forward))
	t.Cleanup(func() {
		l.letGo()
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

func (l *link) letGo() { l.once.Do(func() { close(l.release) }) }

func (l *link) forward(w http.ResponseWriter, r *http.Request) {
	submit := r.Method == http.MethodPost
	if submit && l.refuse.Load() > 0 {
		if l.refused.Add(1) > l.refuse.Load() { // no more answers, so that the row stands still
			<-l.release
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, l.server+r.URL.Path, r.Body)
	if err != nil {
		return
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if submit && l.keep.Swap(false) {
		close(l.held)
		<-l.release
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	w.Write(body)
}

// A process is orbit-relay as a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  output
	done chan struct{}
	err  error
}

// launch starts `orbit-relay run` with a short lease against url.
func (s *site) launch(name, url string) *process {
	s.t.Helper()
	env := []string{envDatabase + "=" + s.db.Address, envURL + "=" + url, envCredentials + "=" + s.file, envDSN + "=", envToken + "="}
	return s.spawn(name, env, "run", "--target", "shop", "--name", name, "--lease", "2s", "--send-timeout", "1s", "--poll", "100ms")
}

// spawn starts orbit-relay with these arguments.
func (s *site) spawn(name string, env []string, args ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	s.t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.cmd.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", name, p.log.String())
		}
	})
	return p
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Fatalf("the process ended with %v, not by the kill", p.err)
	}
}

// stop ends the process as an operator would.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	<-p.done
	if p.err != nil {
		p.t.Errorf("after SIGTERM the process ended with %v, want exit code 0", p.err)
	}
}

func (s *site) leader() outbox.LeaderOfShard {
	s.t.Helper()
	st, err := s.store.Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if len(st.Leaders) != 1 {
		return outbox.LeaderOfShard{}
	}
	return st.Leaders[0]
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(60 * time.Second): // a bound for hanging, not a measure
		t.Fatalf("never happened: %s", what)
	}
}

// TEST-053, REL-015, REL-016, EX-010: a relay is killed after the server's answer and
// before it can mark; a standby takes over.
func TestARelayKilledBetweenSendAndMarkIsFollowedByAnother(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			keys := make([]string, 30)
			for i := range keys {
				keys[i] = fmt.Sprintf("order-%d", i)
			}
			between := newLink(t, s.url)
			first := s.launch("first", between.URL)
			eventually(t, "the first leads", func() bool { return strings.Contains(first.log.String(), "shard led") })
			second := s.launch("second", s.url)
			eventually(t, "the standby runs", func() bool { return strings.Contains(second.log.String(), "right server") })
			between.keep.Store(true)
			seqs := s.enqueue(keys...)
			await(t, "an answer is kept back", between.held)
			first.kill()
			accepted := s.tasks()
			if accepted == 0 {
				t.Fatal("the server had accepted nothing when the relay was killed")
			}
			for _, seq := range seqs {
				if r := s.row(seq); r.State != outbox.Pending || r.Attempts != 0 {
					t.Fatalf("row %d is %v after %d sends already", seq, r.State, r.Attempts)
				}
			}
			known := 0
			for _, seq := range seqs {
				eventually(t, fmt.Sprintf("row %d is delivered", seq), func() bool { return s.row(seq).State == outbox.Delivered })
				if s.row(seq).Deduplicated {
					known++
				}
			}
			if l := s.leader(); l.Leader != "second" || l.Epoch < 2 {
				t.Errorf("shard is led by %q in epoch %d", l.Leader, l.Epoch)
			}
			if n := s.tasks(); n != len(keys) || known < accepted {
				t.Errorf("%d rows became %d tasks, %d of them known from an earlier send, want at least %d", len(keys), n, known, accepted)
			}
			second.stop()
			if l := s.leader(); l.Left > 0 {
				t.Errorf("the lease was not released: %+v", l)
			}
		})
	}
}

// stopOutsideTheFileLock stops a process while it cannot hold the write lock of an SQLite
// file: stopped with it, it would keep everyone out for as long as it sleeps. The other
// engines' locks are held by servers, which go on.
func (s *site) stopOutsideTheFileLock(p *process) {
	if s.db.Engine == dbtest.SQLite {
		tx, err := s.db.Write().BeginTx(s.t.Context(), nil) // begins IMMEDIATE
		if err != nil {
			s.t.Fatal(err)
		}
		defer tx.Rollback()
	}
	p.signal(syscall.SIGSTOP)
	// Threads run on for a moment. Where there is no /proc, nothing tells for how long.
	eventually(s.t, "the process is stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		return err == nil && !slices.ContainsFunc(threads, func(path string) bool {
			text, err := os.ReadFile(path)
			_, after, _ := strings.Cut(string(text), ") ")
			return err != nil || !strings.HasPrefix(after, "T")
		})
	})
}

// TEST-053, REL-017: a leader that was stopped past its lease settles nothing.
func TestALeaderThatWakesAfterItsLeaseSettlesNothing(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			seq := s.enqueue("order")[0]
			slow, refusing := newLink(t, s.url), newLink(t, s.url)
			slow.keep.Store(true)
			refusing.refuse.Store(1)
			first := s.launch("first", slow.URL)
			await(t, "an answer is kept back", slow.held)
			s.stopOutsideTheFileLock(first)
			slow.letGo() // the answer waits in the stopped process's socket
			second := s.launch("second", refusing.URL)
			eventually(t, "the second relay leads and waits for an answer", func() bool { return refusing.refused.Load() > 1 })
			before := s.row(seq)
			if l := s.leader(); l.Leader != "second" || before.State != outbox.Pending || before.Attempts == 0 {
				t.Fatalf("shard is led by %q, row is %v after %d sends", l.Leader, before.State, before.Attempts)
			}
			first.signal(syscall.SIGCONT)
			eventually(t, "the first relay knows that its lease is lost", func() bool { return strings.Contains(first.log.String(), "lease lost") })
			after := s.row(seq)
			if after.State != outbox.Pending || after.TaskID != "" || strings.Contains(after.Last.Message, "first") {
				t.Fatalf("the deposed leader made the row %v", after.State)
			}
			refusing.refuse.Store(0)
			refusing.letGo()
			eventually(t, "the row is delivered", func() bool { return s.row(seq).State == outbox.Delivered })
			if r := s.row(seq); !r.Deduplicated || s.tasks() != 1 {
				t.Errorf("deduplicated %t, %d tasks, want true and 1", r.Deduplicated, s.tasks())
			}
			first.stop()
			second.stop()
		})
	}
}

// REF-OUTBOX-001, REL-015, REL-016: relays are killed over and over, at any moment, while
// rows come and an operator acts. In the end each row is one task, and verify is clean.
func TestAKillStormLosesNothingAndVerifiesClean(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			const rounds, each = 5, 12
			s := newSite(t, engine)
			relays := []*process{s.launch("relay-a", s.url), s.launch("relay-b", s.url)}
			var seqs []int64
			for round := range rounds {
				keys := make([]string, each)
				for i := range keys {
					keys[i] = fmt.Sprintf("order-%d-%d", round, i)
				}
				before := s.tasks()
				seqs = append(seqs, s.enqueue(keys...)...)
				eventually(t, "the relay that is to be killed has sent something", func() bool { return s.tasks() > before })
				victim := 0
				if strings.HasPrefix(s.leader().Leader, "relay-b") {
					victim = 1
				}
				name := s.leader().Leader
				relays[victim].kill()
				relays[victim] = s.launch(name, s.url)
				s.operate(0, "hold", "--all", "--reason", "storm")
				s.operate(0, "release", "--all", "--reason", "storm")
			}
			for _, seq := range seqs {
				eventually(t, fmt.Sprintf("row %d is delivered", seq), func() bool { return s.row(seq).State == outbox.Delivered })
			}
			if n := s.tasks(); n != rounds*each {
				t.Errorf("%d rows became %d tasks", rounds*each, n)
			}
			if l := s.leader(); l.Epoch < 3 {
				t.Errorf("the shard is in epoch %d: hardly a take-over", l.Epoch)
			}
			if out, _ := s.operate(0, "verify"); !strings.Contains(out, fmt.Sprintf("%d rows, 0 faults", rounds*each)) {
				t.Errorf("verify = %q", out)
			}
			for _, p := range relays {
				p.stop()
			}
		})
	}
}

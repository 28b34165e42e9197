//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is a node or a worker as a child of the test.
type process struct {
	*exec.Cmd
	*book
	name  string
	stdin io.WriteCloser
	log   *lines
	ended chan struct{} // closed when it was waited for
}

// A launch says how a process is started.
type launch struct {
	name   string
	role   string // asNode or asWorker
	config any
	files  []*os.File           // from descriptor 3 on
	attr   *syscall.SysProcAttr // default: nothing special
}

// launch starts a process, which dies with the test.
func (s *scene) launch(l launch) *process {
	s.Helper()
	text, err := json.Marshal(l.config)
	if err != nil {
		s.Fatal(err)
	}
	p := &process{Cmd: exec.Command(os.Args[0]), book: &book{}, name: l.name, log: &lines{}, ended: make(chan struct{})}
	p.Env = append(os.Environ(), l.role+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.Stdout, p.Stderr, p.ExtraFiles = p.book, p.log, l.files
	if p.SysProcAttr = l.attr; p.SysProcAttr == nil {
		p.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if p.stdin, err = p.StdinPipe(); err != nil {
		s.Fatal(err)
	}
	if err := p.Start(); err != nil {
		s.Fatalf("start %s: %v", l.name, err)
	}
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	go func() {
		p.Wait() // ProcessState tells how it ended
		close(p.ended)
	}()
	return p
}

// say hands the process a command.
func (p *process) say(t *testing.T, words ...any) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin, words...); err != nil {
		t.Fatalf("tell %s: %v", p.name, err)
	}
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatalf("signal %v to %s: %v\n%s", sig, p.name, err, p.log)
	}
}

// kill ends the process with SIGKILL and makes sure that this is what ended it.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.ended
	if ws := p.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("%s ended with %v, not by the kill\n%s", p.name, p.ProcessState, p.log)
	}
}

// pause stops the process and returns when the kernel shows it stopped.
func (p *process) pause(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	poll(t, p.name+" to be stopped", func() bool { return p.stopped() })
}

// stopped reports whether all of the process is stopped.
func (p *process) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		text, err := os.ReadFile(path)
		_, after, _ := strings.Cut(string(text), ") ")
		return err != nil || !strings.HasPrefix(after, "T")
	})
}

func (p *process) resume(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

// terminate asks the process to stop and waits for it. The bound only ends a test that
// hangs.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.Process.Kill()
		<-p.ended
		t.Fatalf("%s did not stop\n%s", p.name, p.log)
	}
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stats returns what the process says of itself now.
func (p *process) stats(t *testing.T) event {
	t.Helper()
	before := p.count(evStats, "")
	p.say(t, "stats")
	var all []event
	poll(t, "the figures of "+p.name, func() bool {
		all = p.all(of(evStats, ""))
		return len(all) > before
	})
	return all[before]
}

// tellStats answers the command stats.
func tellStats(name string) {
	runtime.GC()
	runtime.GC() // what has a finalizer goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	journal(name, event{What: evStats, Goroutines: runtime.NumGoroutine(), Files: len(files), Heap: m.HeapAlloc})
}

// lines keeps the end of a log.
type lines struct {
	mu   sync.Mutex
	text []byte
}

const keptLog = 1 << 20

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*keptLog {
		l.text = append([]byte(nil), l.text[len(l.text)-keptLog:]...)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// tail is what a failed test shows.
func (l *lines) tail() string {
	text := l.String()
	return text[max(0, len(text)-16<<10):]
}

//go:build linux

package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/orbitkit/orbit/worker"
)

// A workerConfig is what a worker process is told.
type workerConfig struct {
	Name, URL, Token, Queue string
	Capacity                int           // default 4
	Guard                   string        // address of the guarded resource, for handlers that write
	Tap                     bool          // journal what is sent and what arrives
	Wait                    bool          // connect only when told "go"
	Insecure                bool          // plain http to an address that is not loopback
	MaxReconnect            time.Duration // default 50ms
	Drain, Stop             time.Duration // default 5s and 1s
}

// A laborer is the worker process.
type laborer struct {
	cfg      workerConfig
	resource *resource // nil without a guarded resource
	worker   *worker.Worker
	conns    atomic.Int64

	mu       sync.Mutex
	released map[string]chan struct{} // by task; closed when its handler may return
}

// workerMain is the automatic worker with one handler, which does what its payload says
// and tells of it.
func workerMain(text string) int {
	l := &laborer{cfg: configured[workerConfig](text), released: map[string]chan struct{}{}}
	if err := l.run(); err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		return 1
	}
	return 0
}

func (l *laborer) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if l.cfg.Guard != "" {
		var err error
		if l.resource, err = openResource(ctx, l.cfg.Guard); err != nil {
			return err
		}
		defer l.resource.close()
	}
	var err error
	if l.worker, err = worker.NewWorker(l.cfg.URL, l.cfg.Token, l.config()); err != nil {
		return err
	}
	connect := make(chan struct{})
	go commands(func(words []string) { l.command(words, connect) })
	l.tell(event{What: evReady})
	if l.cfg.Wait {
		<-connect
	}
	err = l.worker.Run(ctx)
	e := event{What: evDrained}
	if err != nil {
		e.Text = err.Error()
	}
	l.tell(e)
	return nil
}

func (l *laborer) tell(e event) { journal(l.cfg.Name, e) }

func (l *laborer) config() worker.Config {
	c := worker.Config{
		Queues:   []string{l.cfg.Queue},
		Capacity: cmp.Or(l.cfg.Capacity, 4),
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: handlerName, Version: handlerVersion}: l.handle,
			{Name: handlerName, Version: otherVersion}:   l.handle,
		},
		DrainTimeout: cmp.Or(l.cfg.Drain, 5*time.Second),
		StopTimeout:  cmp.Or(l.cfg.Stop, time.Second),
		MinReconnect: time.Millisecond,
		MaxReconnect: cmp.Or(l.cfg.MaxReconnect, 50*time.Millisecond),
		OnError:      func(err error) { l.tell(errorEvent(err)) },
		Log:          slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Network: worker.Network{
			AllowInsecure: l.cfg.Insecure, DialContext: l.dial,
			Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		},
	}
	return c
}

func errorEvent(err error) event {
	e := event{What: evError, Text: err.Error()}
	if stuck := (*worker.StuckError)(nil); errors.As(err, &stuck) {
		e.Kind, e.Task, e.Attempt = "stuck", stuck.TaskID, stuck.AttemptID
	}
	return e
}

// command does what the test says.
func (l *laborer) command(words []string, connect chan struct{}) {
	switch words[0] {
	case "go":
		close(connect)
	case "release":
		l.mu.Lock()
		close(l.gate(words[1]))
		l.mu.Unlock()
	case "stats":
		tellStats(l.cfg.Name)
	case "slots":
		text, err := json.Marshal(l.slots())
		if err != nil {
			panic(err)
		}
		l.tell(event{What: evSlots, Text: string(text)})
	}
}

// A slot is a worker.Slot with its cause in words.
type slot struct{ Task, Phase, Cause string }

func (l *laborer) slots() []slot {
	var all []slot
	for _, s := range l.worker.Slots() {
		one := slot{Task: s.TaskID, Phase: s.Phase}
		if s.Cause != nil {
			one.Cause = s.Cause.Error()
		}
		all = append(all, one)
	}
	return all
}

// gate returns what is closed when a task's handler may return. The lock is held.
func (l *laborer) gate(task string) chan struct{} {
	if l.released[task] == nil {
		l.released[task] = make(chan struct{})
	}
	return l.released[task]
}

// handle does what the payload says.
func (l *laborer) handle(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	var do work
	if err := json.Unmarshal(e.Task.Payload, &do); err != nil {
		return nil, worker.Failed(err)
	}
	about := event{Task: e.Task.ID, Attempt: e.AttemptID, Key: e.Task.ConcurrencyKey, Token: e.ConcurrencyToken}
	say := func(what, text string) {
		about.What, about.Text = what, text
		l.tell(about)
	}
	say(evStart, "")
	if do.Early {
		say(evWrite, l.resource.write(ctx, e, "early"))
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		e := about
		e.What, e.Text = evCancel, context.Cause(ctx).Error()
		l.tell(e)
	})
	err := l.labor(ctx, do, e.Task.ID)
	if !stop() {
		<-over // the cancel stands in the journal before the end
	}
	if err == nil && do.Write {
		say(evWrite, l.resource.write(context.WithoutCancel(ctx), e, ""))
	}
	if err != nil {
		say(evEnd, err.Error())
		return nil, err
	}
	say(evEnd, "")
	return json.RawMessage(`{"done":true}`), nil
}

// labor waits for what the payload says. It returns the cause of an end of ctx, unless
// the handler is one that does not care.
func (l *laborer) labor(ctx context.Context, do work, task string) error {
	var ended <-chan struct{}
	if !do.Ignore {
		ended = ctx.Done()
	}
	if do.Hold {
		l.mu.Lock()
		gate := l.gate(task)
		l.mu.Unlock()
		select {
		case <-gate:
		case <-ended:
		}
	}
	if do.MS > 0 {
		timer := time.NewTimer(time.Duration(do.MS) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
		}
	}
	if do.Late {
		return nil
	}
	return context.Cause(ctx)
}

// dial connects, and listens in if the test wants to know what is said when.
func (l *laborer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || !l.cfg.Tap {
		return conn, err
	}
	id := int(l.conns.Add(1))
	return &tapped{
		Conn: conn,
		out:  scanner{skipHead: true, each: func(text []byte) { l.overheard(id, evSent, text) }},
		in:   scanner{skipHead: true, each: func(text []byte) { l.overheard(id, evGot, text) }},
	}, nil
}

// overheard journals a message.
func (l *laborer) overheard(conn int, what string, text []byte) {
	m := parseMessage(text)
	l.tell(event{
		What: what, Kind: m.Type, ID: m.ID, Ref: m.Ref, Conn: conn, Attempt: m.Data.AttemptID,
		Text: cmp.Or(m.Data.Code, m.Data.Status), Lease: time.Duration(m.Data.LeaseMS) * time.Millisecond,
		Token: m.token(), Key: m.Data.Task.ConcurrencyKey, Task: m.Data.Task.ID,
	})
}

// A tapped connection is scanned in both directions. What is sent is noted before it
// leaves, and what arrives before the worker sees it.
type tapped struct {
	net.Conn
	out, in scanner
}

func (c *tapped) Write(p []byte) (int, error) {
	c.out.scan(p)
	return c.Conn.Write(p)
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.in.scan(p[:n])
	return n, err
}

// A workerProcess is a worker as a process.
type workerProcess struct{ *process }

// startWorker starts a worker that dials url, and waits until it is at work.
func (s *scene) startWorker(name, url string, options ...func(*workerConfig, *launch)) *workerProcess {
	s.Helper()
	cfg := workerConfig{Name: name, URL: url, Token: s.creds.Token, Queue: s.creds.QueueID}
	if s.guard != nil {
		cfg.Guard = s.guard.Address
	}
	l := launch{name: name, role: asWorker}
	for _, option := range options {
		option(&cfg, &l)
	}
	l.config = cfg
	p := s.launch(l)
	p.await(s.T, name+" to be at work", of(evReady, ""))
	return &workerProcess{p}
}

// release lets the handler of a task go on.
func (p *workerProcess) release(s *scene, task string) {
	s.Helper()
	p.say(s.T, "release", task)
}

// awaitStart waits until the handler of a task runs.
func (p *workerProcess) awaitStart(s *scene, task string) event {
	s.Helper()
	return p.await(s.T, "the handler of task "+task+" to run in "+p.name, of(evStart, task))
}

func tapping(c *workerConfig, _ *launch) { c.Tap = true }

func capacity(n int) func(*workerConfig, *launch) {
	return func(c *workerConfig, _ *launch) { c.Capacity = n }
}

// ofKind matches the messages of a type.
func ofKind(what, kind string) func(event) bool {
	return func(e event) bool { return e.What == what && e.Kind == kind }
}

//go:build linux

package faults

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A relayConfig is what a relay process is told.
type relayConfig struct {
	Name, Database        string
	URL, Token, Namespace string
	Lease                 time.Duration
	Halt                  *halt // default: none
}

// targetName is the task server in the messages of the tests.
const targetName = "shop"

// relayMain is a relay, as cmd/orbit-relay makes it, with short back-offs.
func relayMain(text string) int {
	cfg := configured[relayConfig](text)
	if err := runRelay(cfg); err != nil {
		fmt.Fprintf(os.Stderr, "relay: %v\n", err)
		return 1
	}
	return 0
}

func runRelay(cfg relayConfig) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := drivers.OpenExisting(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	var transport http.RoundTripper = &http.Transport{}
	if cfg.Halt != nil {
		cfg.Halt.name = cfg.Name
		if db, err = cfg.Halt.reopen(db, cfg.Database); err != nil {
			return err
		}
		transport = &haltingTransport{transport, cfg.Halt}
	}
	store, err := outbox.Open(db.Dialect(), db.Write(), db.Read())
	if err != nil {
		return err
	}
	r, err := newRelay(store, cfg, transport)
	if err != nil {
		return err
	}
	go commands(func([]string) {})
	journal(cfg.Name, event{What: evReady})
	return r.Run(ctx)
}

// newRelay makes a relay of one target.
func newRelay(store *outbox.Store, cfg relayConfig, transport http.RoundTripper) (*relay.Relay, error) {
	client, err := orbit.NewClient(cfg.URL, cfg.Token, orbit.ClientConfig{AllowInsecure: true, MinimalBatchAnswers: true, Transport: transport})
	if err != nil {
		return nil, err
	}
	return relay.New(store, []relay.Target{{Name: targetName, Client: client, NamespaceID: cfg.Namespace}}, relay.Config{
		Name: cfg.Name, Lease: cfg.Lease, SendTimeout: cfg.Lease / 2, StopTimeout: max(15*time.Second, cfg.Lease), Poll: 100 * time.Millisecond,
		RetryFirst: 20 * time.Millisecond, RetryMost: 300 * time.Millisecond,
		PauseFirst: 20 * time.Millisecond, PauseMost: 300 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// A halt is the step at which a relay process sends itself a signal, once: SIGKILL, or
// SIGSTOP, after which it goes on when it is continued.
type halt struct {
	At     string // part of a statement, "COMMIT", or "POST": a submit
	Since  string // only after a statement with this part
	After  bool   // when the step has had its effect, before the relay knows
	Signal syscall.Signal

	name string
	pool *sql.DB // on SQLite

	mu    sync.Mutex
	since bool
	done  bool
}

// reopen opens the same database again, with the halt in between.
func (h *halt) reopen(db *sqldb.DB, address string) (*sqldb.DB, error) {
	_, dsn, _ := strings.Cut(address, ":")
	if db.Dialect() == sqldb.SQLite {
		dsn = outbox.SQLiteDSN((&url.URL{Path: dsn}).Path)
	} else if strings.Contains(dsn, "?") {
		dsn += "&interpolateParams=true"
	} else {
		dsn += "?interpolateParams=true"
	}
	pool := sql.OpenDB(dbfault.Through(db.Write().Driver(), dsn, h.step))
	if db.Dialect() == sqldb.SQLite {
		pool.SetMaxOpenConns(1)
		h.pool = pool
	}
	return sqldb.New(db.Dialect(), pool, pool), nil
}

// step does one step of the relay, and halts before or after it if that is the one.
func (h *halt) step(text string, do func() error) error {
	if !h.meets(text) {
		return do()
	}
	if !h.After {
		h.now(text)
	}
	err := do()
	if h.After {
		h.now(text)
	}
	journal(h.name, event{What: evPast})
	return err
}

func (h *halt) meets(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Since == "" || strings.Contains(text, h.Since) {
		h.since = true
	}
	if h.done || !h.since || !strings.Contains(text, h.At) {
		return false
	}
	h.done = true
	return true
}

// now sends the signal. A thread may run on for a moment after a SIGSTOP. A process that
// is stopped amid a transaction on an SQLite file keeps everybody out: while a request is
// what halts, the one connection does nothing.
func (h *halt) now(text string) {
	if h.pool != nil && (text == http.MethodPost || text == http.MethodGet) {
		if conn, err := h.pool.Conn(context.Background()); err == nil {
			defer conn.Close()
		}
	}
	journal(h.name, event{What: evHalt})
	syscall.Kill(os.Getpid(), h.Signal)
	time.Sleep(50 * time.Millisecond)
}

type haltingTransport struct {
	http.RoundTripper
	halt *halt
}

func (t *haltingTransport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	err = t.halt.step(r.Method, func() error {
		resp, err = t.RoundTripper.RoundTrip(r)
		return err
	})
	return resp, err
}

// A relayProcess is a relay as a process.
type relayProcess struct {
	*process
	config relayConfig
}

// relayConfig is that of a relay which sends to url.
func (s *shop) relayConfig(name, url string, change ...func(*relayConfig)) relayConfig {
	cfg := relayConfig{Name: name, Database: s.business.Address, URL: url, Token: s.creds.Token, Namespace: s.creds.NamespaceID,
		Lease: cmp.Or(s.relayLease, 2*time.Second)}
	for _, c := range change {
		c(&cfg)
	}
	return cfg
}

// startRelay starts a relay and waits until it is at work.
func (s *shop) startRelay(name, url string, change ...func(*relayConfig)) *relayProcess {
	s.Helper()
	cfg := s.relayConfig(name, url, change...)
	p := s.launch(launch{name: name, role: asRelay, config: cfg})
	poll(s.T, name+" to be at work", func() bool { return p.count(evReady, "") > 0 || p.over() })
	return &relayProcess{p, cfg}
}

// stop ends the relay as an operator would; anything but exit code 0 fails the test.
func (r *relayProcess) stop(s *shop) {
	s.Helper()
	r.Process.Signal(syscall.SIGTERM) // one that was told before may have ended by now
	poll(s.T, r.name+" to stop", r.over)
	if !r.ProcessState.Success() {
		s.Errorf("after SIGTERM %s ended with %v, want exit code 0\n%s", r.name, r.ProcessState, r.log.tail())
	}
}

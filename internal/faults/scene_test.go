//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

const (
	handlerName    = "work"
	handlerVersion = "v1"
	otherVersion   = "v2" // the same, for tasks that compete in a lane of their own
	// usualLease is long enough for two busy cores and short enough to be waited for.
	usualLease = 3 * time.Second
)

// A scene is a database with nodes and workers on it.
type scene struct {
	*testing.T
	db    *dbtest.DB
	creds orbit.Credentials
	lease time.Duration // of its nodes, unless they are told otherwise
	guard *dbtest.DB    // the guarded resource, if openGuard was called

	mu        sync.Mutex
	processes []*process
	want      map[string]string // the state in which a task ends, by id
}

// onEngines runs f at the same time on every engine, each with a scene of its own.
func onEngines(t *testing.T, f func(s *scene)) {
	t.Helper()
	t.Parallel()
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		f(newScene(t, db))
	}, migrations.Server)
}

// newScene makes a scene on db. When the test ends it checks the database and the tasks
// while the nodes still run, then ends every process.
func newScene(t *testing.T, db *dbtest.DB) *scene {
	t.Helper()
	creds, err := server.Bootstrap(t.Context(), db.DB, server.BootstrapRequest{
		Application: "faults", Namespace: "default", Environment: "test", Queue: "work", WorkerAccess: true, Actor: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, db: db, creds: creds, lease: usualLease, want: map[string]string{}}
	t.Cleanup(func() {
		defer s.endAll()
		if !t.Failed() {
			s.verify()
			s.checkStates()
		}
	})
	return s
}

// verify holds the live database to its invariants.
func (s *scene) verify() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := server.Verify(ctx, s.db.DB)
	if err != nil || len(found) > 0 {
		s.Errorf("verify: %v\n%s", err, strings.Join(found, "\n"))
	}
}

// checkStates holds every task of the database to what the test expects of it.
func (s *scene) checkStates() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	states := map[string]string{}
	s.rows("SELECT id, state FROM task", nil, func(scan func(...any) error) error {
		var id sqldb.ID
		var state int
		err := scan(&id, &state)
		states[id.String()] = stateNames[state]
		return err
	})
	for id, state := range states {
		want, known := s.want[id]
		switch {
		case !known:
			s.Errorf("task %s is %s and was submitted by nobody here", id, state)
		case state != want:
			s.Errorf("task %s ended %s, want %s", id, state, want)
		}
	}
	if len(states) != len(s.want) {
		s.Errorf("%d tasks are stored, want %d", len(states), len(s.want))
	}
}

// stateNames are the states of tasks as they are stored.
var stateNames = [...]string{
	1: orbit.StateWaiting, 2: orbit.StateLeased, 3: orbit.StateRunning, 4: orbit.StateNeedsReview,
	5: orbit.StateSucceeded, 6: orbit.StateFailed, 7: orbit.StateCancelled,
}

// expect says that a task does not end SUCCEEDED.
func (s *scene) expect(id, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want[id] = state
}

// endAll ends every process: workers at once, nodes as an operator would, so that one that
// hangs or that the race detector complains of is noticed.
func (s *scene) endAll() {
	s.mu.Lock()
	all := s.processes
	s.mu.Unlock()
	for _, p := range all {
		if !p.over() && !p.isNode() {
			p.Process.Kill() // also one that is stopped
		}
	}
	for _, p := range all {
		if !p.over() && p.isNode() {
			p.Process.Signal(syscall.SIGCONT)
			p.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, p := range all {
		s.awaitEnd(p)
	}
	if s.Failed() {
		for _, p := range all {
			s.Logf("journal of %s:\n%s\nlog of %s:\n%s", p.name, p.text(), p.name, p.log.tail())
		}
	}
}

func (p *process) isNode() bool {
	for _, v := range p.Env {
		if strings.HasPrefix(v, asNode+"=") {
			return true
		}
	}
	return false
}

func (s *scene) awaitEnd(p *process) {
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
			p.Process.Kill()
			<-p.ended
		}
		s.Errorf("%s did not stop", p.name)
	}
	if ws := p.ProcessState.Sys().(syscall.WaitStatus); ws.Exited() && ws.ExitStatus() != 0 {
		s.Errorf("%s ended with %v", p.name, p.ProcessState)
	}
	if strings.Contains(p.log.String(), "DATA RACE") || strings.Contains(p.log.String(), "panic:") {
		s.Errorf("%s has a data race or a panic", p.name)
	}
}

// A work is the payload of a task: what its handler does.
type work struct {
	Early  bool `json:"early,omitempty"`  // writes to the guarded resource before anything else
	Hold   bool `json:"hold,omitempty"`   // goes on until it is released, or its context ends
	Ignore bool `json:"ignore,omitempty"` // with Hold: the end of the context changes nothing
	MS     int  `json:"ms,omitempty"`     // works for so long, unless its context ends
	Write  bool `json:"write,omitempty"`  // then writes to the guarded resource under its token
	Late   bool `json:"late,omitempty"`   // writes and succeeds though its context has ended
}

// An order is a task to submit.
type order struct {
	work
	key      string // concurrency key
	reconcil bool   // RECONCILE_ONLY instead of IDEMPOTENT
	timeout  time.Duration
	attempts uint64 // most attempts
	other    bool   // for the handler of the other version
}

// submit submits a task that is expected to end SUCCEEDED, and returns its id.
func (s *scene) submit(c *orbit.Client, o order) string {
	s.Helper()
	accepted, err := c.SubmitTask(s.Context(), sqldb.NewID().String(), s.request(o))
	if err != nil {
		s.Fatal(err)
	}
	s.expect(accepted.Task.ID, orbit.StateSucceeded)
	return accepted.Task.ID
}

// request is what submits an order.
func (s *scene) request(o order) orbit.SubmitTaskRequest {
	payload, err := json.Marshal(o.work)
	if err != nil {
		panic(err)
	}
	r := orbit.SubmitTaskRequest{
		QueueID: s.creds.QueueID, Handler: handlerName, HandlerVersion: handlerVersion, PayloadVersion: "v1", Payload: payload,
		ConcurrencyKey: o.key, RecoverySafety: orbit.RecoveryIdempotent,
		Retry: orbit.RetryPolicy{MaxAttempts: 20, InitialDelayMS: 10, MaxDelayMS: 10, AttemptTimeoutMS: 300_000},
	}
	if o.reconcil {
		r.RecoverySafety = orbit.RecoveryReconcileOnly
	}
	if o.other {
		r.HandlerVersion = otherVersion
	}
	if o.timeout > 0 {
		r.Retry.AttemptTimeoutMS = uint64(o.timeout.Milliseconds())
	}
	if o.attempts > 0 {
		r.Retry.MaxAttempts = o.attempts
	}
	return r
}

// awaitState waits until a task is in a state. It does not wait for what cannot come.
func (s *scene) awaitState(c *orbit.Client, id, state string) (task orbit.Task) {
	s.Helper()
	poll(s.T, fmt.Sprintf("task %s to be %s", id, state), func() bool {
		got, err := c.GetTask(s.Context(), id)
		task = got
		if err == nil && got.State != state && (got.Terminal() || got.State == orbit.StateNeedsReview) {
			s.Fatalf("task %s is %s, want %s; its attempts are %+v", id, got.State, state, s.attempts(c, id))
		}
		return err == nil && got.State == state
	})
	return task
}

// attempts returns the attempts of a task, the first first.
func (s *scene) attempts(c *orbit.Client, id string) []orbit.Attempt {
	s.Helper()
	page, err := c.ListAttempts(s.Context(), id, orbit.PageRequest{Limit: 100})
	if err != nil {
		s.Fatal(err)
	}
	all := page.Items
	if len(all) > 1 && all[0].Number > all[1].Number {
		for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
			all[i], all[j] = all[j], all[i]
		}
	}
	return all
}

// rows reads rows of the database directly.
func (s *scene) rows(query string, args []any, each func(scan func(...any) error) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := sqldb.EachRow(ctx, s.db.Read(), query, args, each); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

// count reads one number.
func (s *scene) count(query string, args ...any) (n int64) {
	s.Helper()
	s.rows(query, args, func(scan func(...any) error) error { return scan(&n) })
	return n
}

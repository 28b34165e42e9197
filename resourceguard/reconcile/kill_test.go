package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/reconcile"
)

// doomedVariable makes a process of this binary a reconciler that kills itself. It holds
// a doomed in JSON.
const doomedVariable = "ORBIT_RECONCILE_DOOMED"

// A doomed is a reconciler process that makes one pass and dies on its way.
type doomed struct {
	URL, Token, Queue, Database string
	At                          string // where: one of deaths
}

// deaths are the points between two steps of a decision with a retry.
var deaths = []string{"before the raise", "after the raise", "after the look-up", "before the review", "after the review", "before the retry", "after the retry"}

// telling are the deaths on every engine: in the store's part, and in the server's.
var telling = map[string]bool{"after the raise": true, "after the review": true}

func TestMain(m *testing.M) {
	if text := os.Getenv(doomedVariable); text != "" {
		var d doomed
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			panic(err)
		}
		fmt.Println("survived:", d.run(context.Background()))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func (d doomed) run(ctx context.Context) error {
	db, err := drivers.Open(ctx, d.Database)
	if err != nil {
		return err
	}
	guard, err := resourceguard.New(db.Dialect(), func(context.Context, string, string) error { return nil }, resourceguard.Config{})
	if err != nil {
		return err
	}
	client, err := orbit.NewClient(d.URL, d.Token, orbit.ClientConfig{Transport: dying{d}})
	if err != nil {
		return err
	}
	store := dyingStore{reconcile.NewStore(guard, db.Write()), d}
	rules := map[reconcile.Handler]reconcile.Rule{guarded: {Absent: reconcile.Retry, Store: func(string) reconcile.Store { return store }}}
	r, err := reconcile.New(client, []string{d.Queue}, rules, reconcile.Config{})
	if err != nil {
		return err
	}
	_, err = r.Once(ctx)
	return err
}

// reach ends the process, as a crash would, if it is to die here.
func (d doomed) reach(point string) {
	if d.At == point {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

type dyingStore struct {
	reconcile.Store
	d doomed
}

func (s dyingStore) Raise(ctx context.Context, f resourceguard.Fence) error {
	s.d.reach("before the raise")
	err := s.Store.Raise(ctx, f)
	s.d.reach("after the raise")
	return err
}

func (s dyingStore) Lookup(ctx context.Context, ns, key, op string) (resourceguard.Record, bool, error) {
	record, there, err := s.Store.Lookup(ctx, ns, key, op)
	s.d.reach("after the look-up")
	return record, there, err
}

type dying struct{ d doomed }

func (t dying) RoundTrip(r *http.Request) (*http.Response, error) {
	_, act, command := strings.Cut(r.URL.Path, ":")
	if command {
		t.d.reach("before the " + act)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if command {
		t.d.reach("after the " + act)
	}
	return resp, err
}

// A reconciler killed between any two of its steps leaves nothing undone and nothing done
// twice: the next one decides what was not decided, and makes the retry that is owed.
func isMadeUpForAfterAKill(s *scene) {
	for i, at := range deaths {
		if s.engine != dbtest.SQLite && !telling[at] {
			continue
		}
		task := s.submit(fmt.Sprint("kill", i), work{}, guarded)
		text, err := json.Marshal(doomed{s.url, s.creds.Token, s.creds.QueueID, s.table.Address, at})
		if err != nil {
			s.Fatal(err)
		}
		cmd := exec.CommandContext(s.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), doomedVariable+"="+string(text))
		if out, _ := cmd.CombinedOutput(); !strings.HasPrefix(cmd.ProcessState.String(), "signal: killed") {
			s.Fatalf("%s: %v\n%s", at, cmd.ProcessState, out)
		}
		for range 2 { // the second has nothing to do
			if _, err := s.once(s.client, s.store(), reconcile.Retry, reconcile.Config{}); err != nil {
				s.Fatalf("%s: %v", at, err)
			}
		}
		s.state(task.ID, orbit.StateFailed)
		retries := s.retriesOf(task)
		if len(retries) != 1 {
			s.Fatalf("%s: %d retries, want 1", at, len(retries))
		}
		s.await(retries[0], orbit.StateSucceeded)
		if n := s.taken(task.ID); n != 1 {
			s.Errorf("%s: %d writes, want 1", at, n)
		}
		s.review(task.ID)
	}
}

// A lossy carries requests and loses answers of commands.
type lossy struct {
	lose map[string]int      // answers, by command
	seen map[string][]string // keys, by command
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	_, act, command := strings.Cut(r.URL.Path, ":")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if !command || err != nil {
		return resp, err
	}
	l.seen[act] = append(l.seen[act], r.Header.Get(orbit.HeaderIdempotencyKey))
	if len(l.seen[act]) <= l.lose[act] {
		resp.Body.Close()
		return nil, syscall.ECONNRESET
	}
	return resp, nil
}

// A review and a retry whose answers are lost are sent again under their keys. Nothing is
// reported before there is an answer.
func TestALostAnswerIsAskedForAgain(t *testing.T) { // REF-REV-002
	s := newScene(t, dbtest.SQLite)
	task := s.submit("key", work{}, guarded)
	few := &lossy{lose: map[string]int{"review": 1, "retry": 1}, seen: map[string][]string{}}
	found, err := s.once(s.connect(few), s.store(), reconcile.Retry, reconcile.Config{})
	if err != nil || found[task.ID].Outcome != reconcile.Retried || len(s.retriesOf(task)) != 1 {
		s.Fatalf("found %+v, %v, %d retries; want retried once", found[task.ID], err, len(s.retriesOf(task)))
	}
	for act, keys := range few.seen {
		if len(keys) != 2 || keys[0] != keys[1] {
			s.Errorf("%s was sent under the keys %q, want the same twice", act, keys)
		}
	}

	for _, absent := range []reconcile.Absent{reconcile.Fail, reconcile.Retry} {
		other := s.submit(fmt.Sprint("other", absent), work{}, guarded)
		all := &lossy{lose: map[string]int{"review": 100}, seen: map[string][]string{}}
		observed := map[string]reconcile.Finding{}
		r := s.reconciler(s.connect(all), s.store(), absent, reconcile.Config{Observer: func(f reconcile.Finding) { observed[f.TaskID] = f }})
		if _, err := r.Once(s.Context()); err == nil || observed[other.ID].Outcome != reconcile.Undecided {
			s.Fatalf("found %+v, %v; want undecided", observed[other.ID], err)
		}
		s.state(other.ID, orbit.StateFailed) // it was done; nobody has said so
		all.lose = nil
		clear(observed)
		if _, err := r.Once(s.Context()); err != nil {
			s.Fatal(err)
		}
		want := map[reconcile.Absent]reconcile.Outcome{reconcile.Retry: reconcile.Retried}[absent]
		if n := len(s.retriesOf(other)); observed[other.ID].Outcome != want || absent == reconcile.Retry != (n == 1) {
			s.Errorf("found %+v, %d retries; want %q", observed[other.ID], n, want)
		}
	}
}

// A rerouted sends what is asked of one task to a task that there is not.
type rerouted string

func (id rerouted) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Path = strings.Replace(r.URL.Path, "/tasks/"+string(id), "/tasks/"+strings.Repeat("0", 32), 1)
	return http.DefaultTransport.RoundTrip(r)
}

// A chain of repeats is followed to its root, which names the operation, and is not
// lengthened without end. A root that is gone names nothing.
func TestAChainOfRetriesIsFollowedToItsRoot(t *testing.T) { // AMB-073, TOK-017
	s := newScene(t, dbtest.SQLite)
	root := s.submit("key", work{Again: true}, guarded)
	at := func(n int) orbit.Task { // the newest task of a chain with n repeats
		t.Helper()
		newest := root
		for range n {
			retries := s.retriesOf(newest)
			if len(retries) != 1 {
				t.Fatalf("%d retries of a task, want 1", len(retries))
			}
			newest.ID = retries[0]
		}
		return s.awaitReview(newest.ID)
	}
	pass := func(want reconcile.Finding, client *orbit.Client) {
		t.Helper()
		found, err := s.once(client, s.store(), reconcile.Retry, reconcile.Config{MaxRetries: 2})
		if got := found[want.TaskID]; err != nil || got.Outcome != want.Outcome || got.Reason != want.Reason {
			t.Fatalf("found %+v, %v; want %+v", got, err, want)
		}
	}
	pass(reconcile.Finding{TaskID: at(0).ID, Outcome: reconcile.Retried}, s.client)
	pass(reconcile.Finding{TaskID: at(1).ID, Outcome: reconcile.Left, Reason: reconcile.NoRoot}, s.connect(rerouted(root.ID)))
	pass(reconcile.Finding{TaskID: at(1).ID, Outcome: reconcile.Retried}, s.client)
	last := at(2)
	pass(reconcile.Finding{TaskID: last.ID, Outcome: reconcile.Failed}, s.client)
	if got := s.review(last.ID).Evidence; got["operation"] != root.ID || got["then"] != nil {
		t.Errorf("evidence %v, want the operation of the root and no retry", got)
	}
}

// Run stops cleanly while the server is away, and waits longer and longer.
func TestRunStopsWhileTheServerIsAway(t *testing.T) {
	client, err := orbit.NewClient("http://127.0.0.1:1", "token", orbit.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := resourceguard.NewMemory(func(context.Context, string, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	rules := map[reconcile.Handler]reconcile.Rule{guarded: {Absent: reconcile.Retry, Store: func(string) reconcile.Store { return memory }}}
	r, err := reconcile.New(client, []string{strings.Repeat("a", 32)}, rules, reconcile.Config{RetryFirst: time.Millisecond, RetryMost: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Once(t.Context()); err == nil {
		t.Error("Once has no error without a server")
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := r.Run(ctx); err != nil {
		t.Errorf("Run = %v after it was told to stop, want nil", err)
	}
}

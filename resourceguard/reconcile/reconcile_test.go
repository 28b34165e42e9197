package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/reconcile"
)

// The reconciler from end to end: a task server, a worker and a guarded table in a
// database of its own.
func TestReconcile(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newScene(t, engine)
			s.try("AWriterThatStillRunsIsShutOutOrFound", shutsOutWhoStillRuns)   // TOK-017, RG-001, RG-003
			s.try("TheRaiseWaitsForAnOpenTransaction", waitsForAnOpenTransaction) // TOK-017, RG-006
			s.try("APersonWhoWasFasterIsNotOverruled", overrulesNobody)           // REF-REV-002, STATE-015
			s.try("AKilledReconcilerIsMadeUpFor", isMadeUpForAfterAKill)          // TOK-017, REF-REV-002, IDEM-017
			s.try("WhatIsProvenIsDecidedAndTheRestIsLeft", decidesWhatIsProven)   // TOK-017, REF-REV-002, AMB-073, RG-011
		})
	}
}

// Two reconcilers at one time close what is proven, once and with its evidence, and leave
// the rest to people.
func decidesWhatIsProven(s *scene) {
	applied := s.submit("a", work{Write: true}, guarded)
	absent := s.submit("b", work{}, guarded)
	left := map[string]reconcile.Reason{
		s.submit("", work{}, guarded).ID:                            reconcile.Keyless, // and no write: it has nothing to present
		s.submit("c", work{Write: true}, forgotten).ID:              reconcile.NoRule,
		s.submit("elsewhere", work{Write: true}, guarded).ID:        reconcile.NoStore,
		s.submit("forbidden", work{}, guarded).ID:                   reconcile.Refused,
		s.submit("d", work{Write: true, As: `"other"`}, guarded).ID: reconcile.OtherContent,
	}
	var mu sync.Mutex
	reasons, decisions := map[string]reconcile.Reason{}, map[reconcile.Outcome]int{}
	observe := func(f reconcile.Finding) {
		mu.Lock()
		defer mu.Unlock()
		reasons[f.TaskID] = f.Reason
		decisions[f.Outcome]++
	}
	ctx, stop := context.WithCancel(s.Context())
	var running sync.WaitGroup
	for range 2 {
		r := s.reconciler(s.client, s.store(), reconcile.Retry, reconcile.Config{Interval: 20 * time.Millisecond, Observer: observe})
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				s.Errorf("Run = %v", err)
			}
		})
	}
	done := s.awaitDecision(applied.ID, orbit.StateSucceeded)
	failed := s.awaitDecision(absent.ID, orbit.StateFailed)
	for len(s.retriesOf(absent)) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	retries := s.retriesOf(absent)
	s.await(retries[0], orbit.StateSucceeded)
	stop()
	running.Wait()

	if string(done.Result) != `{"taken":1}` || done.EffectUncertain || failed.EffectUncertain {
		s.Errorf("result %s, uncertain %t %t; want the receipt, and certainty", done.Result, done.EffectUncertain, failed.EffectUncertain)
	}
	if n, m := s.taken(applied.ID), s.taken(absent.ID); n != 1 || m != 1 || len(retries) != 1 {
		s.Errorf("%d and %d writes, %d retries; want one each", n, m, len(retries))
	}
	attempts, err := s.client.ListAttempts(s.Context(), absent.ID, orbit.PageRequest{})
	if err != nil {
		s.Fatal(err)
	}
	a := attempts.Items[0]
	want := map[string]any{"attempt_id": a.ID, "fence_token": fmt.Sprint(a.ConcurrencyToken + 1), "operation": absent.ID, "applied": false, "then": "retry"}
	if got := s.review(absent.ID); fmt.Sprint(got.Evidence) != fmt.Sprint(want) || got.Source != "orbit-reconcile" {
		s.Errorf("evidence %v from %q, want %v", got.Evidence, got.Source, want)
	}
	if got := s.review(applied.ID).Evidence; got["applied"] != true || got["applied_token"] != "1" || got["content_sha256"] == "" {
		s.Errorf("evidence of what was applied: %v", got)
	}
	for id, reason := range left {
		s.state(id, orbit.StateNeedsReview)
		if reasons[id] != reason {
			s.Errorf("a task is left because of %q, want %q", reasons[id], reason)
		}
	}
	if decisions[reconcile.Succeeded]+decisions[reconcile.Retried] < 2 || decisions[reconcile.Undecided] != 0 {
		s.Errorf("outcomes %v", decisions)
	}
}

// awaitDecision waits for a state that follows NEEDS_REVIEW, which WaitTask does not pass.
func (s *scene) awaitDecision(id, state string) orbit.Task {
	s.Helper()
	for {
		task, err := s.client.GetTask(s.Context(), id)
		if err != nil {
			s.Fatal(err)
		}
		if task.State == state {
			return task
		}
		if task.Terminal() {
			s.Fatalf("task is %s, want %s", task.State, state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A hooked store calls functions around the raise.
type hooked struct {
	reconcile.Store
	before, after func()
}

func (h hooked) Raise(ctx context.Context, f resourceguard.Fence) error {
	if h.before != nil {
		h.before()
	}
	err := h.Store.Raise(ctx, f)
	if h.after != nil {
		h.after()
	}
	return err
}

// An attempt that is over and still runs writes after the raise, and is refused: what the
// look-up then finds absent stays absent. One that writes just before is found.
func shutsOutWhoStillRuns(s *scene) {
	for _, early := range []bool{false, true} {
		task := s.submit(fmt.Sprintf("still-%t", early), work{Hold: true}, guarded)
		held, let := s.hold(task.ID)
		var wrote string
		write := func() { close(let); wrote = <-held }
		store, want, writes := hooked{Store: s.store(), after: write}, orbit.StateFailed, 0
		if early {
			store, want, writes = hooked{Store: s.store(), before: write}, orbit.StateSucceeded, 1
		}
		if _, err := s.once(s.client, store, reconcile.Fail, reconcile.Config{}); err != nil {
			s.Fatal(err)
		}
		s.state(task.ID, want)
		if stale := strings.Contains(wrote, "stale"); stale == early || s.taken(task.ID) != writes {
			s.Errorf("early %t: the write ended with %q and is there %d times", early, wrote, s.taken(task.ID))
		}
	}
}

// A write that is done but not committed holds the raise up until its transaction has
// ended, and then counts.
func waitsForAnOpenTransaction(s *scene) {
	task := s.submit("open", work{}, guarded)
	attempts, err := s.client.ListAttempts(s.Context(), task.ID, orbit.PageRequest{})
	if err != nil {
		s.Fatal(err)
	}
	tx, err := s.table.Reopen(s.T).Write().BeginTx(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	defer tx.Rollback()
	_, err = s.guard.Apply(s.Context(), tx, resourceguard.Write{
		Namespace: task.NamespaceID, Key: "open", Token: attempts.Items[0].ConcurrencyToken, Attempt: attempts.Items[0].ID,
		Operation: task.ID, Content: task.Payload,
	}, func(context.Context, resourceguard.Tx) ([]byte, error) { return nil, nil })
	if err != nil {
		s.Fatal(err)
	}
	var committing sync.WaitGroup
	store := hooked{Store: s.store(), before: func() {
		committing.Go(func() {
			time.Sleep(20 * time.Millisecond) // the raise mostly waits by now; the verdict is the same if not
			if err := tx.Commit(); err != nil {
				s.Errorf("commit: %v", err)
			}
		})
	}}
	_, err = s.once(s.client, store, reconcile.Fail, reconcile.Config{})
	committing.Wait()
	if err != nil {
		s.Fatal(err)
	}
	s.state(task.ID, orbit.StateSucceeded)
}

// A person who decides while the reconciler looks is not overruled, nor is a cancel that
// comes in between passed over.
func overrulesNobody(s *scene) {
	task := s.submit("person", work{}, guarded)
	faster := func() {
		_, err := s.client.ReviewTask(s.Context(), task.ID, "person", orbit.ReviewTaskRequest{
			ExpectedRevision: task.Revision, Decision: orbit.StateSucceeded, Note: "I have seen it", Source: "person",
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	found, err := s.once(s.client, hooked{Store: s.store(), after: faster}, reconcile.Retry, reconcile.Config{})
	if err != nil || found[task.ID].Outcome != reconcile.Overtaken {
		s.Errorf("found %+v, %v; want overtaken", found[task.ID], err)
	}
	s.state(task.ID, orbit.StateSucceeded)
	if got := s.review(task.ID); got.Source != "person" || len(s.retriesOf(task)) != 0 {
		s.Errorf("review of %q, %d retries; want the person's and none", got.Source, len(s.retriesOf(task)))
	}

	cancelled := s.submit("cancel", work{}, guarded)
	ask := func() {
		_, err := s.client.CancelTask(s.Context(), cancelled.ID, "cancel", orbit.CancelTaskRequest{ExpectedRevision: cancelled.Revision, Reason: "not wanted any more"})
		if err != nil {
			s.Fatal(err)
		}
	}
	found, err = s.once(s.client, hooked{Store: s.store(), after: ask}, reconcile.Retry, reconcile.Config{})
	if err != nil || found[cancelled.ID].Outcome != reconcile.Overtaken {
		s.Errorf("found %+v, %v; want overtaken", found[cancelled.ID], err)
	}
	found, err = s.once(s.client, s.store(), reconcile.Retry, reconcile.Config{})
	if err != nil || found[cancelled.ID].Outcome != reconcile.Failed || len(s.retriesOf(cancelled)) != 0 {
		s.Errorf("found %+v, %v; want failed without a retry: its cancel was asked for", found[cancelled.ID], err)
	}
}

// What may have been pruned proves nothing by its absence, a chain of repeats ends, and a
// root that cannot be read names no operation.
func TestAbsenceThatProvesNothingIsLeft(t *testing.T) { // AMB-073
	s := newScene(t, dbtest.SQLite)
	old := s.submit("old", work{}, guarded)
	found, err := s.once(s.client, s.store(), reconcile.Fail, reconcile.Config{MaxAge: 1})
	if err != nil || found[old.ID].Reason != reconcile.TooOld {
		t.Errorf("found %+v, %v; want too old", found[old.ID], err)
	}
	s.state(old.ID, orbit.StateNeedsReview)
}

// A stuck store answers to nothing but the end of its context.
type stuck struct{ reconcile.Store }

func (s stuck) Raise(ctx context.Context, f resourceguard.Fence) error {
	if f.Key == "stuck" {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Raise(ctx, f)
}

// A store that does not answer for one key leaves its task undecided, is told of, and holds
// up no other.
func TestAStuckStoreHoldsUpNoOtherTask(t *testing.T) {
	s := newScene(t, dbtest.SQLite)
	other := s.submit("other", work{}, guarded)
	task := s.submit("stuck", work{}, guarded) // the newest comes first
	found, err := s.once(s.client, stuck{s.store()}, reconcile.Fail, reconcile.Config{Timeout: 200 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "Config.Timeout") || found[task.ID].Outcome != reconcile.Undecided {
		t.Errorf("found %+v, %v; want undecided because of the timeout", found[task.ID], err)
	}
	if found[other.ID].Outcome != reconcile.Failed {
		t.Errorf("found %+v, want failed", found[other.ID])
	}
	s.state(task.ID, orbit.StateNeedsReview)
}

// An unfenced history shows one more attempt, which ended unknown and has no fence_token.
type unfenced struct{ http.RoundTripper }

func (u unfenced) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.RoundTripper.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/attempts") {
		return resp, err
	}
	defer resp.Body.Close()
	var page struct {
		RequestID string `json:"request_id"`
		Data      struct {
			Items []map[string]json.RawMessage `json:"items"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return nil, err
	}
	other := maps.Clone(page.Data.Items[0])
	delete(other, "fence_token")
	page.Data.Items = append(page.Data.Items, other)
	text, err := json.Marshal(page)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return resp, err
}

// No raise shuts out an attempt that ended unknown without a fence_token, whatever the others have.
func TestAnUnknownAttemptWithoutAFenceTokenIsLeft(t *testing.T) { // TOK-017
	s := newScene(t, dbtest.SQLite)
	task := s.submit("unfenced", work{}, guarded)
	client := s.connect(unfenced{http.DefaultTransport})
	found, err := s.once(client, s.store(), reconcile.Fail, reconcile.Config{})
	if err != nil || found[task.ID].Reason != reconcile.NoFence {
		t.Errorf("found %+v, %v; want no fence", found[task.ID], err)
	}
	s.state(task.ID, orbit.StateNeedsReview)
}

// A rude store does not look at its context, or panics.
type rude struct {
	reconcile.Store
	come chan struct{}
	*sync.WaitGroup
}

func (r rude) Raise(ctx context.Context, f resourceguard.Fence) error {
	switch f.Key {
	case "deaf":
		defer r.Done()
		<-r.come
	case "panics":
		panic("canary")
	}
	return r.Store.Raise(ctx, f)
}

// A store that ignores the end of its context or panics leaves its task undecided and ends
// no pass. Calls that do not come back are no more than a few, however many passes there are.
func TestARudeStoreHoldsUpNoOtherTask(t *testing.T) {
	s := newScene(t, dbtest.SQLite)
	other := s.submit("other", work{}, guarded)
	deaf := s.submit("deaf", work{}, guarded)
	panics := s.submit("panics", work{}, guarded)
	calls := new(sync.WaitGroup)
	come := make(chan struct{})
	calls.Add(8)
	store, sound := &rude{s.store(), come, calls}, &rude{s.store(), come, calls}
	found := map[string]reconcile.Finding{}
	r, err := reconcile.New(s.client, []string{s.creds.QueueID}, map[reconcile.Handler]reconcile.Rule{guarded: {
		Absent: reconcile.Fail, Store: func(key string) reconcile.Store {
			if key == "other" {
				return sound
			}
			return store
		},
	}}, reconcile.Config{Timeout: 100 * time.Millisecond, Observer: func(f reconcile.Finding) { found[f.TaskID] = f }})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // a ninth call would make Done panic
		if _, err := r.Once(t.Context()); err == nil || strings.Contains(err.Error(), "canary") {
			t.Fatalf("Once = %v, want an error that does not show the panic's value", err)
		}
		if found[deaf.ID].Outcome != reconcile.Undecided || found[panics.ID].Outcome != reconcile.Undecided {
			t.Fatalf("found %+v and %+v, want undecided", found[deaf.ID], found[panics.ID])
		}
	}
	if err := found[deaf.ID].Err; err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("in the end the store is asked no more, but %v", err)
	}
	s.state(other.ID, orbit.StateFailed)
	close(come)
	calls.Wait()
}

// Two tasks repeat one failed task by hand, and so have one operation. The later one has
// fenced the key and may yet write: that the earlier one did not proves nothing about it.
func TestAnOperationThatAnotherRepeatMayYetWriteIsLeft(t *testing.T) { // TOK-017, AMB-073
	s := newScene(t, dbtest.SQLite)
	first := s.submit("twice", work{Again: true}, guarded)
	if _, err := s.once(s.client, s.store(), reconcile.Fail, reconcile.Config{}); err != nil {
		t.Fatal(err)
	}
	first = s.state(first.ID, orbit.StateFailed)
	repeat := func(key string) orbit.Task {
		accepted, err := s.client.RetryTask(t.Context(), first.ID, key, orbit.RetryTaskRequest{ExpectedRevision: first.Revision, Reason: "again"})
		if err != nil {
			t.Fatal(err)
		}
		return s.awaitReview(accepted.Task.ID)
	}
	earlier, later := repeat("b"), repeat("c")
	if err := s.store().Raise(t.Context(), resourceguard.Fence{
		Namespace: later.NamespaceID, Key: "twice", Token: 1000, Attempt: "of a third repeat",
	}); err != nil {
		t.Fatal(err)
	}
	found, err := s.once(s.client, s.store(), reconcile.Fail, reconcile.Config{})
	if err != nil || found[earlier.ID].Reason != reconcile.Superseded || found[later.ID].Reason != reconcile.Superseded {
		t.Errorf("found %+v and %+v, %v; want both superseded", found[earlier.ID], found[later.ID], err)
	}
	alone := s.submit("once", work{}, guarded)
	if err := s.store().Raise(t.Context(), resourceguard.Fence{Namespace: alone.NamespaceID, Key: "once", Token: 1000, Attempt: "of another task"}); err != nil {
		t.Fatal(err)
	}
	found, err = s.once(s.client, s.store(), reconcile.Fail, reconcile.Config{})
	if err != nil || found[alone.ID].Outcome != reconcile.Failed {
		t.Errorf("found %+v, %v; want failed: nothing repeats it", found[alone.ID], err)
	}
}

func TestConfigurationIsHeldToItsRules(t *testing.T) {
	client, err := orbit.NewClient("http://127.0.0.1:1", "token", orbit.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := resourceguard.NewMemory(func(context.Context, string, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	queues := []string{strings.Repeat("a", 32)}
	rule := func(h reconcile.Handler, store reconcile.Store, absent reconcile.Absent) map[reconcile.Handler]reconcile.Rule {
		r := reconcile.Rule{Absent: absent}
		if store != nil {
			r.Store = func(string) reconcile.Store { return store }
		}
		return map[reconcile.Handler]reconcile.Rule{h: r}
	}
	good := rule(guarded, memory, reconcile.Fail)
	for _, c := range []struct {
		want   string
		client *orbit.Client
		queues []string
		rules  map[reconcile.Handler]reconcile.Rule
		cfg    reconcile.Config
	}{
		{"client", nil, queues, good, reconcile.Config{}},
		{"NewClient", &orbit.Client{}, queues, good, reconcile.Config{}},
		{"queues", client, nil, good, reconcile.Config{}},
		{"queue id", client, []string{"orders"}, good, reconcile.Config{}},
		{"rules", client, queues, nil, reconcile.Config{}},
		{"a name and a version", client, queues, rule(reconcile.Handler{Name: "x"}, memory, reconcile.Fail), reconcile.Config{}},
		{"must have a Store", client, queues, rule(guarded, nil, reconcile.Fail), reconcile.Config{}},
		{"Fail or Retry", client, queues, rule(guarded, memory, 0), reconcile.Config{}},
		{"Interval", client, queues, good, reconcile.Config{Interval: -1}},
		{"Timeout", client, queues, good, reconcile.Config{Timeout: -1}},
		{"RetryFirst", client, queues, good, reconcile.Config{RetryFirst: time.Hour}},
		{"MaxAge", client, queues, good, reconcile.Config{MaxAge: orbit.IdempotencyRetention}},
		{"MaxRetries", client, queues, good, reconcile.Config{MaxRetries: 21}},
		{"Source", client, queues, good, reconcile.Config{Source: strings.Repeat("x", 129)}},
	} {
		if _, err := reconcile.New(c.client, c.queues, c.rules, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New = %v, want an error that names %s", err, c.want)
		}
	}
	if _, err := reconcile.New(client, queues, good, reconcile.Config{}); err != nil {
		t.Errorf("New = %v for the defaults", err)
	}
}

package dispatch_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/task"
)

// running submits x, claims it and starts it.
func running(t *testing.T, w world, n node, x spec) (dispatch.Ref, dispatch.Grant) {
	t.Helper()
	w.Submit(x)
	taker := w.Taker(1, x.Lane())
	g := claimOne(t, n, taker, x.Lane())
	ref := refOf(taker, g)
	mustStart(t, n, ref)
	return ref, g
}

func TestStartConfirmsOnceAndRepeats(t *testing.T) { // WRK-012, STATE-005
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), AttemptTimeout: 7 * time.Second}
		id := w.Submit(x)
		taker := w.Taker(1, x.Lane())
		ref := refOf(taker, claimOne(t, n, taker, x.Lane()))
		got, err := n.Start(t.Context(), []dispatch.Ref{ref, ref})
		if err != nil {
			t.Fatalf("Start = %v", err)
		}
		got = append(got, start(t, n, ref))
		for i, s := range got {
			if s.Refusal != nil || s.Timeout > 7*time.Second || s.Timeout < 5*time.Second || s.Lease != s.Timeout {
				t.Errorf("start %d = %+v, want a timeout of at most 7s and a lease that ends with it", i, s)
			}
		}
		if s := w.Task(id); s.State != "RUNNING" || s.Revision != 3 || s.Started != 1 || s.Event != task.EventStarted {
			t.Errorf("task = %+v, want it started once", s)
		}
	})
}

func TestOnlyTheProcessThatHoldsAnAttemptIsHeard(t *testing.T) { // TOK-012: knowing its identity from the history gives no right
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		ref, _ := running(t, w, n, spec{Queue: w.NewQueue("q")})
		wrong := []dispatch.Ref{ref, ref, ref, ref}
		wrong[0].Process, wrong[1].Namespace, wrong[2].Epoch, wrong[3].Attempt = sqldb.NewID(), w.NewNamespace("other"), 2, sqldb.NewID()
		for i, r := range wrong {
			if got := finish(t, n, success(r)); got.Refusal == nil || got.Refusal.Code != "NOT_FOUND" {
				t.Errorf("finish by stranger %d = %+v, want NOT_FOUND", i, got)
			}
			if got := start(t, n, r); got.Refusal == nil || got.Refusal.Code != "NOT_FOUND" {
				t.Errorf("start by stranger %d = %+v, want NOT_FOUND", i, got)
			}
			if got, err := n.Renew(t.Context(), []dispatch.Renewal{{Ref: r}}); err != nil || got[0].Refusal == nil {
				t.Errorf("renew by stranger %d = %+v, %v", i, got, err)
			}
			if got, err := n.Return(t.Context(), []dispatch.Ref{r}); err != nil || got[0].Refusal == nil {
				t.Errorf("return by stranger %d = %+v, %v", i, got, err)
			}
			if got, err := n.Resume(t.Context(), []dispatch.Ref{r}); err != nil || got[0].Status != wire.ResumeLost {
				t.Errorf("resume by stranger %d = %+v, %v", i, got, err)
			}
		}
	})
}

// One row per outcome that a worker can report (REF-RETRY-001, REF-RETRY-003, STATE-007…013).
func TestFinishSendsTheTaskWhereItsOutcomeSays(t *testing.T) {
	retry := spec{MaxAttempts: 3, InitialDelay: time.Second, MaxDelay: time.Minute}
	safe := retry
	safe.Idempotent = true
	short := retry
	short.Timeout, short.InitialDelay = 10*time.Second, 20*time.Second
	cases := []struct {
		name      string
		spec      spec
		outcome   task.Outcome
		retryable bool
		cancel    bool
		state     string
		event     string
		reason    string
		uncertain bool
	}{
		{name: "success", outcome: task.OutcomeSucceeded, state: "SUCCEEDED", event: task.EventSucceeded},
		{name: "success after a cancel intent", outcome: task.OutcomeSucceeded, cancel: true, state: "SUCCEEDED", event: task.EventSucceeded},
		{name: "final failure", spec: retry, outcome: task.OutcomeFailed, state: "FAILED", event: task.EventFailed},
		{name: "retryable failure", spec: retry, outcome: task.OutcomeFailed, retryable: true, state: "WAITING", event: task.EventRetryWaiting},
		{name: "retryable failure, one attempt", outcome: task.OutcomeFailed, retryable: true, state: "FAILED", event: task.EventFailed, reason: "attempts_used"},
		{name: "retryable failure, no time", spec: short, outcome: task.OutcomeFailed, retryable: true, state: "FAILED", event: task.EventFailed, reason: "no_time_left"},
		{name: "retryable failure after a cancel intent", spec: retry, outcome: task.OutcomeFailed, retryable: true, cancel: true, state: "FAILED", event: task.EventFailed, reason: "cancel_requested"},
		{name: "unknown", spec: retry, outcome: task.OutcomeUnknown, state: "NEEDS_REVIEW", event: task.EventNeedsReview, uncertain: true},
		{name: "unknown, idempotent", spec: safe, outcome: task.OutcomeUnknown, state: "WAITING", event: task.EventRetryWaiting, uncertain: true},
		{name: "unknown, idempotent, one attempt", spec: spec{Idempotent: true}, outcome: task.OutcomeUnknown, state: "NEEDS_REVIEW", event: task.EventNeedsReview, reason: "attempts_used", uncertain: true},
		{name: "unknown after a cancel intent", spec: safe, outcome: task.OutcomeUnknown, cancel: true, state: "NEEDS_REVIEW", event: task.EventNeedsReview, reason: "cancel_requested", uncertain: true},
		{name: "clean stop", spec: retry, outcome: task.OutcomeCancelled, cancel: true, state: "CANCELLED", event: task.EventCancelled},
	}
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		for _, c := range cases {
			c.spec.Queue, c.spec.Key = w.NewQueue(c.name), c.name
			ref, g := running(t, w, n, c.spec)
			if c.cancel {
				w.Exec("UPDATE task SET cancel_requested_at = ? WHERE id = ?", w.Now(), g.Task)
			}
			before := w.Now()
			f := dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: c.outcome, Retryable: c.retryable, Error: []byte("why")}
			if got := finish(t, n, f); got.Status != wire.FinishRecorded || got.TaskState != c.state {
				t.Errorf("%s: finish = %+v (%+v), want it recorded and the task %s", c.name, got, got.Refusal, c.state)
			}
			s := w.Task(g.Task)
			if s.State != c.state || s.Event != c.event || s.Reason != c.reason || s.Uncertain != c.uncertain || s.Revision != 4 {
				t.Errorf("%s: task = %+v", c.name, s)
			}
			if c.state == "WAITING" && (s.Dispatch != task.DispatchDelayed || s.Available < before+1e6 || s.Available > w.Now()+1e6) {
				t.Errorf("%s: waits until %d, want 1s from now in the timer", c.name, s.Available)
			}
			if _, holder := w.Key(w.Namespace, c.name); !holder.IsZero() { // TEST-008, LIC-007, LIC-008, KEY-017
				t.Errorf("%s: the key is still held", c.name)
			}
			if live := w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1"); live != 0 {
				t.Errorf("%s: %d live attempts are left", c.name, live)
			}
		}
	})
}

func TestFinishRefusesACleanStopThatNobodyAskedFor(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		ref, g := running(t, w, n, spec{Queue: w.NewQueue("q")})
		other, _ := running(t, w, n, spec{Queue: w.NewQueue("r")})
		f := dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeCancelled}
		got, err := n.Finish(t.Context(), []dispatch.Finish{f, success(other)})
		if err != nil || got[0].Refusal == nil || got[0].Refusal.Code != "STATE_CONFLICT" || got[1].Status != wire.FinishRecorded {
			t.Errorf("finish = %+v, %v; want the stop refused and its neighbour recorded", got, err)
		}
		if s := w.Task(g.Task); s.State != "RUNNING" {
			t.Errorf("task = %+v, want it running", s)
		}
	})
}

func TestFinishStoresResultAndAnswersRepeatsFromTheRecord(t *testing.T) { // WRK-015, LIC-005
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object", MaxAttempts: 2, Idempotent: true}
		ref, g := running(t, w, n, x)
		old := dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: task.OutcomeFailed, Retryable: true, Error: []byte("busy")}
		first := finish(t, n, old)
		w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane, order_value = available_at - priority * 30000000 WHERE id = ?", g.Task)
		taker := w.Taker(1, x.Lane())
		next := claimOne(t, n, taker, x.Lane())
		if next.Token <= g.Token || next.Epoch != 2 {
			t.Errorf("second attempt has token %d and epoch %d after %d and 1", next.Token, next.Epoch, g.Token)
		}
		nextRef := refOf(taker, next)
		mustStart(t, n, nextRef)
		if again := finish(t, n, old); again != first {
			t.Errorf("repeated finish = %+v, want the first answer %+v", again, first)
		}
		if _, holder := w.Key(w.Namespace, "object"); holder != g.Task {
			t.Error("a repeated finish released the key of the later attempt")
		}
		if got, err := n.Renew(t.Context(), []dispatch.Renewal{{Ref: nextRef}}); err != nil || got[0].Refusal != nil {
			t.Errorf("renewal of the later attempt = %+v, %v", got, err)
		}
		last := success(nextRef)
		if got := finish(t, n, last); got.Status != wire.FinishRecorded {
			t.Errorf("finish of the later attempt = %+v", got)
		}
		if got := finish(t, n, last); got.Status != wire.FinishRecorded || got.TaskState != "SUCCEEDED" {
			t.Errorf("its repeat = %+v", got)
		}
		var result, attempt []byte
		w.DB.Read().QueryRowContext(t.Context(), "SELECT t.result, a.result FROM task t JOIN attempt a ON a.task_id = t.id AND a.epoch = 2").Scan(&result, &attempt)
		if string(result) != `{"ok":true}` || string(attempt) != `{"ok":true}` {
			t.Errorf("stored results = %q and %q", result, attempt)
		}
		if n := w.Int("SELECT COUNT(*) FROM evidence"); n != 0 {
			t.Errorf("repeats left %d rows of evidence", n)
		}
	})
}

func TestAnotherResultOfAnEndedAttemptIsEvidenceOnly(t *testing.T) { // TEST-009, STATE-020
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object"}
		ref, g := running(t, w, n, x)
		finish(t, n, success(ref))
		before := w.Task(g.Task)
		other := dispatch.Finish{Ref: ref, Receipt: []byte("other"), Outcome: task.OutcomeSucceeded, Result: []byte(`{"n": 1.50, "s":"<&>"}`), Error: []byte("a \"word\"")}
		for range 2 {
			if got := finish(t, n, other); got.Status != wire.FinishFinished || got.TaskState != "SUCCEEDED" {
				t.Errorf("finish = %+v, want already_finished", got)
			}
		}
		if after := w.Task(g.Task); after != before {
			t.Errorf("task = %+v, was %+v", after, before)
		}
		var body []byte
		if err := w.DB.Read().QueryRowContext(t.Context(), "SELECT body FROM evidence").Scan(&body); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(body) || !strings.Contains(string(body), `{"n": 1.50, "s":"<&>"}`) {
			t.Errorf("evidence = %s, want the result byte for byte", body)
		}
		if n := w.Int("SELECT COUNT(*) FROM evidence"); n != 1 {
			t.Errorf("%d rows of evidence, want the repeat to add none", n)
		}
	})
}

func TestFinishAfterTheLeaseCountsUntilTheTimeout(t *testing.T) { // STATE-024, STATE-026
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object"}
		ref, _ := running(t, w, n, x)
		expireLease(w, ref.Attempt)
		if got, err := n.Renew(t.Context(), []dispatch.Renewal{{Ref: ref}}); err != nil || got[0].Refusal == nil || got[0].Refusal.Code != wire.CodeLeaseExpired {
			t.Errorf("renewal after the lease = %+v, %v; want lease_expired", got, err)
		}
		if got, err := n.Resume(t.Context(), []dispatch.Ref{ref}); err != nil || got[0].Status != wire.ResumeLost {
			t.Errorf("resume after the lease = %+v, %v; want lost", got, err)
		}
		if got := start(t, n, ref); got.Refusal == nil || got.Refusal.Code != wire.CodeLeaseExpired {
			t.Errorf("repeated start after the lease = %+v, want lease_expired", got)
		}
		if got := finish(t, n, success(ref)); got.Status != wire.FinishRecorded || got.TaskState != "SUCCEEDED" {
			t.Errorf("finish after the lease = %+v, want it recorded", got)
		}

		ref, g := running(t, w, n, x)
		expireTimeout(w, ref.Attempt)
		if got := finish(t, n, success(ref)); got.Status != wire.FinishExpired || got.TaskState != "NEEDS_REVIEW" {
			t.Errorf("finish after the timeout = %+v, want lease_expired", got)
		}
		if s := w.Task(g.Task); s.State != "NEEDS_REVIEW" || !s.Uncertain || s.Reason != "attempt_timeout" {
			t.Errorf("task = %+v, want it in review with an unknown effect", s)
		}
		if n := w.Int("SELECT COUNT(*) FROM evidence"); n != 1 {
			t.Errorf("%d rows of evidence, want 1", n)
		}
	})
}

func TestFinishNeedsAStart(t *testing.T) { // WRK-013, TOK-012
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		id := w.Submit(x)
		taker := w.Taker(1, x.Lane())
		ref := refOf(taker, claimOne(t, n, taker, x.Lane()))
		if got := finish(t, n, success(ref)); got.Refusal == nil || got.Refusal.Code != "STATE_CONFLICT" {
			t.Errorf("finish without a start = %+v, want it refused", got)
		}
		if s := w.Task(id); s.State != "LEASED" {
			t.Errorf("task = %+v", s)
		}
	})
}

func TestStartAfterADeadlineEndsTheTask(t *testing.T) { // LIMIT-019
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object", StartWithin: time.Hour}
		first, second := w.Submit(x), w.Submit(x)
		taker := w.Taker(1, x.Lane())
		ref := refOf(taker, claimOne(t, n, taker, x.Lane()))
		ref.Hint = dispatch.Hint{} // a deadline never changes, and is remembered
		w.Exec("UPDATE task SET start_deadline_at = ? WHERE id = ?", w.Now()-1, first)
		if got := start(t, n, ref); got.Refusal == nil || got.Refusal.Code != wire.CodeStartDeadline {
			t.Errorf("start after the start deadline = %+v", got)
		}
		if s := w.Task(first); s.State != "FAILED" || s.Reason != "start_deadline" || s.Started != 0 {
			t.Errorf("task = %+v, want it failed", s)
		}
		if g := claimOne(t, n, taker, x.Lane()); g.Task != second || g.Token != 3 {
			t.Errorf("next claim = %+v, want the next task with token 3", g)
		}
	})
}

func TestStartAfterACancelIsRefused(t *testing.T) { // CAN-021
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		w.Submit(x)
		taker := w.Taker(1, x.Lane())
		ref := refOf(taker, claimOne(t, n, taker, x.Lane()))
		cancelLeased(t, w, ref.Attempt)
		if got := start(t, n, ref); got.Refusal == nil || got.Refusal.Code != wire.CodeEnded {
			t.Errorf("start after a cancel = %+v, want already_finished", got)
		}
	})
}

func TestReturnPutsTheTaskBackInItsPlace(t *testing.T) { // AMB-034, STATE-006, LIC-006
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object", Delay: -time.Minute}
		first := w.Submit(x)
		w.Submit(x)
		taker := w.Taker(1, x.Lane())
		g := claimOne(t, n, taker, x.Lane())
		ref := refOf(taker, g)
		giveBack(t, n, ref)
		giveBack(t, n, ref) // a repeat
		if s := w.Task(first); s.State != "WAITING" || s.Attempts != 1 || s.Started != 0 || s.Event != task.EventReturned {
			t.Errorf("task = %+v, want it waiting with an attempt that was not started", s)
		}
		if n := w.Int("SELECT unstarted_count FROM task WHERE id = ?", first); n != 1 {
			t.Errorf("%d un-started claims are counted, want 1", n)
		}
		again := claimOne(t, n, taker, x.Lane())
		if again.Task != first || again.Token != 3 || again.Epoch != 2 {
			t.Errorf("next claim = %+v, want the same task first, with token 3", again)
		}
		if got := start(t, n, ref); got.Refusal == nil || got.Refusal.Code != wire.CodeSuperseded {
			t.Errorf("start of the returned attempt = %+v, want superseded", got)
		}
		ref = refOf(taker, again)
		mustStart(t, n, ref)
		if got, err := n.Return(t.Context(), []dispatch.Ref{ref}); err != nil || got[0].Refusal == nil {
			t.Errorf("return of a running attempt = %+v, %v; want it refused", got, err)
		}
	})
}

func TestTheHundredthUnstartedClaimEndsTheTask(t *testing.T) { // AMB-034
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		for _, c := range []struct {
			uncertain bool
			unstarted int
			state     string
		}{{false, 98, "WAITING"}, {false, 99, "FAILED"}, {true, 99, "NEEDS_REVIEW"}} {
			x := spec{Queue: w.NewQueue(c.state), Unstarted: c.unstarted, Uncertain: c.uncertain}
			id := w.Submit(x)
			taker := w.Taker(1, x.Lane())
			giveBack(t, n, refOf(taker, claimOne(t, n, taker, x.Lane())))
			s := w.Task(id)
			if s.State != c.state || s.State != "WAITING" && s.Reason != "never_started" {
				t.Errorf("after %d un-started claims and one more: %+v, want %s", c.unstarted, s, c.state)
			}
		}
		x := spec{Queue: w.NewQueue("started"), Unstarted: 50}
		_, g := running(t, w, n, x)
		if n := w.Int("SELECT unstarted_count FROM task WHERE id = ?", g.Task); n != 0 {
			t.Errorf("a start leaves %d un-started claims counted, want 0", n)
		}
	})
}

func TestRenewExtendsToTheTimeoutAndKeepsProgress(t *testing.T) { // WRK-016, LIMIT-019, STATE-027
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object", AttemptTimeout: 20 * time.Second}
		ref, g := running(t, w, n, x)
		before := w.Task(g.Task)
		w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", w.Now()+1e6, ref.Attempt)
		renew := func(progress string) dispatch.Renewed {
			got, err := n.Renew(t.Context(), []dispatch.Renewal{{Ref: ref, Progress: []byte(progress)}})
			if err != nil || got[0].Refusal != nil {
				t.Fatalf("Renew = %+v, %v", got, err)
			}
			return got[0]
		}
		if got := renew("half"); got.Lease != dispatch.DefaultLease || got.CancelWanted {
			t.Errorf("renewed = %+v, want 15s", got)
		}
		if n := w.Int("SELECT COUNT(*) FROM attempt WHERE progress = ? AND progress_at IS NOT NULL", []byte("half")); n != 1 {
			t.Error("progress was not kept")
		}
		renew("")
		if n := w.Int("SELECT COUNT(*) FROM attempt WHERE progress = ?", []byte("half")); n != 1 {
			t.Error("a renewal without progress took the last one away")
		}
		w.Exec("UPDATE attempt SET timeout_at = ? WHERE id = ?", w.Now()+5e6, ref.Attempt)
		w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", w.Now()+1e6, ref.Attempt)
		w.Exec("UPDATE task SET cancel_requested_at = ? WHERE id = ?", w.Now(), g.Task)
		if got := renew(""); got.Lease > 5*time.Second || got.Lease < 3*time.Second || !got.CancelWanted {
			t.Errorf("renewed = %+v, want at most the 5s of the timeout, and the cancel intent", got)
		}
		if after := w.Task(g.Task); after != before {
			t.Errorf("renewals changed the task: %+v, was %+v", after, before)
		}
		if version, holder := w.Key(w.Namespace, "object"); version != g.Token || holder != g.Task {
			t.Errorf("renewals changed the key: version %d", version)
		}
	})
}

func TestRenewDoesNotExtendAnUnstartedLease(t *testing.T) { // REF-WRK-007
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		w.Submit(x)
		taker := w.Taker(1, x.Lane())
		ref := refOf(taker, claimOne(t, n, taker, x.Lane()))
		w.Exec("UPDATE attempt SET lease_until = ? WHERE id = ?", w.Now()+3e6, ref.Attempt)
		got, err := n.Renew(t.Context(), []dispatch.Renewal{{Ref: ref}})
		if err != nil || got[0].Refusal != nil || got[0].Lease > 3*time.Second {
			t.Errorf("renewal of an un-started attempt = %+v, %v; want what is left", got, err)
		}
	})
}

func TestResumeOnAnotherNodeKeepsAttemptAndToken(t *testing.T) { // WRK-014, TOK-010
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object"}
		ref, g := running(t, w, n, x)
		b := newNode(t, db.Reopen(t).DB, "node-b", dispatch.Config{})
		got, err := b.Resume(t.Context(), []dispatch.Ref{ref})
		if err != nil || got[0].Status != wire.ResumeKeep || !got[0].Running || got[0].Lease != dispatch.DefaultLease || got[0].Timeout <= 0 {
			t.Fatalf("Resume = %+v, %v", got, err)
		}
		if s := finish(t, b, success(ref)); s.Status != wire.FinishRecorded {
			t.Errorf("finish on the other node = %+v", s)
		}
		if got, err := n.Resume(t.Context(), []dispatch.Ref{ref}); err != nil || got[0].Status != wire.ResumeFinished {
			t.Errorf("resume of a finished attempt = %+v, %v", got, err)
		}
		if tok := w.Int("SELECT COUNT(*) FROM attempt WHERE concurrency_token = ?", w.DB.Dialect().Uint64(g.Token)); tok != 1 {
			t.Errorf("the token changed")
		}
	})
}

func TestReleasePromotesTheBestParkedTaskOfEachLane(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		a, b := spec{Queue: w.NewQueue("a"), Key: "object"}, spec{Queue: w.NewQueue("b"), Key: "object"}
		c := spec{Queue: a.Queue, Handler: "other", Key: "object"}
		ref, _ := running(t, w, n, a)
		urgent := a
		urgent.Priority = 9
		parked := []sqldb.ID{w.Submit(a), w.Submit(urgent), w.Submit(b), w.Submit(b), w.Submit(c)}
		best := []sqldb.ID{parked[1], parked[2], parked[4]}
		var woken []int64
		waking := newNode(t, w.DB, "node-w", dispatch.Config{Wake: func(lanes []int64) { woken = append(woken, lanes...) }})
		finish(t, waking, success(ref))
		for i, id := range parked {
			want := task.DispatchKeyBlocked
			if slices.Contains(best, id) {
				want = task.DispatchReady
			}
			if got := w.Task(id).Dispatch; got != want {
				t.Errorf("task %d has dispatch state %d, want %d", i, got, want)
			}
		}
		want := []int64{a.Lane().ID(), b.Lane().ID(), c.Lane().ID()}
		slices.Sort(want)
		if !slices.Equal(woken, want) {
			t.Errorf("woken lanes = %v, want %v", woken, want)
		}
	})
}

func TestReleaseLeavesALaneAloneThatHasAReadyTask(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q"), Key: "object"}
		ref, _ := running(t, w, n, x)
		parked, ready := w.Submit(x), w.Submit(x)
		w.Exec("UPDATE task SET dispatch_state = 1, dispatch_lane = lane WHERE id = ?", ready) // a submit that saw the key free
		finish(t, n, success(ref))
		if got := w.Task(parked).Dispatch; got != task.DispatchKeyBlocked {
			t.Errorf("parked task has dispatch state %d, want it parked behind the READY one", got)
		}
		if g := claimOne(t, n, w.Taker(5, x.Lane()), x.Lane()); g.Task != ready {
			t.Error("the READY task was not claimed")
		}
	})
}

func TestOneBadItemDoesNotFailItsNeighbours(t *testing.T) {
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		q := w.NewQueue("q")
		good, _ := running(t, w, n, spec{Queue: q})
		bad, g := running(t, w, n, spec{Queue: q})
		w.Exec("UPDATE task SET attempt_id = NULL WHERE id = ?", g.Task) // a contradiction
		got, err := n.Finish(t.Context(), []dispatch.Finish{success(bad), success(good)})
		if err != nil || got[0].Refusal == nil || got[0].Refusal.Code != "UNAVAILABLE" || got[1].Status != wire.FinishRecorded {
			t.Errorf("Finish = %+v, %v; want the bad one unavailable and the good one recorded", got, err)
		}
		w.Exec("UPDATE task SET attempt_id = ? WHERE id = ?", bad.Attempt, g.Task)
	})
}

func TestMoreItemsThanABatchAreCut(t *testing.T) {
	const count = 2*dispatch.MaxBatch + 5
	run(t, func(t *testing.T, w world, n node, _ *dbtest.DB) {
		x := spec{Queue: w.NewQueue("q")}
		taker := w.Taker(1000, x.Lane())
		var refs []dispatch.Ref
		for range count {
			w.Submit(x)
		}
		for len(refs) < count {
			for _, g := range claim(t, n, taker, x.Lane()) {
				refs = append(refs, refOf(taker, g))
			}
		}
		started, err := n.Start(t.Context(), refs)
		if err != nil || len(started) != count {
			t.Fatalf("Start answered %d of %d, %v", len(started), count, err)
		}
		var list []dispatch.Finish
		for _, r := range refs {
			list = append(list, success(r))
		}
		finished, err := n.Finish(t.Context(), list)
		if err != nil || len(finished) != count {
			t.Fatalf("Finish answered %d of %d, %v", len(finished), count, err)
		}
		for i := range finished {
			if finished[i].Status != wire.FinishRecorded {
				t.Fatalf("finish %d = %+v", i, finished[i])
			}
		}
	})
}

func TestNewRefusesALeaseOutOfBounds(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 6 * time.Minute, -1} {
		if _, err := dispatch.New(nil, "n", dispatch.Config{Lease: lease}); err == nil {
			t.Errorf("New took a lease of %v", lease)
		}
	}
	if _, err := dispatch.New(nil, strings.Repeat("n", 65), dispatch.Config{}); err == nil {
		t.Error("New took a node id of 65 bytes")
	}
}

// cancelLeased cancels the task of an attempt that has not started.
func cancelLeased(t *testing.T, w world, attempt sqldb.ID) {
	t.Helper()
	err := w.DB.Tx(t.Context(), func(tx *sqldb.Tx) error { return endByCancel(t.Context(), tx, attempt) })
	if err != nil {
		t.Fatalf("cancel: %v", err)
	}
}

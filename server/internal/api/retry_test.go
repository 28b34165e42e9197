package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/task"
)

func (n *node) retry(id, key string, revision uint64) answer {
	n.t.Helper()
	return n.do(ask{method: "POST", path: "/v1/tasks/" + id + ":retry", key: key, body: cancelBody(revision, "input was repaired")})
}

// AMB-072, STATE-019, REF-REV-001: a manual retry is a new task with the frozen fields of
// the old one, linked to it and to the first of the chain.
func TestRetryMakesALinkedTask(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		startBy := orbit.AppendTime(nil, sqldb.Time(n.now()+time.Minute.Microseconds()))
		old := n.submit("s", n.body(`"payload": {"n" : 1.0}`, `"business_key":"b"`, `"concurrency_key":"c"`, `"priority":3`,
			`"task_timeout_ms":90000`, `"recovery_safety":"IDEMPOTENT"`, `"start_deadline_at":"`+string(startBy)+`"`,
			`"retry":{"max_attempts":4,"initial_delay_ms":5,"max_delay_ms":6,"attempt_timeout_ms":7000}`)).want(t, 201, "").taskOf(t)
		n.cancel(old.ID, "c", 1).want(t, 200, "")
		a := n.retry(old.ID, "r", 2).want(t, 201, "")
		got := a.taskOf(t)
		if deduplicated, _ := a.accepted(t); deduplicated || got.RetryOf != old.ID || got.ID == old.ID || got.State != orbit.StateWaiting || got.Revision != 1 {
			t.Errorf("retry = %s", a.data)
		}
		if got.StartDeadlineAt != nil || !got.AvailableAt.Equal(got.CreatedAt) || got.DeadlineAt.Sub(got.CreatedAt).Seconds() != 90 {
			t.Errorf("times of a retry: %+v", got)
		}
		same := func(x orbit.Task) orbit.Task {
			return orbit.Task{QueueID: x.QueueID, Handler: x.Handler, HandlerVersion: x.HandlerVersion, PayloadVersion: x.PayloadVersion,
				Payload: x.Payload, BusinessKey: x.BusinessKey, ConcurrencyKey: x.ConcurrencyKey, Priority: x.Priority, RecoverySafety: x.RecoverySafety, Retry: x.Retry}
		}
		was, is := same(old), same(got)
		if string(was.AppendJSON(nil)) != string(is.AppendJSON(nil)) {
			t.Errorf("frozen fields\n%s\nwant\n%s", is.AppendJSON(nil), was.AppendJSON(nil))
		}
		if algorithm, _, err := orbit.ParseDigest(a.header.Get(orbit.HeaderContentDigest)); err != nil || algorithm != orbit.DigestAlgorithm {
			t.Errorf("digest header %q", a.header.Get(orbit.HeaderContentDigest))
		}
		if row := n.audit(a.requestID); row.action != "task.retry" || row.note != "input was repaired" || row.target != got.ID {
			t.Errorf("audit = %+v", row)
		}
		if after := n.get(old.ID); after.State != orbit.StateCancelled || after.Revision != 2 {
			t.Errorf("the old task was re-opened: %+v", after)
		}
		n.cancel(got.ID, "c", 1).want(t, 200, "")
		third := n.retry(got.ID, "r", 2).want(t, 201, "").taskOf(t) // the key of another task's retry (IDEM-002)
		g := h.claim(true)
		if g == nil || g.Task.String() != third.ID || g.RetryOf.String() != got.ID || g.OperationRoot.String() != old.ID {
			t.Errorf("claimed %+v, want the chain's root", g)
		}
		n.verify()
	})
}

func TestRepeatsAndRefusalsOfRetry(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		old := failed.make(h, "s")
		path := "/v1/tasks/" + old.ID + ":retry"
		n.queue("second")
		elsewhere := n.credential([]string{auth.TasksSubmit}, "second")
		submitter := n.credential([]string{auth.TasksSubmit}, "first")
		reader := n.credential([]string{auth.TasksRead})
		good := cancelBody(old.Revision, "why")
		refused := []struct {
			ask    ask
			status int
			code   string
		}{
			{ask{path: path, body: cancelBody(old.Revision-1, "why")}, 409, orbit.CodeStateConflict},
			{ask{path: path, body: `{"expected_revision":"1"}`}, 400, orbit.CodeInvalidArgument},
			{ask{path: "/v1/tasks/x:retry", body: good}, 404, orbit.CodeNotFound},
			{ask{path: "/v1/tasks/x:retry", body: "{}"}, 400, orbit.CodeInvalidArgument},
			{ask{path: "/v1/tasks/" + strings.Repeat("0", 32) + ":retry", body: good}, 404, orbit.CodeNotFound},
			{ask{path: path, body: good, token: elsewhere.Token}, 404, orbit.CodeNotFound},
			{ask{path: path, body: good, token: reader.Token}, 403, orbit.CodePermissionDenied},
		}
		for _, r := range refused {
			r.ask.method, r.ask.key = "POST", "k"
			if a := n.do(r.ask); a.status != r.status || a.code != r.code {
				t.Errorf("%s %s = %d %s (%s), want %d %s", r.ask.path, r.ask.body, a.status, a.code, a.message, r.status, r.code)
			}
		}
		if n.count("idempotency WHERE operation = 4") != 0 || n.count("task") != 1 { // IDEM-021
			t.Error("a refused retry left something")
		}
		do := func(token, body string) answer {
			return n.do(ask{method: "POST", path: path, key: "k", body: body, token: token})
		}
		first := do("", good).want(t, 201, "")
		made := first.taskOf(t)
		for _, token := range []string{"", submitter.Token} {
			again := do(token, good).want(t, 200, "")
			_, want := first.accepted(t)
			if deduplicated, got := again.accepted(t); !deduplicated || string(got) != string(want) || again.header.Get(orbit.HeaderReplayed) != "true" {
				t.Errorf("repeat = %s, want %s", again.data, want)
			}
		}
		do("", cancelBody(old.Revision, "because")).want(t, 409, orbit.CodeIdempotencyConflict)
		n.retry(made.ID, "k", 1).want(t, 409, orbit.CodeStateConflict) // WAITING
		n.cancel(made.ID, "c", 1).want(t, 200, "")
		for _, s := range []setting{leased, running, inReview, succeeded} {
			other := s.make(h, s.name)
			n.retry(other.ID, "k", other.Revision).want(t, 409, orbit.CodeStateConflict)
		}
		if got := n.count("task WHERE retry_of IS NOT NULL"); got != 1 {
			t.Errorf("%d retries, want 1", got)
		}
		if got := n.count("task_event WHERE task_id = ? AND kind = ? AND reason = ?", parseID(t, made.ID), []byte(task.EventAccepted), []byte("manual_retry")); got != 1 {
			t.Errorf("%d accepted events with reason manual_retry", got)
		}
		n.verify()
	})
}

// ERR-009 … ERR-011, REF-QUOTA-001, IDEM-021: a retry is a new task to the quotas. What is
// refused leaves its key free, and what was made is answered though all is full.
func TestAFullQuotaRefusesARetry(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		old := failed.make(n.hand(), "s")
		other := n.submit("other", n.body()).want(t, 201, "").taskOf(t)
		n.limitQueue(n.creds.QueueID, 1)
		n.retry(old.ID, "k", old.Revision).refusedFull(t, orbit.CodeQueueFull)
		n.limitApplication(1)
		n.retry(old.ID, "k", old.Revision).refusedFull(t, orbit.CodeApplicationFull)
		if n.count("idempotency WHERE operation = 4") != 0 || n.count("task") != 2 || n.get(old.ID).State != orbit.StateFailed {
			t.Error("a refused retry left something")
		}
		n.cancel(other.ID, "c", 1).want(t, 200, "")
		made := n.retry(old.ID, "k", old.Revision).want(t, 201, "").taskOf(t)
		n.retry(old.ID, "k2", old.Revision).refusedFull(t, orbit.CodeApplicationFull)
		if again := n.retry(old.ID, "k", old.Revision).want(t, 200, "").taskOf(t); again.ID != made.ID {
			t.Errorf("repeat made %s, want %s", again.ID, made.ID)
		}
		n.verify()
	})
}

// IDEM-020 for retries.
func TestConcurrentRetriesWithOneKeyMakeOneTask(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		old := failed.make(n.hand(), "s")
		made := 0
		for _, a := range n.atOnce(8, func(int) ask {
			return ask{method: "POST", path: "/v1/tasks/" + old.ID + ":retry", key: "k", body: cancelBody(old.Revision, "why")}
		}) {
			if a.status == 201 {
				made++
			} else {
				a.want(t, 200, "")
			}
		}
		if made != 1 || n.count("task") != 2 {
			t.Errorf("%d retries were made of %d tasks", made, n.count("task"))
		}
	})
}

package api_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/task"
)

func cancelBody(revision uint64, reason string) string {
	return fmt.Sprintf(`{"expected_revision":"%d","reason":%q}`, revision, reason)
}

func (n *node) cancel(id, key string, revision uint64) answer {
	n.t.Helper()
	return n.do(ask{method: "POST", path: "/v1/tasks/" + id + ":cancel", key: key, body: cancelBody(revision, "source object was replaced")})
}

// TestCancelInEveryState: what a cancel makes of a task, with its status.
func TestCancelInEveryState(t *testing.T) {
	type want struct {
		status    int
		state     string
		completed bool
		uncertain bool
		event     string
	}
	cases := []struct {
		from setting
		want want
	}{
		{waiting, want{200, orbit.StateCancelled, true, false, task.EventCancelled}},              // CAN-002, CAN-009, STATE-011
		{leased, want{200, orbit.StateCancelled, true, false, task.EventCancelled}},               // CAN-002, STATE-011
		{running, want{202, orbit.StateRunning, false, false, task.EventCancelAsked}},             // CAN-004, STATE-012, AMB-031
		{inReview, want{200, orbit.StateNeedsReview, false, true, task.EventCancelAsked}},         // CAN-015, AMB-031
		{waitingUncertain, want{200, orbit.StateNeedsReview, false, true, task.EventNeedsReview}}, // CAN-014, TEST-047, AMB-031, STATE-011
		{leasedUncertain, want{200, orbit.StateNeedsReview, false, true, task.EventNeedsReview}},  // CAN-014, TEST-047
	}
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		for _, c := range cases {
			before := c.from.make(h, "submit-"+c.from.name)
			if before.State != c.from.state {
				t.Fatalf("%s: made a task that is %s", c.from.name, before.State)
			}
			a := n.cancel(before.ID, "conversion-operation-001-cancel", before.Revision).want(t, c.want.status, "") // CAN-018: the example's call
			deduplicated, _ := a.accepted(t)                                                                        // CAN-008
			got := a.taskOf(t)
			if deduplicated || a.header.Get(orbit.HeaderReplayed) != "" {
				t.Errorf("%s: a first cancel is marked as a repeat", c.from.name)
			}
			have := want{a.status, got.State, got.CompletedAt != nil, got.EffectUncertain, n.eventOf(got)}
			if have != c.want {
				t.Errorf("%s: cancel = %+v, want %+v", c.from.name, have, c.want)
			}
			if got.Revision != before.Revision+1 || got.CancelRequestedAt == nil || !got.UpdatedAt.Equal(*got.CancelRequestedAt) { // STATE-018
				t.Errorf("%s: revision %d after %d, cancel_requested_at %v, updated_at %v", c.from.name, got.Revision, before.Revision, got.CancelRequestedAt, got.UpdatedAt)
			}
			if string(n.rendered(got.ID)) != string(got.AppendJSON(nil)) {
				t.Errorf("%s: GET shows another task than the receipt", c.from.name)
			}
			n.cancel(before.ID, "again", got.Revision).want(t, 409, orbit.CodeStateConflict) // CAN-013
		}
		n.verify()
	})
}

// rendered is the task as GET shows it.
func (n *node) rendered(id string) []byte {
	n.t.Helper()
	return n.do(ask{path: "/v1/tasks/" + id}).want(n.t, 200, "").data
}

// eventOf is the kind of the event that made the present revision of a task.
func (n *node) eventOf(got orbit.Task) (kind string) {
	n.t.Helper()
	err := n.db.Write().QueryRowContext(n.t.Context(), "SELECT kind FROM task_event WHERE task_id = ? AND revision = ?",
		parseID(n.t, got.ID), int64(got.Revision)).Scan(&kind)
	if err != nil {
		n.t.Fatalf("read event: %v", err)
	}
	return kind
}

// An auditRow is what the audit keeps of a command.
type auditRow struct {
	action, actor, handler, note string
	credential, target, queue    string
}

func (n *node) audit(request string) (a auditRow) {
	n.t.Helper()
	var credential, target, queue []byte
	err := n.db.Write().QueryRowContext(n.t.Context(),
		"SELECT action, actor, handler, note, credential_id, target_id, queue_id FROM audit WHERE request_id = ?", parseID(n.t, request)).
		Scan(&a.action, &a.actor, &a.handler, &a.note, &credential, &target, &queue)
	if err != nil {
		n.t.Fatalf("read audit of request %s: %v", request, err)
	}
	a.credential, a.target, a.queue = fmt.Sprintf("%x", credential), fmt.Sprintf("%x", target), fmt.Sprintf("%x", queue)
	return a
}

// CAN-010: event and audit tell of the cancel; the reason stays out of the event.
func TestCancelIsAudited(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		made := waiting.make(n.hand(), "k")
		a := n.cancel(made.ID, "k", 1).want(t, 200, "")
		got := n.audit(a.requestID)
		got.credential = ""
		want := auditRow{action: "task.cancel", handler: "file.convert", note: "source object was replaced", target: made.ID, queue: made.QueueID}
		if got != want {
			t.Errorf("audit = %+v, want %+v", got, want)
		}
		var reason []byte
		err := n.db.Write().QueryRowContext(t.Context(), "SELECT cancel_reason FROM task WHERE id = ?", parseID(t, made.ID)).Scan(&reason)
		if err != nil || string(reason) != "source object was replaced" {
			t.Errorf("stored reason %q (%v)", reason, err)
		}
	})
}

// CAN-019, CAN-021, LIC-006: the permits of an un-started attempt are free with the commit
// of the cancel, the next task of the key may go, and the worker's start is refused.
func TestCancelOfALeasedTaskReleasesItsPermits(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		first := n.submit("1", n.body(`"concurrency_key":"object/1"`)).want(t, 201, "").taskOf(t)
		second := n.submit("2", n.body(`"concurrency_key":"object/1"`)).want(t, 201, "").taskOf(t)
		g := h.claim(true)
		if g == nil || g.Task.String() != first.ID {
			t.Fatalf("claim = %v", g)
		}
		if h.claim(true) != nil {
			t.Fatal("two attempts hold one key")
		}
		n.takeWoken()
		n.cancel(first.ID, "c", 2).want(t, 200, "")
		if live := n.count("attempt WHERE live = 1"); live != 0 {
			t.Errorf("%d live attempts after the cancel, want none: it is the queue permit", live)
		}
		if held := n.count("resource WHERE holder_task_id IS NOT NULL"); held != 0 {
			t.Errorf("%d keys held after the cancel", held)
		}
		if got := n.row(second.ID); got.dispatch != int(task.DispatchReady) || len(n.takeWoken()) == 0 {
			t.Errorf("the next task of the key has dispatch state %d, want READY and its lane woken", got.dispatch)
		}
		if code := h.start(g); code != wire.CodeEnded {
			t.Errorf("start after the cancel = %q, want %q", code, wire.CodeEnded)
		}
		if told := n.takeTold(); len(told) != 0 {
			t.Errorf("told a worker of %v: nothing runs", told)
		}
		next := h.claim(true)
		if next == nil || next.Task.String() != second.ID || next.Token <= g.Token {
			t.Fatalf("next claim = %+v, want the second task with a token above %d", next, g.Token)
		}
		n.verify()
	})
}

// AMB-033, CAN-022, CAN-023, REF-CAN-001, REF-CAN-002: a running attempt keeps its permits and hears
// of the intent; what it reports decides (STATE-013), and no retry follows.
func TestCancelOfARunningTaskWaitsForItsWorker(t *testing.T) {
	ends := []struct {
		outcome   task.Outcome
		retryable bool
		state     string
		reason    string
	}{
		{task.OutcomeSucceeded, false, orbit.StateSucceeded, ""},
		{task.OutcomeCancelled, false, orbit.StateCancelled, ""},
		{task.OutcomeFailed, true, orbit.StateFailed, task.ReasonCancelRequested},        // STATE-025
		{task.OutcomeUnknown, false, orbit.StateNeedsReview, task.ReasonCancelRequested}, // AMB-032
	}
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		for i, end := range ends {
			members := append([]string{`"concurrency_key":"object/1"`}, uncertain...)
			made := n.submit(fmt.Sprint("s", i), n.body(members...)).want(t, 201, "").taskOf(t)
			g := h.claim(true)
			h.mustStart(g)
			n.takeTold()
			receipt := n.cancel(made.ID, "c", 3).want(t, 202, "")
			if told := n.takeTold(); len(told) != 1 || told[0].attempt != g.Attempt || told[0].epoch != g.Epoch || told[0].reason != "source object was replaced" {
				t.Errorf("told %+v, want the attempt", told)
			}
			if held := n.count("resource WHERE holder_task_id = ?", g.Task); held != 1 || n.count("attempt WHERE live = 1") != 1 {
				t.Error("the running attempt lost a permit")
			}
			if !h.renew(g).CancelWanted {
				t.Error("a renewal does not tell the worker of the intent")
			}
			if got := h.finish(g, end.outcome, end.retryable); got.TaskState != end.state {
				t.Errorf("%v: the task is %s, want %s", end.outcome, got.TaskState, end.state)
			}
			if after := n.get(made.ID); after.CancelRequestedAt == nil || after.EffectUncertain != (end.state == orbit.StateNeedsReview) {
				t.Errorf("%v: afterwards %+v", end.outcome, after)
			}
			// CAN-012, TEST-046: the receipt of a running task is 202 for ever.
			n.sameReceipt(n.cancel(made.ID, "c", 3), receipt)
			if told := n.takeTold(); len(told) != 0 {
				t.Errorf("a repeat told %v", told)
			}
		}
		n.verify()
	})
}

// sameReceipt holds a repeat to the first answer: its status, its task byte for byte, and
// the marks of a repeat.
func (n *node) sameReceipt(again, first answer) {
	n.t.Helper()
	again.want(n.t, first.status, "")
	_, want := first.accepted(n.t)
	deduplicated, got := again.accepted(n.t)
	if !deduplicated || again.header.Get(orbit.HeaderReplayed) != "true" {
		n.t.Errorf("repeat is not marked: deduplicated %v, header %q", deduplicated, again.header.Get(orbit.HeaderReplayed))
	}
	if string(got) != string(want) {
		n.t.Errorf("repeat shows\n%s\nwant\n%s", got, want)
	}
}

// The identity of a cancel: who may repeat it, with what, and what is another command.
func TestRepeatsOfCancel(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		made := n.submit("k", n.body(`"payload": {"b" : 1.0,  "a":"\u00e4"}`)).want(t, 201, "").taskOf(t)
		other := waiting.make(h, "other")
		path := "/v1/tasks/" + made.ID + ":cancel"
		do := func(token, key, body string) answer {
			return n.do(ask{method: "POST", path: path, key: key, token: token, body: body})
		}
		first := do("", "k", cancelBody(1, "why")).want(t, 200, "") // IDEM-002: the key of the submit is free for a cancel
		if !strings.Contains(string(first.data), `{"b" : 1.0,  "a":"\u00e4"}`) {
			t.Errorf("payload is not shown byte for byte: %s", first.data)
		}
		n.sameReceipt(do("", "k", cancelBody(1, "why")), first)                                                                         // CAN-011, IDEM-011
		n.sameReceipt(do("", "k", `{ "reason":"\u0077hy", "expected_revision":"1" }`), first)                                           // IDEM-024
		do("", "k", cancelBody(2, "why")).want(t, 409, orbit.CodeIdempotencyConflict)                                                   // IDEM-010, IDEM-024
		if a := do("", "k", cancelBody(1, "because")).want(t, 409, orbit.CodeIdempotencyConflict); a.message != orbit.ConflictMessage { // IDEM-024, ERR-013
			t.Errorf("message %q", a.message)
		}
		n.cancel(other.ID, "k", 1).want(t, 200, "") // IDEM-002: the task is part of the scope

		canceller := n.credential([]string{auth.TasksCancel}, "first")
		n.sameReceipt(do(canceller.Token, "k", cancelBody(1, "why")), first) // IDEM-003
		n.queue("second")
		elsewhere := n.credential([]string{auth.TasksCancel}, "second")
		do(elsewhere.Token, "k", cancelBody(1, "why")).want(t, 404, orbit.CodeNotFound) // IDEM-004, AMB-030
		reader := n.credential([]string{auth.TasksRead})
		do(reader.Token, "k", cancelBody(1, "why")).want(t, 403, orbit.CodePermissionDenied) // IDEM-004, CAN-001
		stranger := n.namespace("other")
		do(stranger.Token, "k", cancelBody(1, "why")).want(t, 404, orbit.CodeNotFound)
		n.exec("DELETE FROM credential_queue")
		do(canceller.Token, "k", cancelBody(1, "why")).want(t, 404, orbit.CodeNotFound) // IDEM-004: a lost scope
	})
}

// Refusals change nothing and leave no record: the key may be used afterwards (IDEM-021).
// ERR-006.
func TestRefusedCancelsLeaveNoRecord(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		made := waiting.make(n.hand(), "k")
		path := "/v1/tasks/" + made.ID + ":cancel"
		unknown := "/v1/tasks/" + strings.Repeat("0", 32) + ":cancel"
		n.queue("second")
		restricted := n.credential([]string{auth.TasksCancel}, "second")
		reader := n.credential([]string{auth.TasksRead})
		good, bad := cancelBody(1, "why"), `{"expected_revision":"0","reason":"why"}`
		refused := []struct {
			ask    ask
			status int
			code   string
		}{
			{ask{path: path, key: "c", body: cancelBody(2, "why")}, 409, orbit.CodeStateConflict},                       // CAN-020
			{ask{path: path, key: "c", body: cancelBody(1<<64-1, "why")}, 409, orbit.CodeStateConflict},                 // CAN-005, CAN-020
			{ask{path: path, key: "c", body: bad}, 400, orbit.CodeInvalidArgument},                                      // CAN-005
			{ask{path: path, key: "c", body: cancelBody(1, " \t")}, 400, orbit.CodeInvalidArgument},                     // CAN-006
			{ask{path: path, key: "c", body: cancelBody(1, strings.Repeat("ä", 1025))}, 400, orbit.CodeInvalidArgument}, // CAN-006, LIMIT-013
			{ask{path: path, key: "", body: good}, 400, orbit.CodeInvalidArgument},                                      // IDEM-001
			{ask{path: path + "?a=1", key: "c", body: good}, 400, orbit.CodeInvalidArgument},
			{ask{path: unknown, key: "c", body: good}, 404, orbit.CodeNotFound},                           // ERR-004
			{ask{path: "/v1/tasks/x:cancel", key: "c", body: good}, 404, orbit.CodeNotFound},              // AMB-071, AMB-030
			{ask{path: unknown, key: "c", body: bad}, 400, orbit.CodeInvalidArgument},                     // AMB-071: 400 before 404
			{ask{path: path, key: "c", body: good, token: restricted.Token}, 404, orbit.CodeNotFound},     // AMB-030
			{ask{path: path, key: "c", body: good, token: reader.Token}, 403, orbit.CodePermissionDenied}, // AMB-030, CAN-001
			{ask{path: path, key: "c", body: bad, token: reader.Token}, 400, orbit.CodeInvalidArgument},   // IDEM-019
			{ask{path: path, key: "c", body: bad, token: "-"}, 401, orbit.CodeUnauthenticated},            // IDEM-019
			{ask{path: path, key: "c", body: good, header: [][2]string{{"Content-Type", "text/plain"}}}, 415, orbit.CodeUnsupportedMediaType},
		}
		for _, r := range refused {
			r.ask.method = "POST"
			if a := n.do(r.ask); a.status != r.status || a.code != r.code {
				t.Errorf("%s %s = %d %s (%s), want %d %s", r.ask.path, r.ask.body, a.status, a.code, a.message, r.status, r.code)
			}
		}
		if got := n.get(made.ID); got.Revision != 1 || got.State != orbit.StateWaiting {
			t.Errorf("a refused cancel changed the task: %+v", got)
		}
		if records := n.count("idempotency WHERE operation = 2"); records != 0 {
			t.Errorf("%d records of refused cancels", records)
		}
		n.do(ask{method: "POST", path: path, key: "c", body: good}).want(t, 200, "")
		for _, s := range []setting{failed, succeeded} { // CAN-013
			ended := s.make(n.hand(), s.name)
			n.cancel(ended.ID, "c", ended.Revision).want(t, 409, orbit.CodeStateConflict)
		}
		reason := strings.Repeat("ä", 1024) // CAN-006
		last := waiting.make(n.hand(), "last")
		n.do(ask{method: "POST", path: "/v1/tasks/" + last.ID + ":cancel", key: "c", body: cancelBody(1, reason)}).want(t, 200, "")
	})
}

// CAN-007, TEST-045: of concurrent cancels with different keys one succeeds.
func TestOfConcurrentCancelsOneSucceeds(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		for _, s := range []setting{waiting, leased, running} {
			made := s.make(h, s.name)
			won := 0
			for _, a := range n.atOnce(8, func(i int) ask {
				return ask{method: "POST", path: "/v1/tasks/" + made.ID + ":cancel", key: fmt.Sprint("k", i), body: cancelBody(made.Revision, "why")}
			}) {
				if a.status < 300 {
					won++
				} else if a.code != orbit.CodeStateConflict {
					t.Errorf("%s: loser got %d %s (%s), want STATE_CONFLICT", s.name, a.status, a.code, a.message)
				}
			}
			if won != 1 {
				t.Errorf("%s: %d cancels succeeded, want 1", s.name, won)
			}
			if got := n.get(made.ID); got.Revision != made.Revision+1 {
				t.Errorf("%s: revision %d, want %d", s.name, got.Revision, made.Revision+1)
			}
		}
		if records := n.count("idempotency WHERE operation = 2"); records != 3 {
			t.Errorf("%d records, want one per task", records)
		}
		n.verify()
	})
}

// IDEM-020: of concurrent first cancels with one key one acts, and the others get its
// receipt; with other content they get the conflict.
func TestConcurrentCancelsWithOneKey(t *testing.T) {
	onFaults(t, func(t *testing.T, n *node, faults *dbfault.Faults) {
		made := waiting.make(n.hand(), "s")
		const senders = 12
		faults.OnCommit(func(nth int) dbfault.Verdict {
			if nth == 1 {
				holdUntilUsed(faults, senders)
			}
			return dbfault.Pass
		})
		acted, content := 0, ""
		for _, a := range n.atOnce(senders, func(i int) ask {
			return ask{method: "POST", path: "/v1/tasks/" + made.ID + ":cancel", key: "k", body: cancelBody(1, fmt.Sprint("why", i%2))}
		}) {
			if a.status == http.StatusConflict {
				a.want(t, 409, orbit.CodeIdempotencyConflict)
				continue
			}
			deduplicated, shown := a.want(t, 200, "").accepted(t)
			if !deduplicated {
				acted++
			}
			if content == "" {
				content = string(shown)
			}
			if string(shown) != content {
				t.Errorf("two receipts for one key:\n%s\n%s", shown, content)
			}
		}
		if acted != 1 {
			t.Errorf("%d of the cancels say that they acted, want 1", acted)
		}
		if got := n.get(made.ID); got.Revision != 2 || n.count("audit WHERE action = ?", []byte("task.cancel")) != 1 {
			t.Errorf("revision %d, want one cancel", got.Revision)
		}
	})
}

// holdUntilUsed waits until as many users hold a connection for transactions, or wait for one.
func holdUntilUsed(faults *dbfault.Faults, users int) {
	pools := faults.DB.Pools()
	pool := cmp.Or(pools["transactions"], pools["write"])
	for s := pool.Stats(); s.InUse+int(s.WaitCount) < users; s = pool.Stats() {
		time.Sleep(time.Millisecond)
	}
}

// atOnce sends requests at one time and returns the answers.
func (n *node) atOnce(count int, request func(i int) ask) []answer {
	n.t.Helper()
	answers := make([]answer, count)
	errs := make([]error, count)
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() { answers[i], errs[i] = n.try(request(i)) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			n.t.Fatal(err)
		}
	}
	return answers
}

// IDEM-015: the record of a command is kept for 90 days.
func TestRecordsOfCommandsHaveTheirDeadline(t *testing.T) {
	n := onSQLite(t)
	made := waiting.make(n.hand(), "s")
	n.cancel(made.ID, "k", 1).want(t, 200, "")
	var created, until int64
	var of sql.RawBytes
	row, err := n.db.Write().QueryContext(t.Context(), "SELECT created_at, retain_until, task_id FROM idempotency WHERE operation = 2")
	if err != nil || !row.Next() {
		t.Fatal("no record", err)
	}
	defer row.Close()
	if err := row.Scan(&created, &until, &of); err != nil {
		t.Fatal(err)
	}
	if until-created != orbit.IdempotencyRetention.Microseconds() || fmt.Sprintf("%x", []byte(of)) != made.ID {
		t.Errorf("record of task %x kept for %d µs", []byte(of), until-created)
	}
}

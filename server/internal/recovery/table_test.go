package recovery_test

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A holding is an attempt of a keyed task whose queue and application limit what is
// unfinished and what is live, and another task that waits for the same key.
type holding struct {
	scene
	row     string
	x       spec
	ref     dispatch.Ref
	grant   dispatch.Grant
	next    sqldb.ID
	another *dispatch.Dispatcher // another node
}

// Errorf tells the row too.
func (h *holding) Errorf(format string, args ...any) {
	h.Helper()
	h.scene.Errorf(h.row+": "+format, args...)
}

func (s scene) hold(row string, x spec, started bool) *holding {
	s.Helper()
	another, err := dispatch.New(s.db.DB, "another", dispatch.Config{})
	if err != nil {
		s.Fatal(err)
	}
	h := &holding{scene: s, row: row, x: x, another: another}
	h.ref, h.grant = s.lease(x, started)
	h.next = s.w.Submit(spec{Queue: x.Queue, Key: x.Key, Delay: -time.Minute})
	err = s.db.Tx(s.Context(), func(tx *sqldb.Tx) error {
		if err := quota.LimitApplication(s.Context(), tx, s.w.Application, 1000); err != nil {
			return err
		}
		return quota.LimitQueue(s.Context(), tx, x.Queue, 100)
	})
	if err != nil {
		s.Fatal(err)
	}
	s.w.Exec("UPDATE queue SET max_concurrency = 5 WHERE id = ?", x.Queue)
	s.w.Exec("UPDATE application_quota SET max_active_attempts = 50")
	return h
}

func (h *holding) finish(outcome task.Outcome, retryable bool) dispatch.Finished {
	h.Helper()
	f := dispatch.Finish{Ref: h.ref, Receipt: []byte("receipt"), Outcome: outcome, Retryable: retryable}
	got, err := h.node.Finish(h.Context(), []dispatch.Finish{f})
	if err != nil {
		h.Fatalf("Finish = %v", err)
	}
	return got[0]
}

func (h *holding) renew() {
	h.Helper()
	h.w.Exec("UPDATE attempt SET lease_until = lease_until - 1000000 WHERE id = ?", h.ref.Attempt)
	before := h.w.Int("SELECT lease_until FROM attempt WHERE id = ?", h.ref.Attempt)
	got, err := h.node.Renew(h.Context(), []dispatch.Renewal{{Ref: h.ref}})
	if err != nil || got[0].Refusal != nil || h.w.Int("SELECT lease_until FROM attempt WHERE id = ?", h.ref.Attempt) <= before {
		h.Errorf("Renew = %+v, %v; want a longer lease (LIC-004)", got, err)
	}
}

// resume takes the attempt up on another node.
func (h *holding) resume() {
	h.Helper()
	got, err := h.another.Resume(h.Context(), []dispatch.Ref{h.ref})
	if err != nil || got[0].Status != wire.ResumeKeep {
		h.Errorf("Resume = %+v, %v; want the same attempt", got, err)
	}
}

func (h *holding) cancel() {
	h.Helper()
	caller := command.Caller{Namespace: h.w.Namespace, Application: h.w.Application, Actor: "alice"}
	r := orbit.CancelTaskRequest{ExpectedRevision: uint64(h.w.Task(h.grant.Task).Revision), Reason: "why"}
	if _, err := command.New(h.db.DB, command.Config{}).Cancel(h.Context(), caller, h.grant.Task, r, orbit.Digest{}); err != nil {
		h.Errorf("Cancel = %v", err)
	}
}

func (h *holding) returned() {
	h.Helper()
	if got, err := h.node.Return(h.Context(), []dispatch.Ref{h.ref}); err != nil || got[0].Refusal != nil {
		h.Errorf("Return = %+v, %v", got, err)
	}
}

func (h *holding) expire() {
	h.Helper()
	h.scene.expire(h.ref.Attempt, false)
	h.sweepLeases()
}

// permits counts the two permits of one attempt: the queue's, which is the live attempt and
// counts once for the application, and the key's (LIC-002).
func (h *holding) permits(when string, want int64, holder sqldb.ID) {
	h.Helper()
	queue := h.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1 AND queue_id = ?", h.x.Queue)
	app := h.w.Int("SELECT COUNT(*) FROM attempt WHERE live = 1 AND application_id = ?", h.w.Application)
	if _, held := h.w.Key(h.w.Namespace, h.x.Key); queue != want || app != want || held != holder {
		h.Errorf("%s: %d live attempts of the queue and %d of the application, key held by %v; want %d and %v", when, queue, app, held, want, holder)
	}
}

// counters holds the stored counts of unfinished tasks to the tasks.
func (h *holding) counters(unfinished int64) {
	h.Helper()
	if n := h.w.Int("SELECT unfinished FROM queue WHERE id = ?", h.x.Queue); n != unfinished {
		h.Errorf("queue counts %d unfinished tasks, want %d", n, unfinished)
	}
	all := h.w.Int("SELECT COUNT(*) FROM task WHERE state NOT IN (5, 6, 7)")
	if n := h.w.Int("SELECT unfinished FROM application_quota"); n != all {
		h.Errorf("application counts %d unfinished tasks, want %d", n, all)
	}
}

// nextTakesOver claims the next holder of the key, has the old attempt speak once more, and
// ends the new one: its permit is its own (LIC-005, LIC-011, LIC-015).
func (h *holding) nextTakesOver() {
	h.Helper()
	ref, g := h.claim(h.x, true)
	if g.Token <= h.grant.Token {
		h.Errorf("next token %d, want one above %d (TOK-011)", g.Token, h.grant.Token)
	}
	h.permits("after the next claim", 1, g.Task)
	version, _ := h.w.Key(h.w.Namespace, h.x.Key)
	h.finish(task.OutcomeSucceeded, false)
	h.finish(task.OutcomeSucceeded, false)
	h.node.Return(h.Context(), []dispatch.Ref{h.ref})
	h.node.Renew(h.Context(), []dispatch.Renewal{{Ref: h.ref}})
	h.permits("after late words of the old attempt", 1, g.Task)
	if after, _ := h.w.Key(h.w.Namespace, h.x.Key); after != version {
		h.Errorf("late words moved the key from version %d to %d", version, after)
	}
	if got, err := h.node.Renew(h.Context(), []dispatch.Renewal{{Ref: ref}}); err != nil || got[0].Refusal != nil {
		h.Errorf("renewal of the new holder = %+v, %v", got, err)
	}
	f := dispatch.Finish{Ref: ref, Receipt: []byte("new"), Outcome: task.OutcomeSucceeded}
	if got, err := h.node.Finish(h.Context(), []dispatch.Finish{f}); err != nil || got[0].Status != wire.FinishRecorded {
		h.Errorf("finish of the new holder = %+v, %v", got, err)
	}
	h.permits("in the end", 0, sqldb.ID{})
}

// goesOn ends an attempt that kept its permits.
func (h *holding) goesOn(before, after uint64) {
	h.Helper()
	if h.permits("after", 1, h.grant.Task); after != before || after != h.grant.Token {
		h.Errorf("key went from version %d to %d, the token is %d", before, after, h.grant.Token)
	}
	h.resume()
	if got := h.finish(task.OutcomeSucceeded, false); got.Status != wire.FinishRecorded {
		h.Errorf("finish of what went on = %+v", got)
	}
	h.w.Exec("UPDATE queue SET paused = 0")
	h.w.Exec("UPDATE application SET dispatch_stopped = 0")
}

// The table of section 3 of the first seed, row by row: what becomes of permits, counters
// and token. Each row ends with a later attempt on the key and late words of the old one.
func TestTheRecoveryTable(t *testing.T) { // TEST-057, TEST-008, LIC-002…011, LIC-015…018, TOK-010, TOK-011, KEY-017
	again := spec{MaxAttempts: 3, InitialDelay: time.Hour, MaxDelay: time.Hour, Idempotent: true}
	rows := []struct {
		name       string
		spec       spec
		unstarted  bool
		act        func(*holding)
		held       bool // the permits stay
		state      string
		unfinished int64 // tasks of the queue, of two
		uncertain  bool
	}{
		// Reconnect, resume, renewal: same attempt and token; a renewal extends both permits.
		{name: "reconnect and resume", act: (*holding).resume, held: true, state: "RUNNING", unfinished: 2},
		{name: "renewal", act: (*holding).renew, held: true, state: "RUNNING", unfinished: 2},
		// A result confirmed again, an old receipt: nothing is released twice.
		{name: "repeated confirmation", act: func(h *holding) {
			for range 3 {
				if got := h.finish(task.OutcomeSucceeded, false); got.Status != wire.FinishRecorded {
					h.Errorf("finish = %+v", got)
				}
			}
		}, state: "SUCCEEDED", unfinished: 1},
		// Cancel before the start, a clear end, expiry: released with it.
		{name: "cancel before the start", unstarted: true, act: (*holding).cancel, state: "CANCELLED", unfinished: 1},
		{name: "returned before the start", unstarted: true, act: (*holding).returned, state: "WAITING", unfinished: 2},
		{name: "clear success", act: func(h *holding) { h.finish(task.OutcomeSucceeded, false) }, state: "SUCCEEDED", unfinished: 1},
		{name: "clear failure", act: func(h *holding) { h.finish(task.OutcomeFailed, false) }, state: "FAILED", unfinished: 1},
		{name: "expiry before the start", unstarted: true, act: (*holding).expire, state: "WAITING", unfinished: 2},
		// Safe retry: not held during the back-off.
		{name: "back-off after a failure", spec: again, act: func(h *holding) { h.finish(task.OutcomeFailed, true) }, state: "WAITING", unfinished: 2},
		{name: "back-off after an unknown outcome", spec: again, act: func(h *holding) { h.finish(task.OutcomeUnknown, false) }, state: "WAITING", unfinished: 2, uncertain: true},
		{name: "back-off after an expiry", spec: again, act: (*holding).expire, state: "WAITING", unfinished: 2, uncertain: true},
		// UNKNOWN: permits go, the unknown effect stays, and so does the place in the backlog.
		{name: "unknown outcome", act: func(h *holding) { h.finish(task.OutcomeUnknown, false) }, state: "NEEDS_REVIEW", unfinished: 2, uncertain: true},
		{name: "expiry after the start", act: (*holding).expire, state: "NEEDS_REVIEW", unfinished: 2, uncertain: true},
		// A pause, a stop, a lost connection: nothing is released by it.
		{name: "paused queue", act: func(h *holding) { h.w.Exec("UPDATE queue SET paused = 1"); h.sweepLeases() }, held: true, state: "RUNNING", unfinished: 2},
		{name: "stopped dispatch", act: func(h *holding) { h.w.Exec("UPDATE application SET dispatch_stopped = 1"); h.sweepLeases() }, held: true, state: "RUNNING", unfinished: 2},
		{name: "lost connection", act: func(h *holding) { h.w.Exec("DELETE FROM worker_session"); h.sweepLeases() }, held: true, state: "RUNNING", unfinished: 2},
	}
	run(t, func(s scene) {
		for _, row := range rows {
			row.spec.Queue, row.spec.Key = s.w.NewQueue(row.name), row.name
			h := s.hold(row.name, row.spec, !row.unstarted)
			h.permits("before", 1, h.grant.Task)
			before, _ := s.w.Key(s.w.Namespace, h.x.Key)
			row.act(h)
			after, _ := s.w.Key(s.w.Namespace, h.x.Key)
			if got := s.w.Task(h.grant.Task); got.State != row.state || got.Attempts != 1 || got.Uncertain != row.uncertain {
				h.Errorf("task = %+v, want %s after one attempt", got, row.state)
			}
			h.counters(row.unfinished)
			if row.held {
				h.goesOn(before, after)
			} else if h.permits("after", 0, sqldb.ID{}); after != before+1 {
				h.Errorf("key went from version %d to %d, want one step for one release (TOK-005)", before, after)
			}
			h.nextTakesOver()
		}
	})
}

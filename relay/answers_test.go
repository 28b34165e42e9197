package relay_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// An answerCase is a row of the table of answers: what the server says the first time,
// and what becomes of the row.
type answerCase struct {
	name    string
	first   reply
	state   outbox.State
	outcome outbox.Outcome
	marked  bool // an earlier send may have been accepted
	unspent bool // no attempt is counted, as the answer is about the target
}

// The closed table, REL-002…012 and REL-026. What stays PENDING is answered properly
// the next time.
var answerTable = []answerCase{
	{name: "201", first: reply{}, state: outbox.Delivered, outcome: outbox.OutcomeAccepted},
	{name: "200 for what was accepted before", first: reply{accept: true}, state: outbox.Delivered, outcome: outbox.OutcomeAccepted},
	{name: "receipt for another queue", first: reply{queue: queueB}, state: outbox.Blocked, outcome: outbox.OutcomeMismatch, marked: true},
	{name: "receipt for another handler", first: reply{handler: "other"}, state: outbox.Blocked, outcome: outbox.OutcomeMismatch, marked: true},
	{name: "receipt with another digest", first: reply{digest: orbit.Digest{7}.String()}, state: outbox.Blocked, outcome: outbox.OutcomeMismatch, marked: true},
	{name: "400", first: reply{status: 400, code: orbit.CodeInvalidArgument}, state: outbox.Rejected, outcome: outbox.OutcomeRefused},
	{name: "413", first: reply{status: 413, code: orbit.CodeBodyTooLarge}, state: outbox.Rejected, outcome: outbox.OutcomeRefused},
	{name: "415", first: reply{status: 415, code: orbit.CodeUnsupportedMediaType}, state: outbox.Rejected, outcome: outbox.OutcomeRefused},
	{name: "409 conflict", first: reply{status: 409, code: orbit.CodeIdempotencyConflict}, state: outbox.Rejected, outcome: outbox.OutcomeConflict},
	{name: "409 state", first: reply{status: 409, code: orbit.CodeStateConflict}, state: outbox.Blocked, outcome: outbox.OutcomeNeedsPerson},
	{name: "403", first: reply{status: 403, code: orbit.CodePermissionDenied}, state: outbox.Blocked, outcome: outbox.OutcomeNeedsPerson},
	{name: "404", first: reply{status: 404, code: orbit.CodeNotFound}, state: outbox.Blocked, outcome: outbox.OutcomeNeedsPerson},
	{name: "429 queue", first: reply{status: 429, code: orbit.CodeQueueFull}, state: outbox.Pending, outcome: outbox.OutcomeNotAccepted},
	{name: "429 application", first: reply{status: 429, code: orbit.CodeApplicationFull}, state: outbox.Pending, outcome: outbox.OutcomeNotAccepted},
	{name: "receipt without digest", first: reply{digest: "-"}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "408", first: reply{status: 408}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "425", first: reply{status: 425}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "500", first: reply{status: 500}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "503 of Orbit", first: reply{status: 503, code: orbit.CodeUnavailable}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "405 of Orbit", first: reply{status: 405, code: orbit.CodeInvalidArgument}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "418", first: reply{status: 418}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "403 of somebody else", first: reply{status: 403, raw: "<html>forbidden"}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "404 with a code of another status", first: reply{status: 404, code: orbit.CodePermissionDenied}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "401", first: reply{status: 401, code: orbit.CodeUnauthenticated}, state: outbox.Pending, unspent: true},
}

// These have no form as an item of a batch.
var singleAnswers = []answerCase{
	{name: "202", first: reply{status: 202, raw: `{}`}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "204", first: reply{status: 204}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "201 with half a body", first: reply{status: 201, raw: `{"request_id":"` + namespace}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "201 without request id", first: reply{noID: true}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "400 without request id", first: reply{status: 400, code: orbit.CodeInvalidArgument, noID: true}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "connection cut", first: reply{cut: true}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "timeout", first: reply{delay: 3 * time.Second}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true},
	{name: "302", first: reply{status: 302, header: map[string]string{"Location": "/v1/tasks"}}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true, unspent: true},
	{name: "307", first: reply{status: 307, header: map[string]string{"Location": "/v1/tasks"}}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true, unspent: true},
	{name: "401 of somebody else", first: reply{status: 401, raw: "log in"}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true, unspent: true},
	{name: "429 of somebody else", first: reply{status: 429, raw: "slow down"}, state: outbox.Pending, outcome: outbox.OutcomeUnknown, marked: true, unspent: true},
}

// TEST-051, each row sent alone.
func TestEachAnswerToARowAloneHasItsClass(t *testing.T) {
	for _, c := range append(append([]answerCase(nil), answerTable...), singleAnswers...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onSQLite(t, func(t *testing.T, w *world) {
				seq := w.enqueueKeys("subject")[0]
				w.checkAnswer(t, c, seq, nil)
			})
		})
	}
}

// TEST-051, each row among others in a batch, which go their own way.
func TestEachAnswerToAnItemOfABatchHasItsClass(t *testing.T) {
	for _, c := range answerTable {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, w *world) {
				seqs := w.enqueueKeys("warm-up", "subject", "neighbour", "another")
				w.checkAnswer(t, c, seqs[1], seqs[2:])
				batched := false
				for _, s := range w.fake.sendsOf("subject") {
					batched = batched || s.batch > 1
				}
				if !batched {
					t.Fatal("the subject was never sent in a batch")
				}
			})
		})
	}
}

// checkAnswer runs a relay while the server gives the subject its first answer, looks at
// what the row kept, and lets the server answer properly from then on.
func (w *world) checkAnswer(t *testing.T, c answerCase, seq int64, neighbours []int64) {
	t.Helper()
	gave := make(chan struct{})
	proper := make(chan struct{})
	w.fake.answer = func(s send) reply {
		if s.key != "subject" || closed(proper) {
			return reply{}
		}
		if !closed(gave) {
			close(gave)
			return c.first
		}
		// An answer about the credential, so that the row stays as the first one left it.
		return reply{status: 401, code: orbit.CodeUnauthenticated}
	}
	cfg := quick()
	if c.first.delay > 0 { // else a busy machine may have its time, above all for the first probe
		cfg.SendTimeout = time.Second
	}
	if c.state == outbox.Pending {
		cfg.RetryFirst, cfg.RetryMost = time.Hour, time.Hour // makes the first answer last
		cfg.PauseFirst, cfg.PauseMost = time.Hour, time.Hour
	}
	if neighbours != nil && c.state == outbox.Pending {
		cfg.PauseFirst, cfg.PauseMost = time.Millisecond, 100*time.Millisecond
	}
	stop := w.start(w.relay(cfg))
	<-gave
	if c.unspent {
		for _, n := range neighbours {
			w.untilState(n, outbox.Delivered)
		}
		stop()
		w.wantUnspent(t, c, seq, neighbours != nil)
	} else {
		w.wantAnswer(t, c, seq)
		for _, n := range neighbours {
			w.untilState(n, outbox.Delivered)
		}
		stop()
	}
	close(proper)
	if c.state == outbox.Pending {
		w.exec("UPDATE orbit_outbox SET due_at = 1 WHERE state = 1")
		w.start(w.relay(quick()))
		if r := w.untilState(seq, outbox.Delivered); r.Last.Unknown {
			t.Error("an accepted row still has the mark of an unknown send")
		}
	}
	if n, want := len(w.stored()), w.fake.taskCount(); c.state == outbox.Pending && n != want {
		t.Errorf("%d rows became %d tasks", n, want)
	}
	w.fake.checkIdentity(t, w.stored())
}

func (w *world) wantAnswer(t *testing.T, c answerCase, seq int64) {
	t.Helper()
	var r outbox.Row
	w.eventually("the answer is settled", func() bool {
		r = w.row(seq)
		return r.Attempts > 0
	})
	if r.State != c.state || r.Last.Outcome != c.outcome || r.Last.Unknown != c.marked {
		t.Fatalf("row is %v %v (marked %t), want %v %v (marked %t)", r.State, r.Last.Outcome, r.Last.Unknown, c.state, c.outcome, c.marked)
	}
	if c.first.code != "" && (r.Last.Status != c.first.status || c.outcome != outbox.OutcomeUnknown && r.Last.Code != c.first.code) {
		t.Errorf("row keeps answer %d %q, want %d %q", r.Last.Status, r.Last.Code, c.first.status, c.first.code)
	}
	if c.first.code != "" && !c.first.noID && r.Last.RequestID == "" {
		t.Error("row does not keep the answer's request id")
	}
	if r.State == outbox.Delivered && (r.TaskID == "" || r.AcceptedAt.IsZero() || r.Deduplicated != c.first.accept) {
		t.Errorf("delivered row lacks its receipt: %+v", r)
	}
}

// wantUnspent wants a row as it was before the send, but for the mark if the answer was not
// Orbit's: it was about the target.
func (w *world) wantUnspent(t *testing.T, c answerCase, seq int64, retried bool) {
	t.Helper()
	r := w.row(seq)
	if !retried && (r.State != outbox.Pending || r.Attempts != 0 || r.Last.Unknown != c.marked || r.Last.Outcome != c.outcome) {
		t.Fatalf("row is %v with %d attempts, outcome %v, marked %t; want no attempt, %v, %t", r.State, r.Attempts, r.Last.Outcome, r.Last.Unknown, c.outcome, c.marked)
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// REL-026, 027: what a whole batch is answered settles no row.
func TestAnAnswerToTheWholeBatchSettlesNoRow(t *testing.T) {
	tests := []struct {
		name   string
		whole  reply
		marked bool // rows get the mark of an unknown send
		apart  bool // rows are sent one by one
		spent  bool // an attempt is counted
	}{
		{"401", reply{status: 401, code: orbit.CodeUnauthenticated}, false, false, false},
		{"403", reply{status: 403, code: orbit.CodePermissionDenied}, false, false, false},
		{"404 of somebody else", reply{status: 404, raw: "no such page"}, true, false, true},
		{"404", reply{status: 404, code: orbit.CodeNotFound}, false, false, false},
		{"405", reply{status: 405, code: orbit.CodeInvalidArgument}, false, false, false},
		{"302", reply{status: 302, header: map[string]string{"Location": "/v1/tasks"}}, true, false, false},
		{"418", reply{status: 418}, true, false, true},
		{"429", reply{status: 429, code: orbit.CodeApplicationFull, retryAfter: "1"}, false, false, false},
		{"401 of somebody else", reply{status: 401, raw: "log in"}, true, false, false},
		{"429 of somebody else", reply{status: 429}, true, false, false},
		{"408", reply{status: 408}, true, false, true},
		{"425", reply{status: 425}, true, false, true},
		{"503", reply{status: 503, code: orbit.CodeUnavailable}, true, false, true},
		{"502", reply{status: 502, raw: "bad gateway"}, true, false, true},
		{"201", reply{status: 201, raw: "{}"}, true, false, true},
		{"200 without items", reply{status: 200, raw: "{}"}, true, false, true},
		{"cut, though all were accepted", reply{cut: true, accept: true}, true, false, true},
		{"400", reply{status: 400, code: orbit.CodeInvalidArgument}, false, true, false},
		{"413 of somebody else", reply{status: 413, raw: "too large"}, false, true, false},
		{"415", reply{status: 415, code: orbit.CodeUnsupportedMediaType}, false, true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			onSQLite(t, func(t *testing.T, w *world) {
				seqs := w.enqueueKeys("warm-up", "a", "b", "c", "d")
				fired, keep := make(chan struct{}), true
				w.fake.whole = func([]send) *reply {
					w.fake.mu.Lock()
					defer w.fake.mu.Unlock()
					if !keep {
						return nil
					}
					if !closed(fired) {
						close(fired)
					}
					return &test.whole
				}
				cfg := quick()
				if !test.apart {
					cfg.RetryFirst, cfg.RetryMost = time.Hour, time.Hour
					cfg.PauseFirst, cfg.PauseMost = time.Hour, time.Hour
				}
				stop := w.start(w.relay(cfg))
				<-fired
				if test.apart {
					for _, seq := range seqs {
						w.untilState(seq, outbox.Delivered)
					}
					w.wantAlone(t, "a", "b", "c", "d")
					return
				}
				stop()
				for _, seq := range seqs[1:] {
					if r := w.row(seq); r.State != outbox.Pending || r.Last.Unknown != test.marked || (r.Attempts > 0) != test.spent {
						t.Errorf("row %d is %v, marked %t, %d attempts, want PENDING, marked %t, attempts %t", seq, r.State, r.Last.Unknown, r.Attempts, test.marked, test.spent)
					}
				}
				w.fake.set(func(*orbitFake) { keep = false })
				w.exec("UPDATE orbit_outbox SET due_at = 1 WHERE state = 1")
				w.start(w.relay(quick()))
				for _, seq := range seqs {
					w.untilState(seq, outbox.Delivered)
				}
				if n := w.fake.taskCount(); n != len(seqs) {
					t.Errorf("%d rows became %d tasks", len(seqs), n)
				}
				w.fake.checkIdentity(t, w.stored())
			})
		})
	}
}

// wantAlone wants the keys to have been sent in a batch first and then alone.
func (w *world) wantAlone(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		sends := w.fake.sendsOf(key)
		if len(sends) != 2 || sends[0].batch == 1 || sends[1].batch != 1 {
			t.Errorf("key %q was sent %+v, want once in a batch and once alone", key, sends)
		}
	}
}

// REL-027.
func TestForbiddenForAllQueuesPausesTheTargetInsteadOfBlockingRowByRow(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		// What a hold keeps back is read together when it is lifted.
		for _, queue := range []string{queueA, queueB} {
			if err := w.store.Hold(t.Context(), "main", queue, outbox.Act{Operator: "me", Reason: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		warmUp := message("warm-up")
		warmUp.Request.QueueID = namespace // any other
		w.start(w.relay(quick()))
		w.untilState(w.enqueue(warmUp)[0], outbox.Delivered)
		forbidden, refusals := true, 0
		w.fake.set(func(f *orbitFake) {
			f.answer = func(send) reply {
				if !forbidden {
					return reply{}
				}
				refusals++
				return reply{status: 403, code: orbit.CodePermissionDenied}
			}
		})
		var messages []outbox.Message
		for i := range 20 {
			m := message(fmt.Sprintf("k%d", i))
			if i%2 == 0 {
				m.Request.QueueID = queueB
			}
			messages = append(messages, m)
		}
		seqs := w.enqueue(messages...)
		w.exec("DELETE FROM orbit_outbox_hold")
		w.eventually("the target was paused and tried several times", func() bool {
			w.fake.mu.Lock()
			defer w.fake.mu.Unlock()
			return refusals > 23
		})
		if n := w.count(outbox.Blocked); n != 0 {
			t.Errorf("%d rows were blocked for the credential's fault", n)
		}
		w.fake.set(func(*orbitFake) { forbidden = false })
		for _, seq := range seqs {
			w.untilState(seq, outbox.Delivered)
		}
	})
}

// REL-026: three different rows in a row, each alone, are not the rows' own fault.
func TestThreeStrangersInSuccessionPauseTheTarget(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		seqs := w.enqueueKeys("a", "b", "c", "d")
		w.fake.answer = func(s send) reply { return reply{status: 404, raw: "nginx"} }
		w.fake.caps = func() reply {
			w.fake.mu.Lock() // the fake calls it without
			defer w.fake.mu.Unlock()
			if len(w.fake.sends) >= 3 {
				return reply{status: 404, raw: "nginx"}
			}
			return reply{}
		}
		cfg := quick()
		cfg.RetryFirst, cfg.RetryMost = time.Hour, time.Hour
		r := w.relay(cfg)
		w.start(r)
		w.eventually("the target is paused", func() bool { return r.Stats().Targets[0].State == "paused" && w.fake.probeCount() > 3 })
		pending := 0
		for _, seq := range seqs {
			if row := w.row(seq); row.State != outbox.Pending {
				t.Errorf("row %d is %v, want PENDING", seq, row.State)
			} else if row.Attempts == 0 {
				pending++
			}
		}
		if pending != 1 {
			t.Errorf("%d rows were not sent, want 1: three strangers are enough", pending)
		}
	})
}

// OUT-013: what refused the batch as a whole may have passed it on. Only Orbit's own refusal
// says that no row of it was accepted.
func TestARefusalOfARowWhoseBatchWasRefusedBySomebodyElseKeepsTheMark(t *testing.T) {
	tests := map[string]struct {
		whole  reply
		marked bool
	}{
		"by somebody else": {reply{status: 400, raw: "<html>", accept: true}, true},
		"by Orbit":         {reply{status: 400, code: orbit.CodeInvalidArgument}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				seqs := w.enqueueKeys("warm-up", "a", "b", "c", "d")
				w.fake.whole = func([]send) *reply { return &test.whole }
				w.fake.answer = func(s send) reply {
					if s.key == "warm-up" {
						return reply{}
					}
					return reply{status: 403, code: orbit.CodePermissionDenied}
				}
				w.start(w.relay(quick()))
				act := outbox.Act{Operator: "me", Reason: "test"}
				for _, seq := range seqs[1:] {
					r := w.untilState(seq, outbox.Blocked)
					if r.Last.Unknown != test.marked {
						t.Errorf("row %d is marked %t, want %t", seq, r.Last.Unknown, test.marked)
					}
					if err := w.store.Discard(t.Context(), seq, act); errors.Is(err, outbox.ErrUnknownOutcome) != test.marked {
						t.Errorf("discard of row %d = %v, want it refused: %t", seq, err, test.marked)
					}
				}
				w.wantAlone(t, "a", "b", "c", "d")
			})
		})
	}
}

// OUT-013, REL-008, REL-026: an answer about the target that is not Orbit's own may come from
// somebody who forwards first. A refusal of the next send says nothing about that one, so that
// nobody may discard the row.
func TestAnAnswerOfSomebodyElseAboutTheTargetLeavesTheMark(t *testing.T) {
	tests := map[string]struct {
		first  reply
		marked bool
	}{
		"401 of a proxy": {reply{status: 401, raw: "log in"}, true},
		"302 of a proxy": {reply{status: 302, header: map[string]string{"Location": "/login"}}, true},
		"429 of a proxy": {reply{status: 429, raw: "slow down"}, true},
		"401 of Orbit":   {reply{status: 401, code: orbit.CodeUnauthenticated}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				seq := w.enqueueKeys("subject")[0]
				n := 0
				w.fake.answer = func(send) reply {
					if n++; n == 1 {
						return test.first
					}
					return reply{status: 403, code: orbit.CodePermissionDenied}
				}
				running := w.relay(quick())
				w.start(running)
				r := w.untilState(seq, outbox.Blocked)
				if r.Last.Unknown != test.marked || r.Attempts != 1 {
					t.Errorf("marked %t after %d attempts, want %t after 1", r.Last.Unknown, r.Attempts, test.marked)
				}
				if told := running.Stats().Unknown > 0; told != test.marked {
					t.Errorf("the statistics tell of an unknown outcome: %t, want %t", told, test.marked)
				}
				act := outbox.Act{Operator: "me", Reason: "test"}
				if err := w.store.Discard(t.Context(), seq, act); errors.Is(err, outbox.ErrUnknownOutcome) != test.marked {
					t.Errorf("discard = %v, want it refused: %t", err, test.marked)
				}
			})
		})
	}
}

// OUT-013: a refusal answers only for its own send.
func TestARefusalAfterAnUnknownSendBlocksAndKeepsTheMark(t *testing.T) {
	tests := []struct {
		refusal reply
		state   outbox.State
		marked  bool
	}{
		{reply{status: 400, code: orbit.CodeInvalidArgument}, outbox.Blocked, true},
		{reply{status: 413, code: orbit.CodeBodyTooLarge}, outbox.Blocked, true},
		{reply{status: 415, code: orbit.CodeUnsupportedMediaType}, outbox.Blocked, true},
		{reply{status: 403, code: orbit.CodePermissionDenied}, outbox.Blocked, true},
		{reply{status: 404, code: orbit.CodeNotFound}, outbox.Blocked, true},
		{reply{status: 409, code: orbit.CodeStateConflict}, outbox.Blocked, true},
		{reply{status: 409, code: orbit.CodeIdempotencyConflict}, outbox.Rejected, false},
		{reply{}, outbox.Delivered, false},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d %s", test.refusal.status, test.refusal.code), func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				seq := w.enqueueKeys("subject")[0]
				n := 0
				w.fake.answer = func(send) reply {
					if n++; n == 1 {
						return reply{status: 503, code: orbit.CodeUnavailable}
					}
					return test.refusal
				}
				w.start(w.relay(quick()))
				r := w.untilState(seq, test.state)
				if r.Last.Unknown != test.marked || r.Attempts != 2 {
					t.Errorf("marked %t after %d attempts, want %t after 2", r.Last.Unknown, r.Attempts, test.marked)
				}
			})
		})
	}
}

package outboxtest

import (
	"errors"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

var operatorCases = []testCase{
	{name: "RequeueSendsTheSameAgain", run: requeueSendsTheSameAgain},
	{name: "RequeueOfAnOldRowNeedsTheRisk", run: requeueOfAnOldRowNeedsTheRisk},
	{name: "RequeueAfterTheLatestSendNeedsTheRisk", run: requeueAfterTheLatestSendNeedsTheRisk},
	{name: "WhatIsUnknownIsNeverDiscarded", run: whatIsUnknownIsNeverDiscarded},
	{name: "ADryRunChangesNothing", run: aDryRunChangesNothing},
	{name: "ActsFitTheState", run: actsFitTheState},
	{name: "NamedRowsAreAllActedOnOrNone", run: namedRowsAreAllActedOnOrNone},
	{name: "ActsNeedANameAndAReason", run: actsNeedANameAndAReason},
	{name: "HoldsCoverTheirScope", run: holdsCoverTheirScope},
	{name: "StatusTellsCountsAgesAndLeaders", run: statusTellsCountsAgesAndLeaders},
}

func (s *suite) blocked(key string) int64 {
	s.Helper()
	seq := s.enqueue(message(key)).Seq
	n, err := s.Store.Block(s.ctx, s.lead(), []int64{seq}, refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	return seq
}

func requeueSendsTheSameAgain(s *suite) {
	seq := s.blocked("a")
	window := s.get(seq).WindowFrom
	if err := s.Store.Requeue(s.ctx, seq, operator, 0); err != nil {
		s.Fatal(err)
	}
	r := s.wantState(seq, outbox.Pending)
	if !r.SettledAt.IsZero() || r.DueAt.IsZero() || !r.WindowFrom.Equal(window) {
		s.Fatalf("row is %+v, want it due now in the window from %v", r, window)
	}
	if due := s.dueSeqs(outbox.Cursor{}, 10); len(due) != 1 {
		s.Fatalf("rows %v are due, want the requeued one", due)
	}
	entries := s.journal(seq)
	if len(entries) != 1 || entries[0].Action != "requeue" || entries[0].Act != operator || entries[0].Before != outbox.Blocked ||
		entries[0].After != outbox.Pending || entries[0].Last.Outcome != outbox.OutcomeNeedsPerson {
		s.Fatalf("journal is %+v", entries)
	}
}

func requeueOfAnOldRowNeedsTheRisk(s *suite) {
	seq := s.blocked("a")
	old := time.Now().Add(-outbox.SendWindow - time.Minute)
	s.exec("UPDATE orbit_outbox SET window_from = ? WHERE seq = ?", old.UnixMicro(), seq)
	s.wantError("Requeue", s.Store.Requeue(s.ctx, seq, operator, 0), outbox.ErrTooOld)
	s.wantState(seq, outbox.Blocked)
	if entries := s.journal(seq); len(entries) != 0 {
		s.Fatalf("journal has %+v for an act that was refused", entries)
	}
	s.wantError("Requeue with another risk", s.Store.Requeue(s.ctx, seq, operator, outbox.LateRisk), outbox.ErrTooOld)
	if err := s.Store.Requeue(s.ctx, seq, operator, outbox.DuplicateRisk); err != nil {
		s.Fatal(err)
	}
	if r := s.wantState(seq, outbox.Pending); r.ReadAt.Sub(r.WindowFrom) > time.Minute {
		s.Fatalf("window is from %v, want a new one", r.WindowFrom)
	}
}

// A row of which a send is unknown can be closed by an answer only, so there must be a
// way to send it (OUT-013, OUT-016).
func requeueAfterTheLatestSendNeedsTheRisk(s *suite) {
	seq := s.blocked("a")
	s.exec("UPDATE orbit_outbox SET not_after = ? WHERE seq = ?", time.Now().Add(-time.Minute).UnixMicro(), seq)
	s.wantError("Requeue", s.Store.Requeue(s.ctx, seq, operator, outbox.DuplicateRisk), outbox.ErrTooLate)
	s.wantState(seq, outbox.Blocked)
	if err := s.Store.Requeue(s.ctx, seq, operator, outbox.LateRisk); err != nil {
		s.Fatal(err)
	}
	if r := s.wantState(seq, outbox.Pending); !r.LateAllowed || r.NotAfter.IsZero() {
		s.Fatalf("row is %+v, want its latest time kept and waived", r)
	}
}

// OUT-012, OUT-013: neither by itself nor after a refusal that answers for another send.
func whatIsUnknownIsNeverDiscarded(s *suite) {
	seqs := s.enqueueKeys("unknown-then-refused", "refused-after-take-over", "conflict", "refused")
	l := s.lead()
	n, err := s.Store.Postpone(s.ctx, l, []int64{seqs[0], seqs[2]}, 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 2, n, err)
	n, err = s.Store.Reject(s.ctx, l, []int64{seqs[0], seqs[3]}, refusal(outbox.OutcomeRefused))
	s.want("Reject", 2, n, err)
	suspect := refusal(outbox.OutcomeNeedsPerson)
	suspect.Unknown = true
	n, err = s.Store.Block(s.ctx, l, seqs[1:2], suspect)
	s.want("Block", 1, n, err)
	n, err = s.Store.Reject(s.ctx, l, seqs[2:3], refusal(outbox.OutcomeConflict)) // answers for every send
	s.want("Reject", 1, n, err)
	for _, seq := range seqs[:2] {
		s.wantError("Discard", s.Store.Discard(s.ctx, seq, operator), outbox.ErrUnknownOutcome)
		if r := s.wantState(seq, outbox.Blocked); !r.Last.Unknown || len(s.journal(seq)) != 0 {
			s.Fatalf("a refused discard left %+v and journal %+v", r.Last, s.journal(seq))
		}
	}
	for _, seq := range seqs[2:] {
		if err := s.Store.Discard(s.ctx, seq, operator); err != nil {
			s.Fatal(err)
		}
		s.wantState(seq, outbox.Discarded)
	}
}

func aDryRunChangesNothing(s *suite) {
	seq := s.blocked("a")
	try := operator
	try.DryRun = true
	before := s.get(seq)
	for name, err := range map[string]error{
		"Requeue": s.Store.Requeue(s.ctx, seq, try, 0), "Discard": s.Store.Discard(s.ctx, seq, try), "Hold": s.Store.Hold(s.ctx, target, "", try),
	} {
		if err != nil {
			s.Fatalf("%s as a dry run = %v", name, err)
		}
	}
	s.wantError("Unhold as a dry run", s.Store.Unhold(s.ctx, target, "", try), outbox.ErrNoHold)
	s.wantError("Discard of a missing row as a dry run", s.Store.Discard(s.ctx, seq+1000, try), outbox.ErrNotFound)
	if after := s.get(seq); after.State != before.State || !after.DueAt.Equal(before.DueAt) || len(s.journal(seq)) != 0 || len(s.journal(0)) != 0 {
		s.Fatalf("a dry run made %+v of %+v, with an audit row or not", after, before)
	}
	s.holds(0)
}

func actsFitTheState(s *suite) {
	seqs := s.enqueueKeys("pending", "delivered", "rejected", "discarded")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[1:2]))
	s.want("Deliver", 1, n, err)
	n, err = s.Store.Reject(s.ctx, l, seqs[2:], refusal(outbox.OutcomeRefused))
	s.want("Reject", 2, n, err)
	if err := s.Store.Discard(s.ctx, seqs[3], operator); err != nil {
		s.Fatal(err)
	}
	for i, want := range []outbox.State{outbox.Pending, outbox.Delivered, outbox.Rejected, outbox.Discarded} {
		s.wantError("Requeue of a row that is "+want.String(), s.Store.Requeue(s.ctx, seqs[i], operator, outbox.DuplicateRisk|outbox.LateRisk), outbox.ErrState)
		if want != outbox.Rejected {
			s.wantError("Discard of a row that is "+want.String(), s.Store.Discard(s.ctx, seqs[i], operator), outbox.ErrState)
		}
		s.wantState(seqs[i], want)
	}
	s.wantError("Discard of a missing row", s.Store.Discard(s.ctx, seqs[3]+1000, operator), outbox.ErrNotFound)
}

// OUT-012
func namedRowsAreAllActedOnOrNone(s *suite) {
	seqs := s.enqueueKeys("a", "b", "pending")
	n, err := s.Store.Block(s.ctx, s.lead(), seqs[:2], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 2, n, err)
	a, b, pending := seqs[0], seqs[1], seqs[2]
	untouched := func(act string) {
		s.Helper()
		for _, seq := range []int64{a, b} {
			if s.wantState(seq, outbox.Blocked); len(s.journal(seq)) != 0 {
				s.Fatalf("%s, refused, left the journal %+v", act, s.journal(seq))
			}
		}
	}
	for name, do := range map[string]func(seqs ...int64) error{
		"RequeueRows": func(seqs ...int64) error { return s.Store.RequeueRows(s.ctx, seqs, operator, 0) },
		"DiscardRows": func(seqs ...int64) error { return s.Store.DiscardRows(s.ctx, seqs, operator) },
	} {
		s.wantError(name, do(b, a, pending), outbox.ErrState)
		untouched(name)
		s.wantError(name, do(a, b, pending+1000), outbox.ErrNotFound)
		untouched(name)
		var invalid *orbit.InvalidArgumentError
		for _, bad := range [][]int64{nil, {a, b, a}, make([]int64, outbox.MaxRows+1)} {
			if err := do(bad...); !errors.As(err, &invalid) || invalid.Field != "rows" {
				s.Fatalf("%s of %d rows = %v, want a mistake in rows", name, len(bad), err)
			}
			untouched(name)
		}
	}
	try := operator
	try.DryRun = true
	s.must("DiscardRows as a dry run", s.Store.DiscardRows(s.ctx, []int64{a, b}, try))
	untouched("a dry run")
	s.must("RequeueRows", s.Store.RequeueRows(s.ctx, []int64{b, a}, operator, 0))
	for _, seq := range []int64{a, b} {
		if s.wantState(seq, outbox.Pending); len(s.journal(seq)) != 1 {
			s.Fatalf("journal is %+v, want one line", s.journal(seq))
		}
	}
}

func actsNeedANameAndAReason(s *suite) {
	seq := s.blocked("a")
	acts := []outbox.Act{{}, {Operator: "anna"}, {Reason: "why"}, {Operator: strings.Repeat("a", 129), Reason: "why"}, {Operator: "anna", Reason: strings.Repeat("w", 1025)}}
	for _, act := range acts {
		for _, err := range []error{
			s.Store.Requeue(s.ctx, seq, act, 0), s.Store.Discard(s.ctx, seq, act),
			s.Store.Hold(s.ctx, target, "", act), s.Store.Unhold(s.ctx, target, "", act),
		} {
			if err == nil {
				s.Fatalf("an act by %+v was done", act)
			}
		}
	}
	s.wantState(seq, outbox.Blocked)
}

func holdsCoverTheirScope(s *suite) {
	scopes := [][2]string{{"", ""}, {target, ""}, {target, queue}}
	for _, scope := range scopes {
		if err := s.Store.Hold(s.ctx, scope[0], scope[1], outbox.Act{Operator: "bob", Reason: "first"}); err != nil {
			s.Fatal(err)
		}
		if err := s.Store.Hold(s.ctx, scope[0], scope[1], operator); err != nil { // again
			s.Fatal(err)
		}
	}
	covered := [][3]bool{{true, true, true}, {false, true, true}, {false, false, true}} // other target; other queue; both equal
	holds := s.holds(3)
	for i, h := range holds {
		if h.Act != operator || h.CreatedAt.IsZero() || h.Target != scopes[i][0] || h.QueueID != scopes[i][1] {
			s.Fatalf("hold is %+v, want %v by %+v", h, scopes[i], operator)
		}
		got := [3]bool{h.Covers("elsewhere", queue), h.Covers(target, otherQueue), h.Covers(target, queue)}
		if got != covered[i] {
			s.Fatalf("hold of %v covers %v, want %v", scopes[i], got, covered[i])
		}
	}
	if err := s.Store.Unhold(s.ctx, target, "", operator); err != nil {
		s.Fatal(err)
	}
	s.wantError("Unhold of what is not held", s.Store.Unhold(s.ctx, "elsewhere", "", operator), outbox.ErrNoHold)
	if holds := s.holds(2); holds[0].Target != "" || holds[1].QueueID != queue {
		s.Fatalf("holds are %+v, want those of everything and of the queue", holds)
	}
	if entries := s.journal(0); len(entries) != 7 || entries[6].Action != "unhold" || !strings.Contains(entries[6].Act.Reason, operator.Reason) {
		s.Fatalf("journal of holds is %+v", entries)
	}
	for _, scope := range [][2]string{{"", queue}, {"no blanks", ""}, {target, "short"}} {
		if err := s.Store.Hold(s.ctx, scope[0], scope[1], operator); err == nil {
			s.Fatalf("Hold of %v was done", scope)
		}
	}
}

func (s *suite) holds(want int) []outbox.Hold {
	s.Helper()
	holds, err := s.Store.Holds(s.ctx)
	if err != nil || len(holds) != want {
		s.Fatalf("Holds = %+v, %v; want %d", holds, err, want)
	}
	return holds
}

func statusTellsCountsAgesAndLeaders(s *suite) {
	st, err := s.Store.Status(s.ctx)
	if err != nil || len(st.Count) != 0 || !st.OldestPending.IsZero() || !st.OldestDue.IsZero() || len(st.Leaders) != 0 {
		s.Fatalf("status of an empty outbox = %+v, %v", st, err)
	}
	seqs := s.enqueueKeys("a", "b", "c", "d")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[:1]))
	s.want("Deliver", 1, n, err)
	n, err = s.Store.Block(s.ctx, l, seqs[1:2], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	n, err = s.Store.Postpone(s.ctx, l, seqs[2:3], time.Hour, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)
	// The row is due for an age that no clock step hides.
	s.exec("UPDATE orbit_outbox SET due_at = due_at - 60000000 WHERE seq = ?", seqs[3])
	st, err = s.Store.Status(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	if st.Count[outbox.Pending] != 2 || st.Count[outbox.Delivered] != 1 || st.Count[outbox.Blocked] != 1 || len(st.Count) != 3 {
		s.Fatalf("counts are %v", st.Count)
	}
	if !st.OldestPending.Equal(s.get(seqs[2]).CreatedAt) {
		s.Fatalf("oldest pending is of %v, want %v", st.OldestPending, s.get(seqs[2]).CreatedAt)
	}
	if age := st.At.Sub(st.OldestDue); age < time.Minute || age > 2*time.Minute {
		s.Fatalf("oldest due row waits for %v, want a minute", age)
	}
	if len(st.Leaders) != 1 || st.Leaders[0].Leader != "first" || st.Leaders[0].Epoch != l.Epoch || st.Leaders[0].Left < 59*time.Minute {
		s.Fatalf("leaders are %+v", st.Leaders)
	}
}

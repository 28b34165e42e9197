package outboxtest

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/orbitkit/orbit/outbox"
)

var journalCases = []testCase{
	{name: "EveryAnswerButAcceptedIsKept", run: everyAnswerButAcceptedIsKept},
	{name: "TheJournalOfARowIsBounded", run: theJournalOfARowIsBounded},
	{name: "ADeposedLeaderWritesNoJournal", run: aDeposedLeaderWritesNoJournal},
}

func (s *suite) attempts(seq int64) []outbox.Attempt {
	s.Helper()
	attempts, err := s.Store.Attempts(s.ctx, seq)
	if err != nil {
		s.Fatalf("Attempts: %v", err)
	}
	return attempts
}

// REL-024, OUT-012: each with its time, class, status, request id and digests, in order.
// The good path writes none.
func everyAnswerButAcceptedIsKept(s *suite) {
	seqs := s.enqueueKeys("good", "bad")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[:1]))
	s.want("Deliver", 1, n, err)
	if got := s.attempts(seqs[0]); len(got) != 0 {
		s.Fatalf("journal of an accepted row is %+v, want none", got)
	}
	answers := []outbox.Answer{
		{Outcome: outbox.OutcomeUnknown, Unknown: true, Message: "timeout"},
		{Outcome: outbox.OutcomeNotAccepted, Status: 429, Code: "QUEUE_FULL", RequestID: requestID},
		{Outcome: outbox.OutcomeMismatch, Unknown: true, Status: 200, Digest: "other:00", RequestID: requestID},
	}
	for i, a := range answers[:2] {
		n, err := s.Store.Postpone(s.ctx, l, seqs[1:], 0, a)
		s.want(fmt.Sprintf("Postpone %d", i), 1, n, err)
	}
	n, err = s.Store.Block(s.ctx, l, seqs[1:], answers[2])
	s.want("Block", 1, n, err)
	row := s.get(seqs[1])
	got := s.attempts(seqs[1])
	if len(got) != len(answers) {
		s.Fatalf("journal is %+v, want %d answers", got, len(answers))
	}
	for i, a := range got {
		want := outbox.Attempt{Number: i + 1, Leader: l.Leader, Epoch: l.Epoch, RequestSHA256: hex.EncodeToString(row.RequestSHA256[:]), Answer: answers[i], At: a.At}
		if a != want || a.At.IsZero() {
			s.Errorf("answer %d is %+v, want %+v", i+1, a, want)
		}
	}
	// What was blocked unsent has its own place, and an operator's requeue its entry.
	s.must("Requeue", s.Store.Requeue(s.ctx, seqs[1], operator, 0))
	n, err = s.Store.Block(s.ctx, l, seqs[1:], outbox.Answer{Outcome: outbox.OutcomeTooOld, Unknown: true, Message: "too old"})
	s.want("Block unsent", 1, n, err)
	h, err := s.Store.Show(s.ctx, seqs[1])
	if err != nil || h.Row.Attempts != 3 || len(h.Attempts) != 4 || len(h.Entries) != 1 || h.Row.State != outbox.Blocked {
		s.Fatalf("Show = %+v, %v; want 3 sends, 4 answers and 1 entry", h, err)
	}
	_, err = s.Store.Show(s.ctx, seqs[1]+1000)
	s.wantError("Show of a missing row", err, outbox.ErrNotFound)
}

func (s *suite) must(act string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", act, err)
	}
}

// The first 32 sends have places of their own, later ones take turns in 32 more.
func theJournalOfARowIsBounded(s *suite) {
	seq := s.enqueue(message("a")).Seq
	l := s.lead()
	send := func(number int) {
		s.exec("UPDATE orbit_outbox SET attempts = ? WHERE seq = ?", number-1, seq)
		n, err := s.Store.Postpone(s.ctx, l, []int64{seq}, 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Status: 500 + number%100})
		s.want("Postpone", 1, n, err)
	}
	kept := func(want ...int) {
		s.Helper()
		var numbers []int
		for _, a := range s.attempts(seq) {
			numbers = append(numbers, a.Number)
			if a.Answer.Status != 500+a.Number%100 {
				s.Errorf("answer of send %d has status %d", a.Number, a.Answer.Status)
			}
		}
		slices.Sort(numbers)
		if !slices.Equal(numbers, want) {
			s.Fatalf("answers of sends %v are kept, want %v", numbers, want)
		}
	}
	for _, number := range []int{1, 32, 33, 64} {
		send(number)
	}
	kept(1, 32, 33, 64)
	for _, number := range []int{65, 96, 1000, 25_001} {
		send(number)
	}
	kept(1, 32, 65, 96, 1000, 25_001) // 65 for 33, 96 for 64
}

// REL-017: neither its answers nor its journal.
func aDeposedLeaderWritesNoJournal(s *suite) {
	seqs := s.enqueueKeys("a", "b")
	l := s.lead()
	s.takeOver()
	_, err := s.Store.Postpone(s.ctx, l, seqs[:1], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.wantError("Postpone", err, outbox.ErrLeaseLost)
	_, err = s.Store.Block(s.ctx, l, seqs[1:], refusal(outbox.OutcomeNeedsPerson))
	s.wantError("Block", err, outbox.ErrLeaseLost)
	for _, seq := range seqs {
		if got := s.attempts(seq); len(got) != 0 {
			s.Fatalf("a deposed leader wrote %+v", got)
		}
		s.wantState(seq, outbox.Pending)
	}
}

package outboxtest

import (
	"encoding/hex"
	"fmt"
	"time"

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
		{Outcome: outbox.OutcomeMismatch, Status: 200, Digest: "other:00", RequestID: requestID},
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

func theJournalOfARowIsBounded(s *suite) {
	seq := s.enqueue(message("a")).Seq
	l := s.lead()
	const first, last, sends = 1, 70, 71
	// The row has been through 68 sends whose answers are there.
	for send := first; send <= sends; send++ {
		if send == 36 { // the ring is known to turn by then; skip to where it has turned whole
			s.exec("UPDATE orbit_outbox SET attempts = ? WHERE seq = ?", last-3, seq)
			send = last - 2
		}
		n, err := s.Store.Postpone(s.ctx, l, []int64{seq}, 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Status: 500 + send})
		s.want("Postpone", 1, n, err)
	}
	got := s.attempts(seq)
	numbers := map[int]bool{}
	for _, a := range got {
		numbers[a.Number] = true
		if a.Answer.Status != 500+a.Number {
			s.Errorf("answer of send %d has status %d, want %d", a.Number, a.Answer.Status, 500+a.Number)
		}
	}
	// 33 to 35 gave way to 65 to 67, of which the row skipped all but those sent.
	if len(got) > outbox.MaxAnswers || !numbers[1] || !numbers[32] || !numbers[sends] || !numbers[sends-1] {
		s.Fatalf("%d answers are kept, of sends %v; want the first 32 and the last", len(got), numbers)
	}
	s.exec("UPDATE orbit_outbox SET attempts = 32 WHERE seq = ?", seq)
	before := len(got)
	n, err := s.Store.Postpone(s.ctx, l, []int64{seq}, time.Second, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Status: 599})
	s.want("Postpone", 1, n, err)
	if got := s.attempts(seq); len(got) != before {
		s.Fatalf("%d answers after one that takes a place in use, want %d", len(got), before)
	}
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

package outboxtest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orbitkit/orbit/outbox"
)

var settleCases = []testCase{
	{name: "DeliverKeepsTheReceipt", run: deliverKeepsTheReceipt},
	{name: "DeliverOfManyRows", run: deliverOfManyRows},
	{name: "DeliverAgainIsNoChange", run: deliverAgainIsNoChange},
	{name: "DeliverAsAnotherTaskIsNotCounted", run: deliverAsAnotherTaskIsNotCounted},
	{name: "AcceptedIsWrittenOverAnyState", run: acceptedIsWrittenOverAnyState},
	{name: "PostponeMakesDueLater", run: postponeMakesDueLater},
	{name: "UnknownMarkStays", run: unknownMarkStays},
	{name: "DoubtMarksAndCountsNothing", run: doubtMarksAndCountsNothing},
	{name: "RefusalOfAMarkedRowBlocks", run: refusalOfAMarkedRowBlocks},
	{name: "ConflictClosesAMarkedRow", run: conflictClosesAMarkedRow},
	{name: "RowsClosedMeanwhileAreLeftAlone", run: rowsClosedMeanwhileAreLeftAlone},
	{name: "AnswersAreCut", run: answersAreCut},
	{name: "FrozenColumnsNeverChange", run: frozenColumnsNeverChange},
	{name: "OpenBusinessTransactionHoldsUpNoSettle", twoWriters: true, run: openTransactionHoldsUpNoSettle},
}

func deliverKeepsTheReceipt(s *suite) {
	seq := s.enqueue(message("a")).Seq
	d := delivery(seq)
	d.Status, d.Deduplicated = 200, true
	n, err := s.Store.Deliver(s.ctx, s.lead(), []outbox.Delivery{d})
	s.want("Deliver", 1, n, err)
	r := s.wantState(seq, outbox.Delivered)
	if r.TaskID != taskID || !r.Deduplicated || !r.AcceptedAt.Equal(d.AcceptedAt) || r.Attempts != 1 {
		s.Fatalf("row is %+v, want the receipt %+v", r, d)
	}
	if want := (outbox.Answer{Outcome: outbox.OutcomeAccepted, Status: 200, RequestID: requestID}); r.Last != want {
		s.Fatalf("last answer is %+v, want %+v", r.Last, want)
	}
	if !r.DueAt.IsZero() || r.SettledAt.Before(r.CreatedAt) || r.SettledAt.After(r.ReadAt) {
		s.Fatalf("due at %v, settled at %v, read at %v", r.DueAt, r.SettledAt, r.ReadAt)
	}
	if due := s.dueSeqs(outbox.Cursor{}, 10); len(due) != 0 {
		s.Fatalf("rows %v are due, want none", due)
	}
}

// deliverOfManyRows has answers of several HTTP batches, in no order: some of what they tell
// is common to many rows, some is each row's own.
func deliverOfManyRows(s *suite) {
	const rows = 301
	seqs := s.enqueueKeys(s.freshKeys(rows)...)
	want := map[int64]outbox.Delivery{}
	var ds []outbox.Delivery
	for i, seq := range seqs {
		d := delivery(seq)
		d.TaskID = fmt.Sprintf("%032x", 1000+i)
		d.RequestID = fmt.Sprintf("%032x", 1+i/100)
		d.AcceptedAt = d.AcceptedAt.Add(time.Duration(i) * time.Second)
		if i%7 == 0 {
			d.Status, d.Deduplicated = 200, true
		}
		want[seq] = d
		ds = append([]outbox.Delivery{d}, ds...)
	}
	n, err := s.Store.Deliver(s.ctx, s.lead(), ds)
	s.want("Deliver", rows, n, err)
	all, err := s.Store.List(s.ctx, outbox.Filter{States: []outbox.State{outbox.Delivered}}, 0, outbox.MaxRows)
	s.want("List", rows, len(all), err)
	for _, r := range all {
		d := want[r.Seq]
		got := outbox.Delivery{
			Seq: r.Seq, TaskID: r.TaskID, Deduplicated: r.Deduplicated, Status: r.Last.Status, RequestID: r.Last.RequestID, AcceptedAt: r.AcceptedAt,
		}
		if got != d {
			s.Fatalf("row %d holds %+v, want %+v", r.Seq, got, d)
		}
	}
}

func deliverAgainIsNoChange(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[:2]))
	s.want("Deliver", 2, n, err)
	before := s.get(seqs[0])
	n, err = s.Store.Deliver(s.ctx, l, deliveries(seqs)) // as after a lost answer
	s.want("Deliver again, and one more row", 3, n, err)
	after := s.get(seqs[0])
	after.ReadAt = before.ReadAt
	if fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) {
		s.Fatalf("row changed from %+v to %+v", before, after)
	}
	if entries := s.journal(seqs[0]); len(entries) != 0 {
		s.Fatalf("journal has %+v for a row that was only delivered", entries)
	}
}

func deliverAsAnotherTaskIsNotCounted(s *suite) {
	seqs := s.enqueueKeys("a", "b")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[:1]))
	s.want("Deliver", 1, n, err)
	ds := deliveries(append(seqs, seqs[1]+1000)) // and a row that is not there
	ds[0].TaskID = strings.Repeat("3", 32)
	n, err = s.Store.Deliver(s.ctx, l, ds)
	s.want("Deliver as another task", 1, n, err)
	if r := s.get(seqs[0]); r.TaskID != taskID {
		s.Fatalf("task id is %s, want the first, %s", r.TaskID, taskID)
	}
}

func acceptedIsWrittenOverAnyState(s *suite) {
	seqs := s.enqueueKeys("pending", "rejected", "blocked", "discarded")
	l := s.lead()
	n, err := s.Store.Reject(s.ctx, l, seqs[1:2], refusal(outbox.OutcomeRefused))
	s.want("Reject", 1, n, err)
	n, err = s.Store.Block(s.ctx, l, seqs[2:], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 2, n, err)
	if err := s.Store.Discard(s.ctx, seqs[3], operator); err != nil {
		s.Fatal(err)
	}
	n, err = s.Store.Deliver(s.ctx, l, deliveries(seqs))
	s.want("Deliver", 4, n, err)
	for i, before := range []outbox.State{outbox.Pending, outbox.Rejected, outbox.Blocked, outbox.Discarded} {
		s.wantState(seqs[i], outbox.Delivered)
		entries := s.journal(seqs[i])
		if before == outbox.Pending {
			if len(entries) != 0 {
				s.Fatalf("journal of a row that was pending: %+v", entries)
			}
			continue
		}
		e := entries[len(entries)-1]
		if e.Action != "accepted" || e.Act.Operator != "first" || e.Before != before || e.After != outbox.Delivered ||
			e.Last.Code == "" || e.Last.RequestID != requestID || e.At.IsZero() {
			s.Fatalf("journal of a row that was %v: %+v, want what was overwritten", before, e)
		}
	}
}

func postponeMakesDueLater(s *suite) {
	seqs := s.enqueueKeys("a", "b")
	l := s.lead()
	a := outbox.Answer{Outcome: outbox.OutcomeNotAccepted, Status: 429, Code: "QUEUE_FULL", Message: "queue is full", RequestID: requestID}
	for attempt := range 3 {
		n, err := s.Store.Postpone(s.ctx, l, seqs[:1], time.Hour, a)
		s.want("Postpone", 1, n, err)
		r := s.wantState(seqs[0], outbox.Pending)
		if r.Attempts != attempt+1 || r.Last != a {
			s.Fatalf("row has %d attempts and %+v, want %d and %+v", r.Attempts, r.Last, attempt+1, a)
		}
		if wait := r.DueAt.Sub(r.ReadAt); wait < 59*time.Minute || wait > time.Hour {
			s.Fatalf("row is due in %v, want an hour", wait)
		}
	}
	if due := s.dueSeqs(outbox.Cursor{}, 10); len(due) != 1 || due[0] != seqs[1] {
		s.Fatalf("rows %v are due, want only %d", due, seqs[1])
	}
}

func unknownMarkStays(s *suite) {
	seq := s.enqueue(message("a")).Seq
	l := s.lead()
	answers := []outbox.Answer{
		{Outcome: outbox.OutcomeNotAccepted, Status: 429},
		{Outcome: outbox.OutcomeUnknown, Unknown: true},
		{Outcome: outbox.OutcomeNotAccepted, Status: 429},
	}
	for i, a := range answers {
		n, err := s.Store.Postpone(s.ctx, l, []int64{seq}, 0, a)
		s.want("Postpone", 1, n, err)
		if r := s.get(seq); r.Last.Unknown != (i >= 1) {
			s.Fatalf("after answer %d the mark is %v", i, r.Last.Unknown)
		}
	}
	n, err := s.Store.Block(s.ctx, l, []int64{seq}, outbox.Answer{Outcome: outbox.OutcomeTooOld})
	s.want("Block", 1, n, err)
	if r := s.wantState(seq, outbox.Blocked); !r.Last.Unknown || r.Attempts != 3 {
		s.Fatalf("blocked row has mark %v and %d attempts, want the mark and 3", r.Last.Unknown, r.Attempts)
	}
	n, err = s.Store.Deliver(s.ctx, l, deliveries([]int64{seq}))
	s.want("Deliver", 1, n, err)
	if r := s.get(seq); r.Last.Unknown {
		s.Fatal("the mark is there after an exact answer")
	}
}

// doubtMarksAndCountsNothing: the row stays due and keeps its attempts, the mark keeps it from
// being rejected and discarded, and the journal says where the mark came from (OUT-013, REL-014).
func doubtMarksAndCountsNothing(s *suite) {
	seqs := s.enqueueKeys("doubted", "left", "deposed")
	l := s.lead()
	n, err := s.Store.Block(s.ctx, l, seqs[1:2], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	before := s.get(seqs[0])
	n, err = s.Store.Doubt(s.ctx, l, seqs[:2], outbox.Answer{Status: 302, Message: "moved"})
	s.want("Doubt", 1, n, err)
	want := outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true, Status: 302, Message: "moved"}
	if r := s.wantState(seqs[0], outbox.Pending); r.Last != want || r.Attempts != 0 || !r.DueAt.Equal(before.DueAt) {
		s.Fatalf("row is %+v, want it as before with %+v", r, want)
	}
	if r := s.wantState(seqs[1], outbox.Blocked); r.Last.Unknown {
		s.Fatal("a row that was closed meanwhile was marked")
	}
	n, err = s.Store.Reject(s.ctx, l, seqs[:1], refusal(outbox.OutcomeRefused))
	s.want("Reject", 1, n, err)
	if got := s.attempts(seqs[0]); len(got) != 2 || got[0].Answer != want || got[0].Number != 0 || got[1].Number != 1 {
		s.Fatalf("journal is %+v, want the doubt and the refusal", got)
	}
	s.wantState(seqs[0], outbox.Blocked)
	s.wantError("Discard", s.Store.Discard(s.ctx, seqs[0], operator), outbox.ErrUnknownOutcome)
	s.takeOver()
	_, err = s.Store.Doubt(s.ctx, l, seqs[2:], want)
	s.wantError("Doubt of a deposed leader", err, outbox.ErrLeaseLost)
	if r := s.get(seqs[2]); r.Last.Unknown {
		s.Fatal("a deposed leader marked a row")
	}
}

// refusalOfAMarkedRowBlocks is OUT-013: a refusal answers for its own send alone.
func refusalOfAMarkedRowBlocks(s *suite) {
	seqs := s.enqueueKeys("clean", "marked", "doubtful")
	l := s.lead()
	n, err := s.Store.Postpone(s.ctx, l, seqs[1:2], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)
	n, err = s.Store.Reject(s.ctx, l, seqs[:2], refusal(outbox.OutcomeRefused))
	s.want("Reject", 2, n, err)
	doubt := refusal(outbox.OutcomeRefused)
	doubt.Unknown = true // such as after a take-over
	n, err = s.Store.Reject(s.ctx, l, seqs[2:], doubt)
	s.want("Reject in doubt", 1, n, err)
	for i, want := range []outbox.State{outbox.Rejected, outbox.Blocked, outbox.Blocked} {
		if r := s.wantState(seqs[i], want); r.Last.Unknown != (i > 0) || r.Last.Code == "" || r.SettledAt.IsZero() {
			s.Fatalf("row %d is %+v", seqs[i], r)
		}
	}
}

func conflictClosesAMarkedRow(s *suite) {
	seq := s.enqueue(message("a")).Seq
	l := s.lead()
	n, err := s.Store.Postpone(s.ctx, l, []int64{seq}, 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)
	a := outbox.Answer{Outcome: outbox.OutcomeConflict, Status: 409, Code: "IDEMPOTENCY_CONFLICT", Digest: "orbit-json-v1:" + strings.Repeat("a", 64)}
	n, err = s.Store.Reject(s.ctx, l, []int64{seq}, a)
	s.want("Reject", 1, n, err)
	if r := s.wantState(seq, outbox.Rejected); r.Last != a {
		s.Fatalf("last answer is %+v, want %+v", r.Last, a)
	}
}

func rowsClosedMeanwhileAreLeftAlone(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c")
	l := s.lead()
	n, err := s.Store.Block(s.ctx, l, seqs[1:2], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	if err := s.Store.Discard(s.ctx, seqs[1], operator); err != nil {
		s.Fatal(err)
	}
	n, err = s.Store.Postpone(s.ctx, l, seqs, time.Hour, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 2, n, err)
	n, err = s.Store.Reject(s.ctx, l, seqs, refusal(outbox.OutcomeRefused))
	s.want("Reject", 2, n, err)
	s.wantState(seqs[1], outbox.Discarded)
}

func answersAreCut(s *suite) {
	seq := s.enqueue(message("a")).Seq
	long := outbox.Answer{
		Outcome: outbox.OutcomeRefused, Status: 400, Code: strings.Repeat("C", 500),
		Message: "\xff" + strings.Repeat("界", 1000), Digest: strings.Repeat("d", 500),
	}
	n, err := s.Store.Reject(s.ctx, s.lead(), []int64{seq}, long)
	s.want("Reject", 1, n, err)
	r := s.get(seq)
	if len(r.Last.Code) != 64 || len(r.Last.Digest) != 128 || len(r.Last.Message) > 1024 || len(r.Last.Message) < 1020 || !utf8.ValidString(r.Last.Message) {
		s.Fatalf("kept %d, %d and %d bytes of code, digest and message", len(r.Last.Code), len(r.Last.Digest), len(r.Last.Message))
	}
}

// frozenColumnsNeverChange is OUT-008, over everything that can happen to a row.
func frozenColumnsNeverChange(s *suite) {
	m := message("a")
	m.NotBefore = time.Now().Add(-time.Minute)
	m.NotAfter = time.Now().Add(time.Hour)
	m.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seq := s.enqueue(m).Seq
	before := frozen(s.get(seq))
	l := s.lead()
	unknown := outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true}
	steps := []struct {
		name string
		do   func() error
	}{
		{"repeat", func() error { s.enqueue(m); return nil }},
		{"postpone", func() error { _, err := s.Store.Postpone(s.ctx, l, []int64{seq}, time.Second, unknown); return err }},
		{"block", func() error {
			_, err := s.Store.Block(s.ctx, l, []int64{seq}, refusal(outbox.OutcomeNeedsPerson))
			return err
		}},
		{"requeue", func() error { return s.Store.Requeue(s.ctx, seq, operator, 0) }},
		{"reject", func() error {
			_, err := s.Store.Reject(s.ctx, l, []int64{seq}, refusal(outbox.OutcomeConflict))
			return err
		}},
		{"discard", func() error { return s.Store.Discard(s.ctx, seq, operator) }},
		{"deliver", func() error { _, err := s.Store.Deliver(s.ctx, l, deliveries([]int64{seq})); return err }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			s.Fatalf("%s: %v", step.name, err)
		}
		if after := frozen(s.get(seq)); after != before {
			s.Fatalf("%s changed a frozen column from\n%s\nto\n%s", step.name, before, after)
		}
	}
	s.wantState(seq, outbox.Delivered)
}

// frozen renders the columns of a row that are never updated.
func frozen(r outbox.Row) string {
	r.State, r.DueAt, r.WindowFrom, r.Attempts, r.Last = 0, time.Time{}, time.Time{}, 0, outbox.Answer{}
	r.TaskID, r.Deduplicated, r.AcceptedAt, r.SettledAt, r.LateAllowed, r.ReadAt = "", false, time.Time{}, time.Time{}, false, time.Time{}
	return fmt.Sprintf("%+v", r)
}

// openTransactionHoldsUpNoSettle: on a young table an engine may rather read all rows
// than look up a few, and would wait for those that are being added.
func openTransactionHoldsUpNoSettle(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c", "d")
	l := s.lead()
	open := s.begin()
	s.enqueueIn(open, message("open"))
	counts, errs := s.settleEach(s.Store, l, seqs) // waits for ever, or not at all
	if counts != [4]int{1, 1, 1, 1} || errs != [4]error{} {
		s.Fatalf("settled %v rows, %v; want one each", counts, errs)
	}
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs))
	s.want("Deliver", 4, n, err)
	s.commit(open)
}

// freshKeys returns keys that no other call returns.
func (s *suite) freshKeys(n int) (keys []string) {
	base := s.rows()
	for i := range n {
		keys = append(keys, fmt.Sprintf("fresh:%d:%d", base, i))
	}
	return keys
}

func (s *suite) journal(seq int64) []outbox.Entry {
	s.Helper()
	entries, err := s.Store.Journal(s.ctx, seq, 0, 100)
	if err != nil {
		s.Fatalf("Journal: %v", err)
	}
	return entries
}

package outboxtest

import (
	"strings"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

var purgeCases = []testCase{
	{name: "PurgeTakesOldDeliveredRowsOnly", run: purgeTakesOldDeliveredRowsOnly},
	{name: "PurgeEndsAtYoungRows", run: purgeEndsAtYoungRows},
	{name: "PurgeAllIsAudited", run: purgeAllIsAudited},
	{name: "PurgedKeyCanBeEnqueuedAgain", run: purgedKeyCanBeEnqueuedAgain},
}

func purgeTakesOldDeliveredRowsOnly(s *suite) {
	seqs := s.enqueueKeys("pending", "old", "rejected", "blocked", "young", "old2", "unknown")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries([]int64{seqs[1], seqs[4], seqs[5]}))
	s.want("Deliver", 3, n, err)
	n, err = s.Store.Reject(s.ctx, l, seqs[2:3], refusal(outbox.OutcomeRefused))
	s.want("Reject", 1, n, err)
	n, err = s.Store.Block(s.ctx, l, seqs[3:4], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	n, err = s.Store.Postpone(s.ctx, l, seqs[6:], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)
	// A row that had other answers before takes its journal along.
	n, err = s.Store.Postpone(s.ctx, l, seqs[:1], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)
	n, err = s.Store.Deliver(s.ctx, l, deliveries(seqs[:1]))
	s.want("Deliver", 1, n, err)
	const hours = 48 * 3_600_000_000
	s.exec("UPDATE orbit_outbox SET created_at = created_at - ?", hours)
	s.exec("UPDATE orbit_outbox SET settled_at = settled_at - ? WHERE settled_at > 0 AND seq <> ?", hours, seqs[4])
	gone := s.purge(24*time.Hour, 2)
	if gone != 3 {
		s.Fatalf("%d rows purged, want 3", gone)
	}
	for seq, answers := range map[int64]int{seqs[0]: 0, seqs[2]: 1, seqs[6]: 1} {
		if got := s.attempts(seq); len(got) != answers {
			s.Fatalf("journal of row %d has %+v, want %d answers", seq, got, answers)
		}
	}
	want := []outbox.State{0, 0, outbox.Rejected, outbox.Blocked, outbox.Delivered, 0, outbox.Pending}
	for i, state := range want {
		if state != 0 {
			s.wantState(seqs[i], state)
			continue
		}
		_, err := s.Store.Get(s.ctx, seqs[i])
		s.wantError("Get of a purged row", err, outbox.ErrNotFound)
	}
}

// purge runs to the end in steps of limit rows.
func (s *suite) purge(age time.Duration, limit int) (gone int) {
	s.Helper()
	for next := int64(0); ; {
		p, err := s.Store.Purge(s.ctx, age, next, limit)
		if err != nil || p.Rows > limit || p.Next != 0 && p.Next <= next {
			s.Fatalf("Purge after %d = %+v, %v", next, p, err)
		}
		gone += p.Rows
		if next = p.Next; next == 0 {
			return gone
		}
	}
}

func purgeEndsAtYoungRows(s *suite) {
	seqs := s.enqueueKeys(s.freshKeys(50)...)
	n, err := s.Store.Deliver(s.ctx, s.lead(), deliveries(seqs))
	s.want("Deliver", 50, n, err)
	p, err := s.Store.Purge(s.ctx, 24*time.Hour, 0, 10)
	if err != nil || p != (outbox.Purged{}) {
		s.Fatalf("Purge of young rows = %+v, %v; want it to end at once", p, err)
	}
	for _, bad := range []func() error{
		func() error { _, err := s.Store.Purge(s.ctx, -1, 0, 10); return err },
		func() error { _, err := s.Store.Purge(s.ctx, 0, 0, 0); return err },
		func() error { _, err := s.Store.Purge(s.ctx, 0, 0, outbox.MaxRows+1); return err },
	} {
		if bad() == nil {
			s.Fatal("Purge took a bad argument")
		}
	}
}

func purgedKeyCanBeEnqueuedAgain(s *suite) {
	first := s.enqueue(message("a")).Seq
	n, err := s.Store.Deliver(s.ctx, s.lead(), deliveries([]int64{first}))
	s.want("Deliver", 1, n, err)
	s.eventually("the row is old enough for an age of nothing", func() bool { return s.purge(0, 10) == 1 })
	again := s.enqueue(message("a"))
	if again.Existing || again.Seq == first {
		s.Fatalf("Enqueue after the purge of row %d = %+v, want a new row", first, again)
	}
}

// OUT-018.
func purgeAllIsAudited(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c")
	n, err := s.Store.Deliver(s.ctx, s.lead(), deliveries(seqs[:2]))
	s.want("Deliver", 2, n, err)
	s.exec("UPDATE orbit_outbox SET settled_at = settled_at - 60000000 WHERE settled_at > 0")
	try := operator
	try.DryRun = true
	if gone, err := s.Store.PurgeAll(s.ctx, time.Second, try); gone != 2 || err != nil || s.rows() != 3 {
		s.Fatalf("dry run = %d, %v, and %d rows are left; want it to tell of 2 of 3", gone, err, s.rows())
	}
	if gone, err := s.Store.PurgeAll(s.ctx, time.Second, operator); gone != 2 || err != nil || s.rows() != 1 {
		s.Fatalf("PurgeAll = %d, %v, and %d rows are left; want 2 and 1", gone, err, s.rows())
	}
	entries := s.journal(0)
	if len(entries) != 1 || entries[0].Action != "purge" || entries[0].Act.Operator != operator.Operator ||
		!strings.Contains(entries[0].Act.Reason, "2 rows") || !strings.Contains(entries[0].Act.Reason, operator.Reason) {
		s.Fatalf("journal is %+v, want one purge of 2 rows", entries)
	}
	for _, bad := range []func() error{
		func() error { _, err := s.Store.PurgeAll(s.ctx, -1, operator); return err },
		func() error { _, err := s.Store.PurgeAll(s.ctx, 0, outbox.Act{}); return err },
	} {
		if bad() == nil {
			s.Fatal("PurgeAll took a bad argument")
		}
	}
}

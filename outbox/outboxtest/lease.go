package outboxtest

import (
	"errors"
	"sync"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

var leaseCases = []testCase{
	{name: "LeadIsExclusive", run: leadIsExclusive},
	{name: "OneOfManyLeads", run: oneOfManyLeads},
	{name: "ReleaseLetsAnotherLeadAtOnce", run: releaseLetsAnotherLeadAtOnce},
	{name: "LeaseEndsByItself", run: leaseEndsByItself},
	{name: "RenewKeepsTheLead", run: renewKeepsTheLead},
	{name: "RenewAfterTheEndIsPossibleUntilTaken", run: renewAfterTheEnd},
	{name: "RenewOfALostLeaseFails", run: renewOfALostLeaseFails},
	{name: "SameNameIsNoSameLeader", run: sameNameIsNoSameLeader},
	{name: "ShardsAreLedApart", run: shardsAreLedApart},
	{name: "DeposedLeaderSettlesNothing", run: deposedLeaderSettlesNothing},
	{name: "ReleasedLeaderSettlesNothing", run: releasedLeaderSettlesNothing},
	{name: "LeaseOfAnotherShardSettlesNothing", run: leaseOfAnotherShardSettlesNothing},
	{name: "SettleDuringAChangeOfLeader", run: settleDuringAChangeOfLeader},
}

func leadIsExclusive(s *suite) {
	before := time.Now()
	l := s.lead()
	if l.Epoch < 1 || l.TookOver || l.Shard != 0 || l.Leader != "first" || l.Since.IsZero() {
		s.Fatalf("lease is %+v", l)
	}
	if l.Deadline.Before(before.Add(time.Hour)) || l.Deadline.After(time.Now().Add(time.Hour)) {
		s.Fatalf("deadline is %v away, want an hour", time.Until(l.Deadline))
	}
	_, err := s.Other.Lead(s.ctx, 0, "second", time.Hour)
	s.wantError("second Lead", err, outbox.ErrLeaseHeld)
	var held *outbox.LeaseHeldError
	if !errors.As(err, &held) || held.Leader != "first" || held.Left < 59*time.Minute || held.Left > time.Hour {
		s.Fatalf("second Lead = %v, want the leader's name and an hour", err)
	}
}

func oneOfManyLeads(s *suite) {
	for round := range 5 {
		var mu sync.Mutex
		var leases []outbox.Lease
		var group sync.WaitGroup
		for i := range 8 {
			store := []Store{s.Store, s.Other}[i%2]
			group.Go(func() {
				l, err := store.Lead(s.ctx, 0, "racer", time.Hour)
				if err != nil && !errors.Is(err, outbox.ErrLeaseHeld) {
					s.Errorf("Lead: %v", err)
				}
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					leases = append(leases, l)
				}
			})
		}
		group.Wait()
		if len(leases) != 1 {
			s.Fatalf("round %d: %d leaders of one shard: %+v", round, len(leases), leases)
		}
		s.exec("UPDATE orbit_outbox_lease SET expires_at = 1 WHERE shard = 0")
	}
}

func releaseLetsAnotherLeadAtOnce(s *suite) {
	first := s.lead()
	if err := s.Store.Release(s.ctx, first); err != nil {
		s.Fatal(err)
	}
	second, err := s.Other.Lead(s.ctx, 0, "second", time.Hour)
	if err != nil || second.Epoch <= first.Epoch || second.TookOver {
		s.Fatalf("Lead after Release = %+v, %v; want a later epoch than %d, taken over from nobody", second, err, first.Epoch)
	}
	if err := s.Store.Release(s.ctx, first); err != nil { // again, and late
		s.Fatal(err)
	}
	if _, err := s.Other.Renew(s.ctx, second, time.Hour); err != nil {
		s.Fatalf("a late Release of the first leader ended the lead of the second: %v", err)
	}
}

func leaseEndsByItself(s *suite) {
	first, err := s.Store.Lead(s.ctx, 0, "first", 50*time.Millisecond)
	if err != nil {
		s.Fatal(err)
	}
	s.eventually("the lease ends and another relay leads", func() bool {
		second, err := s.Other.Lead(s.ctx, 0, "second", time.Hour)
		if errors.Is(err, outbox.ErrLeaseHeld) {
			return false
		}
		if err != nil || second.Epoch <= first.Epoch || !second.TookOver {
			s.Fatalf("Lead after the end = %+v, %v; want a later epoch than %d, taken over", second, err, first.Epoch)
		}
		if time.Now().Before(first.Deadline.Add(-50 * time.Millisecond)) {
			s.Fatal("the lease ended before it was taken")
		}
		return true
	})
}

func renewKeepsTheLead(s *suite) {
	first, err := s.Store.Lead(s.ctx, 0, "first", time.Second)
	if err != nil {
		s.Fatal(err)
	}
	renewed, err := s.Store.Renew(s.ctx, first, time.Hour)
	if err != nil || renewed.Epoch != first.Epoch || !renewed.Deadline.After(first.Deadline) {
		s.Fatalf("Renew = %+v, %v", renewed, err)
	}
	_, err = s.Other.Lead(s.ctx, 0, "second", time.Hour)
	var held *outbox.LeaseHeldError
	if !errors.As(err, &held) || held.Left < 59*time.Minute {
		s.Fatalf("Lead after Renew = %v, want the lease to be held for an hour", err)
	}
}

func renewAfterTheEnd(s *suite) {
	first := s.lead()
	s.exec("UPDATE orbit_outbox_lease SET expires_at = 1 WHERE shard = 0")
	if _, err := s.Store.Renew(s.ctx, first, time.Hour); err != nil {
		s.Fatalf("Renew of a lease that nobody has taken: %v", err)
	}
	_, err := s.Other.Lead(s.ctx, 0, "second", time.Hour)
	s.wantError("Lead after it", err, outbox.ErrLeaseHeld)
}

func renewOfALostLeaseFails(s *suite) {
	first := s.lead()
	second := s.takeOver()
	_, err := s.Store.Renew(s.ctx, first, time.Hour)
	s.wantError("Renew", err, outbox.ErrLeaseLost)
	if _, err := s.Other.Renew(s.ctx, second, time.Hour); err != nil {
		s.Fatalf("Renew by the new leader: %v", err)
	}
	if err := s.Other.Release(s.ctx, second); err != nil {
		s.Fatal(err)
	}
	_, err = s.Other.Renew(s.ctx, second, time.Hour)
	s.wantError("Renew after Release", err, outbox.ErrLeaseLost)
}

// sameNameIsNoSameLeader: a process that starts again under its old name must not think
// that it leads, since the old one may still run.
func sameNameIsNoSameLeader(s *suite) {
	s.lead()
	_, err := s.Other.Lead(s.ctx, 0, "first", time.Hour)
	s.wantError("Lead under the same name", err, outbox.ErrLeaseHeld)
}

func shardsAreLedApart(s *suite) {
	s.lead()
	l, err := s.Other.Lead(s.ctx, 1, "second", time.Hour)
	if err != nil || l.Shard != 1 {
		s.Fatalf("Lead of another shard = %+v, %v", l, err)
	}
}

// settleEach tries each way to settle rows 0 to 3 under a lease and returns what changed.
func (s *suite) settleEach(store Store, l outbox.Lease, seqs []int64) (counts [4]int, errs [4]error) {
	counts[0], errs[0] = store.Deliver(s.ctx, l, deliveries(seqs[:1]))
	counts[1], errs[1] = store.Reject(s.ctx, l, seqs[1:2], refusal(outbox.OutcomeRefused))
	counts[2], errs[2] = store.Block(s.ctx, l, seqs[2:3], refusal(outbox.OutcomeNeedsPerson))
	counts[3], errs[3] = store.Postpone(s.ctx, l, seqs[3:4], time.Hour, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	return counts, errs
}

func (s *suite) wantNothingSettled(who string, store Store, l outbox.Lease, seqs []int64) {
	s.Helper()
	counts, errs := s.settleEach(store, l, seqs)
	for i := range counts {
		if counts[i] != 0 || !errors.Is(errs[i], outbox.ErrLeaseLost) {
			s.Errorf("%s: settle %d changed %d rows, %v; want none, ErrLeaseLost", who, i, counts[i], errs[i])
		}
	}
	for _, seq := range seqs {
		if r := s.get(seq); r.State != outbox.Pending || r.Attempts != 0 {
			s.Errorf("%s: row %d is %v with %d attempts, want it untouched", who, seq, r.State, r.Attempts)
		}
	}
}

func deposedLeaderSettlesNothing(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c", "d")
	first := s.lead()
	second := s.takeOver()
	s.wantNothingSettled("deposed leader", s.Store, first, seqs)
	counts, errs := s.settleEach(s.Other, second, seqs)
	if counts != [4]int{1, 1, 1, 1} || errs != [4]error{} {
		s.Fatalf("the new leader changed %v rows, %v; want one each", counts, errs)
	}
}

func releasedLeaderSettlesNothing(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c", "d")
	l := s.lead()
	if err := s.Store.Release(s.ctx, l); err != nil {
		s.Fatal(err)
	}
	s.wantNothingSettled("leader after Release", s.Store, l, seqs)
}

func leaseOfAnotherShardSettlesNothing(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c", "d")
	l, err := s.Store.Lead(s.ctx, 1, "first", time.Hour)
	if err != nil {
		s.Fatal(err)
	}
	counts, errs := s.settleEach(s.Store, l, seqs)
	if counts != [4]int{} || errs != [4]error{} {
		s.Fatalf("a lease of shard 1 changed %v rows of shard 0, %v", counts, errs)
	}
}

// settleDuringAChangeOfLeader: whichever comes first, settle or change of leader, rows
// settled are rows of a lease in force, and a settle that lost says so.
func settleDuringAChangeOfLeader(s *suite) {
	for range 8 {
		seqs := s.enqueueKeys(s.freshKeys(3)...)
		s.exec("UPDATE orbit_outbox_lease SET expires_at = 1 WHERE shard = 0")
		l := s.lead()
		var n int
		var err error
		var group sync.WaitGroup
		group.Go(func() { n, err = s.Store.Deliver(s.ctx, l, deliveries(seqs)) })
		second := s.takeOver()
		group.Wait()
		if err != nil && !errors.Is(err, outbox.ErrLeaseLost) || err == nil && n != 3 || err != nil && n != 0 {
			s.Fatalf("Deliver during a change of leader = %d, %v; want all or ErrLeaseLost", n, err)
		}
		k, err := s.Other.Deliver(s.ctx, second, deliveries(seqs))
		s.want("Deliver by the new leader", 3, k, err)
	}
}

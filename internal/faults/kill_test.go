//go:build linux

package faults

import (
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/wire"
)

// Issue C, "worker killed while LEASED": nobody may have done anything, so both kinds of
// task run again once the lease is over, not before, under a greater token; what waited for
// their keys goes on.
func TestWorkerKilledBeforeItsStartCostsOnlyTheLease(t *testing.T) { // WRK-021, LIC-019, TOK-011, TEST-009
	onEngines(t, func(s *scene) {
		n := s.startNode("node-a")
		c := s.client(n)
		p := startProxy(s.T, n.addr)
		p.holdBack(wire.TypeStart)
		victim := s.startWorker("victim", p.url)
		ids := []string{
			s.submit(c, order{key: "idempotent"}),
			s.submit(c, order{key: "reconcile", reconcil: true}),
		}
		var first []orbit.Attempt
		for _, id := range ids {
			s.awaitState(c, id, orbit.StateLeased)
			a := s.attempts(c, id)[0]
			poll(s.T, "the start to be lost on its way", func() bool { return p.hasLost(wire.TypeStart, a.ID) })
			first = append(first, a)
		}
		victim.kill(s.T)
		heir := s.startWorker("heir", n.url)
		behind := s.submit(c, order{key: "idempotent"})
		for i, id := range ids {
			task := s.awaitState(c, id, orbit.StateSucceeded)
			s.endedBeforeTheNext(s.attempts(c, id), first[i], orbit.OutcomeExpired)
			if task.EffectUncertain || heir.count(evStart, id) != 1 || victim.count(evStart, id) != 0 {
				s.Errorf("task %s: uncertain %v, ran %d times in the heir and %d times in the victim; want false, 1, 0", id, task.EffectUncertain, heir.count(evStart, id), victim.count(evStart, id))
			}
		}
		s.awaitState(c, behind, orbit.StateSucceeded)
	})
}

// Issue C, "worker killed while RUNNING": what may be repeated is repeated under a greater
// token, what may not is a person's matter; the keys of both are free when the lease is
// over, and not before.
func TestWorkerKilledWhileRunning(t *testing.T) { // TEST-021, WRK-021, LIC-019, KEY-017, TOK-011
	onEngines(t, func(s *scene) {
		n := s.startNode("node-a")
		c := s.client(n)
		victim := s.startWorker("victim", n.url)
		again := s.submit(c, order{key: "idempotent", work: work{Hold: true}})
		review := s.submit(c, order{key: "reconcile", reconcil: true, work: work{Hold: true}})
		s.expect(review, orbit.StateNeedsReview)
		victim.awaitStart(s, again)
		victim.awaitStart(s, review)
		victim.kill(s.T)
		first, second := s.attempts(c, again)[0], s.attempts(c, review)[0]
		if first.State != orbit.AttemptRunning || second.State != orbit.AttemptRunning {
			s.Fatalf("after the kill the attempts are %s and %s, want RUNNING: a closed connection releases nothing", first.State, second.State)
		}
		heir := s.startWorker("heir", n.url)
		behind := []string{s.submit(c, order{key: "idempotent"}), s.submit(c, order{key: "reconcile"})}

		heir.awaitStart(s, again)
		heir.release(s, again)
		if task := s.awaitState(c, again, orbit.StateSucceeded); task.EffectUncertain || task.AttemptCount != 2 {
			s.Errorf("repeated task: uncertain %v after %d attempts, want false after 2", task.EffectUncertain, task.AttemptCount)
		}
		s.endedBeforeTheNext(s.attempts(c, again), first, orbit.OutcomeUnknown)
		if task := s.awaitState(c, review, orbit.StateNeedsReview); !task.EffectUncertain || task.AttemptCount != 1 || heir.count(evStart, review) != 0 {
			s.Errorf("task in review: uncertain %v after %d attempts, want true after 1", task.EffectUncertain, task.AttemptCount)
		}
		for i, id := range behind {
			s.awaitState(c, id, orbit.StateSucceeded)
			next := s.attempts(c, id)[0]
			last := []orbit.Attempt{first, second}[i]
			if next.ConcurrencyToken <= last.ConcurrencyToken || next.ClaimedAt.Before(*last.LeaseUntil) {
				s.Errorf("after the killed attempt with token %d and a lease until %v, the key was given with token %d at %v", last.ConcurrencyToken, last.LeaseUntil, next.ConcurrencyToken, next.ClaimedAt)
			}
		}
	})
}

// endedBeforeTheNext holds the attempts of a task to this: the one seen alive ended with
// its lease, as outcome says, and the next began after it under a greater token.
func (s *scene) endedBeforeTheNext(all []orbit.Attempt, alive orbit.Attempt, outcome string) {
	s.Helper()
	if len(all) != 2 || all[0].ID != alive.ID {
		s.Errorf("%d attempts %+v, want 2", len(all), all)
		return
	}
	was, next := all[0], all[1]
	const granularity = time.Millisecond // of times as they are shown
	if was.Outcome != outcome || was.EndedAt.Add(granularity).Before(*alive.LeaseUntil) {
		s.Errorf("the attempt ended %s at %v, want %s and not before its lease did at %v", was.Outcome, was.EndedAt, outcome, alive.LeaseUntil)
	}
	if next.ConcurrencyToken <= was.ConcurrencyToken || next.ClaimedAt.Add(granularity).Before(*was.EndedAt) {
		s.Errorf("the next attempt has token %d from %v, want one above %d from %v on", next.ConcurrencyToken, next.ClaimedAt, was.ConcurrencyToken, was.EndedAt)
	}
}

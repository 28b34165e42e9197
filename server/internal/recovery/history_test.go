package recovery_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/query"
	"github.com/orbitkit/orbit/server/internal/task"
)

// More expired tasks than one batch takes lie before the one in question. It is recovered
// none the less, its second attempt succeeds, and its history is the same in pages of one, in
// one page and piece by piece.
func TestHistoryIsWholeAfterARecoveryBehindOthers(t *testing.T) { // TEST-018
	const others = 130 // recovery takes 100 at a time
	run(t, func(s scene) {
		s.expireMany(others)
		x := spec{Queue: s.w.NewQueue("original"), Key: "object", Idempotent: true, MaxAttempts: 2}
		first, g := s.lease(x, true)
		s.expire(first.Attempt, false)
		var found []int
		for s.w.Task(g.Task).State == "RUNNING" {
			n, err := s.r.ExpireLeases(s.Context())
			if err != nil || n == 0 || n > 100 {
				s.Fatalf("ExpireLeases = %d, %v after %v; want batches of 1 to 100", n, err, found)
			}
			found = append(found, n)
		}
		if !slices.Equal(found, []int{100, others - 100 + 1}) {
			s.Errorf("leases were found in batches of %v, want 100 and the rest", found)
		}
		if got := s.w.Task(g.Task); got.State != "WAITING" || !got.Uncertain || got.Attempts != 1 {
			s.Fatalf("original = %+v, want it WAITING with an unknown effect", got)
		}
		second := s.succeedBehind(x, first)
		if got := s.w.Task(g.Task); got.State != "SUCCEEDED" || got.Uncertain || got.Attempts != 2 {
			s.Errorf("original = %+v, want it succeeded in its second attempt", got)
		}
		s.checkAttempts(g.Task, second, first)
		s.checkEvidence(g.Task, second, first)
	})
}

// expireMany leaves n started tasks whose leases have ended, all before now.
func (s scene) expireMany(n int) {
	s.Helper()
	x := spec{Queue: s.w.NewQueue("earlier"), Delay: -time.Minute}
	s.w.Flood(n, x)
	for n > 0 {
		taker := s.w.Taker(n, x.Lane())
		c, err := s.node.Claim(s.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
		if err != nil || len(c.Grants) == 0 {
			s.Fatalf("Claim = %+v, %v; want some of %d tasks", c, err, n)
		}
		var refs []dispatch.Ref
		for _, g := range c.Grants {
			refs = append(refs, dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: s.w.Namespace})
		}
		if _, err := s.node.Start(s.Context(), refs); err != nil {
			s.Fatalf("Start = %v", err)
		}
		n -= len(refs)
	}
	s.w.Exec("UPDATE attempt SET lease_until = ? WHERE live = 1", s.w.Now()-60e6)
}

// succeedBehind runs the second attempt of x to its success. What the first reports before,
// between and after it is kept as evidence.
func (s scene) succeedBehind(x spec, first dispatch.Ref) (second dispatch.Ref) {
	s.Helper()
	late := func(receipt string) {
		s.Helper()
		f := dispatch.Finish{Ref: first, Receipt: []byte(receipt), Outcome: task.OutcomeSucceeded, Result: []byte(`{"of": "the first"}`)}
		if got, err := s.node.Finish(s.Context(), []dispatch.Finish{f}); err != nil || got[0].Status == wire.FinishRecorded || got[0].Refusal != nil {
			s.Fatalf("late Finish = %+v, %v; want it kept and not recorded", got, err)
		}
		for at := s.w.Now(); s.w.Now()/1000 == at/1000; { // each has a time of its own
		}
	}
	late("before")
	if _, err := s.r.PromoteDelayed(s.Context()); err != nil {
		s.Fatalf("PromoteDelayed = %v", err)
	}
	second, g := s.claim(x, true)
	if g.Epoch != 2 || g.Token <= 1 {
		s.Errorf("second attempt = %+v, want epoch 2 and a larger token", g)
	}
	late("between")
	f := dispatch.Finish{Ref: second, Receipt: []byte("r"), Outcome: task.OutcomeSucceeded, Result: []byte(`{"of": "the second"}`)}
	if got, err := s.node.Finish(s.Context(), []dispatch.Finish{f}); err != nil || got[0].Status != wire.FinishRecorded {
		s.Fatalf("Finish = %+v, %v; want it recorded", got, err)
	}
	late("after")
	return second
}

// checkAttempts reads the attempts in every way; they are want, the newest first.
func (s scene) checkAttempts(id sqldb.ID, want ...dispatch.Ref) {
	s.Helper()
	r := query.New(s.db.DB)
	whole, err := r.Attempts(s.Context(), query.Scope{}, id, 0, 100)
	if err != nil || whole.NextEpoch != 0 || len(whole.Attempts) != len(want) {
		s.Fatalf("Attempts = %+v, %v; want %d in one page", whole, err, len(want))
	}
	var paged []*orbit.Attempt
	for below := int64(0); ; {
		page, err := r.Attempts(s.Context(), query.Scope{}, id, below, 1)
		if err != nil || len(page.Attempts) != 1 {
			s.Fatalf("page below %d = %+v, %v; want one attempt", below, page, err)
		}
		paged = append(paged, page.Attempts...)
		if below = page.NextEpoch; below == 0 {
			break
		}
	}
	if !reflect.DeepEqual(paged, whole.Attempts) {
		s.Errorf("attempts by pages = %+v, in one page %+v", paged, whole.Attempts)
	}
	outcomes, results := []string{orbit.OutcomeSucceeded, orbit.OutcomeUnknown}, []string{`{"of": "the second"}`, ""}
	for i, a := range whole.Attempts {
		one, err := r.Attempt(s.Context(), query.Scope{}, id, want[i].Attempt)
		if err != nil || !reflect.DeepEqual(one, a) {
			s.Errorf("attempt alone = %+v, %v; in the list %+v", one, err, a)
		}
		if a.ID != want[i].Attempt.String() || a.Outcome != outcomes[i] || string(a.Result) != results[i] || a.Number != uint64(len(want)-i) {
			s.Errorf("attempt %d = %+v", i, a)
		}
	}
	if a := whole.Attempts; a[1].Reason != "lease_expired" || a[1].FenceToken != a[1].ConcurrencyToken+1 || a[0].ConcurrencyToken <= a[1].FenceToken {
		s.Errorf("attempts = %+v and %+v, want the lost one fenced below the other", a[0], a[1])
	}
}

// checkEvidence reads the evidence in every way: the three late reports, the newest first.
func (s scene) checkEvidence(id sqldb.ID, second, first dispatch.Ref) {
	s.Helper()
	r := query.New(s.db.DB)
	whole, err := r.EvidenceList(s.Context(), query.Scope{}, id, nil, 100)
	if err != nil || whole.Next != nil || len(whole.Evidence) != 3 {
		s.Fatalf("EvidenceList = %+v, %v; want 3 in one page", whole, err)
	}
	var paged []orbit.Evidence
	for after := (*query.Place)(nil); ; {
		page, err := r.EvidenceList(s.Context(), query.Scope{}, id, after, 1)
		if err != nil || len(page.Evidence) != 1 {
			s.Fatalf("page after %v = %+v, %v; want one", after, page, err)
		}
		paged = append(paged, page.Evidence...)
		if after = page.Next; after == nil {
			break
		}
	}
	if !reflect.DeepEqual(paged, whole.Evidence) {
		s.Errorf("evidence by pages = %+v, in one page %+v", paged, whole.Evidence)
	}
	for i, receipt := range []string{"after", "between", "before"} {
		e := whole.Evidence[i]
		want := `{"receipt":"` + receipt + `","outcome":"SUCCEEDED","result":{"of": "the first"}}`
		if string(e.Body) != want || e.AttemptID != first.Attempt.String() || e.AttemptID == second.Attempt.String() {
			s.Errorf("evidence %d = %s of attempt %s, want %s of the first", i, e.Body, e.AttemptID, want)
		}
		evidence, err := sqldb.ParseID(e.ID)
		if err != nil {
			s.Fatal(err)
		}
		if one, err := r.Evidence(s.Context(), query.Scope{}, id, evidence); err != nil || !reflect.DeepEqual(one, e) {
			s.Errorf("evidence alone = %+v, %v; in the list %+v", one, err, e)
		}
	}
}

package task

import (
	"errors"
	"slices"
	"testing"
)

// targets says where each act may lead from each state, whatever the facts. It is
// written from the requirements, not from the machine. A state without a line allows
// nothing.
var targets = map[State]map[Act][]State{
	Waiting: {
		ActClaim:  {Leased},                 // STATE-004
		ActCancel: {Cancelled, NeedsReview}, // STATE-011
		ActExpire: {Failed, NeedsReview},    // STATE-014
	},
	Leased: {
		ActStart:    {Running},                      // STATE-005
		ActGiveBack: {Waiting, Failed, NeedsReview}, // STATE-006, AMB-034
		ActCancel:   {Cancelled, NeedsReview},       // STATE-011
		ActExpire:   {Failed, NeedsReview},          // LIMIT-019
	},
	Running: {
		ActSucceed:       {Succeeded},                    // STATE-007
		ActFail:          {Failed, NeedsReview},          // STATE-007, STATE-025
		ActFailRetryable: {Waiting, Failed, NeedsReview}, // STATE-008, STATE-025
		ActLose:          {Waiting, NeedsReview},         // STATE-009, STATE-010
		ActStop:          {Cancelled, NeedsReview},       // STATE-013, STATE-025
		ActCancel:        {Running},                      // STATE-012
	},
	NeedsReview: {
		ActCancel:          {NeedsReview}, // CAN-015
		ActDecideSucceeded: {Succeeded},   // STATE-015
		ActDecideFailed:    {Failed},
		ActDecideCancelled: {Cancelled},
	},
}

// STATE-001, STATE-002, STATE-003, STATE-017, STATE-022.
func TestEveryStateAndActMeetsTheTable(t *testing.T) {
	for s := Waiting; s <= Cancelled; s++ {
		for act := ActClaim; act <= ActDecideCancelled; act++ {
			want := targets[s][act]
			var reached []State
			for _, f := range allFacts() {
				c, err := Apply(s, act, f)
				var forbidden *ForbiddenError
				if errors.As(err, &forbidden) {
					continue
				}
				reached = append(reached, c.To)
				if !slices.Contains(want, c.To) {
					t.Errorf("%v, %v with %+v leads to %v, allowed are %v", s, act, f, c.To, want)
				}
				checkChange(t, s, act, f, c)
			}
			for _, to := range want {
				if !slices.Contains(reached, to) {
					t.Errorf("%v, %v never leads to %v", s, act, to)
				}
			}
		}
	}
}

// checkChange holds a change to the rules that are the same for all.
func checkChange(t *testing.T, s State, act Act, f Facts, c Change) {
	t.Helper()
	settles := act == ActSucceed || act >= ActDecideSucceeded // STATE-023
	switch {
	case c.To.Terminal() && c.Uncertain:
		t.Errorf("%v, %v with %+v: %v with an unknown effect", s, act, f, c.To)
	case f.Uncertain && !c.Uncertain && !settles:
		t.Errorf("%v, %v with %+v forgets an unknown effect", s, act, f)
	case !f.Uncertain && c.Uncertain && act != ActLose:
		t.Errorf("%v, %v with %+v makes an effect unknown", s, act, f)
	case act == ActLose && !c.Uncertain:
		t.Errorf("%v, %v with %+v takes an unknown effect for known", s, act, f)
	case c.To == Waiting && f.CancelWanted && s == Running:
		t.Errorf("%v, %v with %+v retries against a cancel intent", s, act, f)
	case c.Event == "":
		t.Errorf("%v, %v with %+v records no event", s, act, f)
	}
}

// STATE-021, SUB-024.
func TestRulesOfRetryAndReview(t *testing.T) {
	retry := Facts{AttemptsLeft: true, TimeLeft: true}
	safe := Facts{AttemptsLeft: true, TimeLeft: true, Idempotent: true}
	with := func(f Facts, change func(*Facts)) Facts { change(&f); return f }
	uncertain := func(f *Facts) { f.Uncertain = true }
	cancel := func(f *Facts) { f.CancelWanted = true }
	used := func(f *Facts) { f.AttemptsLeft = false }
	late := func(f *Facts) { f.TimeLeft = false }

	for _, c := range []struct {
		name   string
		state  State
		act    Act
		facts  Facts
		to     State
		reason string
	}{
		{"retryable failure with attempts and time", Running, ActFailRetryable, retry, Waiting, ""},
		{"retryable failure, attempts used", Running, ActFailRetryable, with(retry, used), Failed, ReasonAttemptsUsed},
		{"retryable failure, no time", Running, ActFailRetryable, with(retry, late), Failed, ReasonNoTimeLeft},
		{"retryable failure after a cancel intent", Running, ActFailRetryable, with(retry, cancel), Failed, ReasonCancelRequested},
		{"retryable failure, attempts used, older effect unknown", Running, ActFailRetryable, with(with(safe, used), uncertain), NeedsReview, ReasonAttemptsUsed},
		{"final failure, older effect unknown", Running, ActFail, with(safe, uncertain), NeedsReview, ReasonUncertain},
		{"unknown outcome of a task to reconcile", Running, ActLose, retry, NeedsReview, ""},
		{"unknown outcome of an idempotent task", Running, ActLose, safe, Waiting, ""},
		{"unknown outcome, attempts used", Running, ActLose, with(safe, used), NeedsReview, ReasonAttemptsUsed},
		{"unknown outcome after a cancel intent", Running, ActLose, with(safe, cancel), NeedsReview, ReasonCancelRequested},
		{"success after a cancel intent", Running, ActSucceed, with(safe, cancel), Succeeded, ""},
		{"clean stop, older effect unknown", Running, ActStop, with(with(safe, cancel), uncertain), NeedsReview, ReasonUncertain},
		{"deadline in waiting, older effect unknown", Waiting, ActExpire, with(safe, uncertain), NeedsReview, ReasonUncertain},
		{"never started too often", Leased, ActGiveBack, Facts{NeverStarts: true}, Failed, ReasonNeverStarted},
		{"never started too often, older effect unknown", Leased, ActGiveBack, Facts{NeverStarts: true, Uncertain: true}, NeedsReview, ReasonNeverStarted},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Apply(c.state, c.act, c.facts)
			if err != nil || got.To != c.to || got.Reason != c.reason {
				t.Fatalf("Apply = %+v, %v; want %v for reason %q", got, err, c.to, c.reason)
			}
		})
	}
}

func TestSecondCancelAndUnaskedStopAreForbidden(t *testing.T) {
	for _, s := range []State{Waiting, Leased, Running, NeedsReview} {
		if c, err := Apply(s, ActCancel, Facts{CancelWanted: true}); err == nil {
			t.Errorf("a second cancel of a task that is %v = %+v, want it forbidden (CAN-013)", s, c)
		}
	}
	if c, err := Apply(Running, ActStop, Facts{}); err == nil {
		t.Errorf("a clean stop without a cancel intent = %+v, want it forbidden (STATE-013)", c)
	}
}

// allFacts returns every combination.
func allFacts() []Facts {
	var all []Facts
	for bits := range 1 << 6 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		all = append(all, Facts{bit(0), bit(1), bit(2), bit(3), bit(4), bit(5)})
	}
	return all
}

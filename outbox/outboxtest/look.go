package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

var lookCases = []testCase{
	{name: "ListFindsByStateTargetQueueKeyAndMark", run: listFindsByStateTargetQueueKeyAndMark},
	{name: "VerifyFindsWhatCannotBe", run: verifyFindsWhatCannotBe},
	{name: "StatusTellsTheTroublesApart", run: statusTellsTheTroublesApart},
	{name: "DoctorFindsNothingWrong", run: doctorFindsNothingWrong},
}

// aLittleOfEach makes a row in each state, in the order of the states; the blocked one
// has a mark, and one row more waits for another queue of another target.
func (s *suite) aLittleOfEach() []int64 {
	s.Helper()
	seqs := s.enqueueKeys("pending", "delivered", "rejected", "blocked", "discarded")
	other := message("elsewhere")
	other.Target, other.Request.QueueID = "elsewhere", otherQueue
	seqs = append(seqs, s.enqueue(other).Seq)
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[1:2]))
	s.want("Deliver", 1, n, err)
	n, err = s.Store.Reject(s.ctx, l, []int64{seqs[2], seqs[4]}, refusal(outbox.OutcomeRefused))
	s.want("Reject", 2, n, err)
	suspect := refusal(outbox.OutcomeNeedsPerson)
	suspect.Unknown = true
	n, err = s.Store.Block(s.ctx, l, seqs[3:4], suspect)
	s.want("Block", 1, n, err)
	s.must("Discard", s.Store.Discard(s.ctx, seqs[4], operator))
	return seqs
}

func listFindsByStateTargetQueueKeyAndMark(s *suite) {
	q := s.aLittleOfEach()
	tests := []struct {
		name   string
		filter outbox.Filter
		want   []int64
	}{
		{"all but delivered", outbox.Filter{}, []int64{q[0], q[2], q[3], q[4], q[5]}},
		{"delivered", outbox.Filter{States: []outbox.State{outbox.Delivered}}, []int64{q[1]}},
		{"two states", outbox.Filter{States: []outbox.State{outbox.Blocked, outbox.Rejected}}, []int64{q[2], q[3]}},
		{"target", outbox.Filter{Target: "elsewhere"}, []int64{q[5]}},
		{"target without rows", outbox.Filter{Target: "nowhere"}, nil},
		{"target and state", outbox.Filter{Target: target, States: []outbox.State{outbox.Pending}}, []int64{q[0]}},
		{"queue", outbox.Filter{Target: target, QueueID: queue}, []int64{q[0], q[2], q[3], q[4]}},
		{"key", outbox.Filter{Target: target, Key: "blocked"}, []int64{q[3]}},
		{"key in another state", outbox.Filter{Target: target, Key: "blocked", States: []outbox.State{outbox.Pending}}, nil},
		{"key of another target", outbox.Filter{Target: "elsewhere", Key: "blocked"}, nil},
		{"unknown", outbox.Filter{Unknown: true}, []int64{q[3]}},
	}
	for _, test := range tests {
		for _, page := range []int{1, 2, 100} {
			if got := s.list(test.filter, page); !slices.Equal(got, test.want) {
				s.Errorf("%s, %d a page: rows %v, want %v", test.name, page, got, test.want)
			}
		}
	}
	for name, bad := range map[string]outbox.Filter{
		"state": {States: []outbox.State{9}}, "key alone": {Key: "a"}, "queue alone": {QueueID: queue}, "no target": {Target: "a b"},
	} {
		var invalid *orbit.InvalidArgumentError
		if _, err := s.Store.List(s.ctx, bad, 0, 10); !errors.As(err, &invalid) {
			s.Errorf("List with a bad %s = %v, want an invalid argument", name, err)
		}
	}
}

// list pages through all rows of a filter.
func (s *suite) list(f outbox.Filter, page int) (seqs []int64) {
	s.Helper()
	for after := int64(0); ; {
		rows, err := s.Store.List(s.ctx, f, after, page)
		if err != nil || len(rows) > page {
			s.Fatalf("List = %d rows, %v", len(rows), err)
		}
		if len(rows) == 0 {
			return seqs
		}
		for _, r := range rows {
			if len(r.Request) != 0 || r.Key == "" {
				s.Fatalf("listed row is %+v, want it without its request", r)
			}
			seqs, after = append(seqs, r.Seq), r.Seq
		}
	}
}

// OUT-008: whatever else changes a row is found, and a healthy outbox has no fault.
func verifyFindsWhatCannotBe(s *suite) {
	q := s.aLittleOfEach()
	s.must("Requeue", s.Store.Requeue(s.ctx, q[3], operator, 0))
	if faults := s.faults(); len(faults) != 0 {
		s.Fatalf("a healthy outbox has faults: %+v", faults)
	}
	damage := []struct {
		seq         int64
		statement   string
		args        []any
		rule, again string // part of the rule, and the statement that mends it
	}{
		{q[0], "request = ?", []any{[]byte(`{"n":2}`)}, "SHA-256", ""},
		{q[1], "outcome_unknown = 1", nil, "mark", "outcome_unknown = 0"},
		{q[2], "outcome = 2", nil, "without a refusal", "outcome = 4"},
		{q[3], "idempotency_key = ?", []any{[]byte("another")}, "identity", "idempotency_key = 'blocked'"},
		{q[3], "outcome = 6, outcome_unknown = 0", nil, "accepted as something else", "outcome = 7, outcome_unknown = 1"},
		{q[4], "settled_at = 0", nil, "settling", "settled_at = 1"},
		{q[5], "lane = lane + 1", nil, "lane", "lane = lane - 1"},
		{q[2], "task_id = ?", []any{make16(7)}, "task", "task_id = x'00000000000000000000000000000000'"},
	}
	for _, d := range damage {
		s.exec("UPDATE orbit_outbox SET "+d.statement+" WHERE seq = ?", append(d.args, d.seq)...)
		if !slices.ContainsFunc(s.faults(), func(f outbox.Fault) bool { return f.Seq == d.seq && strings.Contains(f.Rule, d.rule) }) {
			s.Errorf("after %q on row %d the faults are %+v, want one about %q", d.statement, d.seq, s.faults(), d.rule)
		}
		if strings.HasPrefix(d.again, "idempotency_key") {
			s.exec("UPDATE orbit_outbox SET idempotency_key = ? WHERE seq = ?", []byte("blocked"), d.seq)
		} else if d.again != "" {
			s.exec("UPDATE orbit_outbox SET "+d.again+" WHERE seq = ?", d.seq)
		}
	}
	s.exec("DELETE FROM orbit_outbox_journal WHERE row_seq = ?", q[4])
	s.exec("UPDATE orbit_outbox_lease SET epoch = 0")
	faults := s.faults()
	for _, rule := range []string{"without an audit row", "lease of shard 0"} {
		if !slices.ContainsFunc(faults, func(f outbox.Fault) bool { return strings.Contains(f.Rule, rule) }) {
			s.Errorf("faults are %+v, want one about %q", faults, rule)
		}
	}
}

func make16(b byte) []byte {
	id := make([]byte, 16)
	id[15] = b
	return id
}

// faults verifies all, two rows at a time.
func (s *suite) faults() (all []outbox.Fault) {
	s.Helper()
	rows, want := 0, s.rows()
	for next := int64(0); ; {
		v, err := s.Store.Verify(s.ctx, next, 2)
		if err != nil {
			s.Fatalf("Verify: %v", err)
		}
		all, rows = append(all, v.Faults...), rows+v.Rows
		if next = v.Next; next == 0 {
			break
		}
	}
	if int64(rows) != want {
		s.Fatalf("%d rows verified, want %d", rows, want)
	}
	return all
}

// REL-021: in one line, and none of them for another.
func statusTellsTheTroublesApart(s *suite) {
	if troubles := s.troubles(); len(troubles) != 0 {
		s.Fatalf("troubles of an empty outbox are %v", troubles)
	}
	seq := s.enqueue(message("a")).Seq
	due := func(ago time.Duration) {
		s.exec("UPDATE orbit_outbox SET due_at = ? WHERE seq = ?", time.Now().Add(-ago).UnixMicro(), seq)
	}
	due(time.Minute)
	s.wantTrouble(outbox.RelayDead, "shard 0")
	l := s.lead()
	s.wantTrouble(outbox.Stuck, "relay first")
	report := func(gate, why string, perMinute int64) {
		s.Helper()
		s.must("ReportTarget", s.Store.ReportTarget(s.ctx, l, outbox.TargetReport{Target: target, Gate: gate, Error: why, Accepted: perMinute, PerMinute: perMinute}))
	}
	report("open", "", 30)
	s.wantTrouble(outbox.TooSmall, "30 rows a minute")
	report("paused", "connection refused", 30)
	s.wantTrouble(outbox.ServerDown, "connection refused")
	report(outbox.GateUnclaimed, "", 0)
	s.wantTrouble(outbox.NoCredential, target)
	s.must("Hold", s.Store.Hold(s.ctx, target, queue, operator))
	s.wantTrouble(outbox.Held, target)
	s.wantDue(false) // nobody is to be called for what an operator keeps back
	s.must("Unhold", s.Store.Unhold(s.ctx, target, queue, operator))
	s.wantDue(true)
	// What an earlier leader reported is of no interest any more.
	report("paused", "long ago", 0)
	l = s.takeOver()
	s.wantTrouble(outbox.Stuck, "relay second")
	report("open", "", 30)
	due(0)
	if troubles := s.troubles(); len(troubles) != 0 {
		s.Fatalf("troubles of a row that is due now are %v", troubles)
	}
	n, err := s.Store.Block(s.ctx, l, []int64{seq}, refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	s.wantTrouble(outbox.Poison, "1 rows are BLOCKED")
	endless := s.enqueue(message("b")).Seq
	for range 5 {
		n, err := s.Store.Postpone(s.ctx, l, []int64{endless}, time.Hour, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
		s.want("Postpone", 1, n, err)
	}
	s.wantTrouble(outbox.Poison, fmt.Sprintf("row %d is unknown after 5 sends", endless))
}

func (s *suite) troubles() []outbox.Finding {
	s.Helper()
	st, err := s.Store.Status(s.ctx)
	if err != nil {
		s.Fatalf("Status: %v", err)
	}
	return st.Findings
}

// wantDue wants Depth to see a due row, or none.
func (s *suite) wantDue(want bool) {
	s.Helper()
	if st, err := s.Store.Depth(s.ctx); err != nil || st.Count[outbox.Pending] != 1 || st.OldestDue.IsZero() == want {
		s.Fatalf("Depth = %+v, %v; want 1 pending row, due: %t", st, err, want)
	}
}

func (s *suite) wantTrouble(want outbox.Trouble, detail string) {
	s.Helper()
	got := s.troubles()
	if len(got) != 1 || got[0].Trouble != want || !strings.Contains(got[0].Detail, detail) || strings.Contains(got[0].String(), "\n") {
		s.Fatalf("findings are %v, want %s with %q", got, want, detail)
	}
}

func doctorFindsNothingWrong(s *suite) {
	s.enqueueKeys(s.freshKeys(20)...)
	s.lead()
	checks, err := s.Store.Doctor(s.ctx)
	if err != nil {
		s.Fatalf("Doctor: %v", err)
	}
	names := map[string]bool{}
	for _, c := range checks {
		names[c.Name] = true
		// A test server may trade durability for speed.
		if c.Grade == outbox.Bad && c.Name != "durability" {
			s.Errorf("%s is bad: %s", c.Name, c.Detail)
		}
	}
	for _, name := range []string{"version", "durability", "clock", "indexes", "rights", "plan", "delivery"} {
		if !names[name] {
			s.Errorf("nothing was said about %s: %+v", name, checks)
		}
	}
	s.exec("UPDATE orbit_outbox SET due_at = due_at - 3600000000 WHERE state = 1")
	s.takeOver()
	checks, err = s.Store.Doctor(s.ctx)
	if err != nil || !slices.ContainsFunc(checks, func(c outbox.Check) bool {
		return c.Name == "delivery" && c.Grade == outbox.Bad && strings.Contains(c.Detail, "1h0m")
	}) {
		s.Errorf("with rows an hour old Doctor = %+v, %v; want bad delivery", checks, err)
	}
}

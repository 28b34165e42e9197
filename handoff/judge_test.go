package handoff_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func stored(key handoff.Key, change func(*handoff.Ticket)) handoff.Ticket {
	t := handoff.Ticket{
		Key: key, From: "from", To: "to", ReplyTo: "inbox", TTL: time.Minute,
		Generation: 1, Deadline: noon.Add(time.Second), State: handoff.StateOffered,
	}
	if change != nil {
		change(&t)
	}
	return t
}

func in(s handoff.State) func(*handoff.Ticket) {
	return func(t *handoff.Ticket) {
		t.State = s
		switch s {
		case handoff.StateAccepted:
			t.Holder = "to"
		case handoff.StateClosed:
			t.ReceiptAt = noon
		}
	}
}

func with(s handoff.State, change func(*handoff.Ticket)) func(*handoff.Ticket) {
	return func(t *handoff.Ticket) { in(s)(t); change(t) }
}

func TestCheckFindsEachContradiction(t *testing.T) { // TEST-060
	type h = handoff.Ticket
	for name, test := range map[string]struct {
		change func(*h)
		want   []string
	}{
		"offered":               {nil, nil},
		"accepted":              {in("accepted"), nil},
		"closed":                {in("closed"), nil},
		"expired":               {in("expired"), nil},
		"withdrawn":             {in("withdrawn"), nil},
		"ended, and long past":  {with("closed", func(t *h) { t.Deadline = noon.Add(-time.Hour) }), nil},
		"empty key":             {func(t *h) { t.Key = "" }, []string{"empty_key"}},                                            // HAND-082
		"unknown state":         {in("running"), []string{"unknown_state"}},                                                    // HAND-082
		"no state":              {in(""), []string{"unknown_state"}},                                                           // HAND-082
		"state in capitals":     {in("Offered"), []string{"unknown_state"}},                                                    // HAND-082
		"no deadline":           {func(t *h) { t.Deadline = time.Time{} }, []string{"no_deadline"}},                            // HAND-083
		"no TTL":                {func(t *h) { t.TTL = 0 }, []string{"ttl_non_positive"}},                                      // HAND-083
		"negative TTL":          {func(t *h) { t.TTL = -1 }, []string{"ttl_non_positive"}},                                     // HAND-083
		"accepted by nobody":    {with("accepted", func(t *h) { t.Holder = "" }), []string{"holder_mismatch"}},                 // HAND-084
		"accepted by another":   {with("accepted", func(t *h) { t.Holder = "from" }), []string{"holder_mismatch"}},             // HAND-007
		"accepted, generation":  {with("accepted", func(t *h) { t.Generation = 0 }), []string{"missing_generation"}},           // HAND-084
		"offered, held":         {with("offered", func(t *h) { t.Holder = "to" }), []string{"holder_mismatch"}},                // HAND-084
		"closed, held":          {with("closed", func(t *h) { t.Holder = "to" }), []string{"holder_mismatch"}},                 // HAND-084
		"expired, held":         {with("expired", func(t *h) { t.Holder = "to" }), []string{"holder_mismatch"}},                // HAND-084
		"withdrawn, held":       {with("withdrawn", func(t *h) { t.Holder = "to" }), []string{"holder_mismatch"}},              // HAND-084
		"closed, no receipt":    {with("closed", func(t *h) { t.ReceiptAt = time.Time{} }), []string{"receipt_without_close"}}, // HAND-085
		"expired, receipt":      {with("expired", func(t *h) { t.ReceiptAt = noon }), []string{"receipt_without_close"}},       // HAND-085
		"offered, in time":      {func(t *h) { t.Deadline = noon.Add(1) }, nil},                                                // AMB-047
		"offered, now":          {func(t *h) { t.Deadline = noon }, []string{"overdue_holder"}},                                // HAND-086, AMB-046, AMB-047
		"offered, past":         {func(t *h) { t.Deadline = noon.Add(-1) }, []string{"overdue_holder"}},                        // HAND-086
		"accepted, now":         {with("accepted", func(t *h) { t.Deadline = noon }), []string{"overdue_reply"}},               // HAND-086, AMB-046, AMB-047
		"everything":            {with("accepted", func(t *h) { *t = h{State: "accepted", ReceiptAt: noon} }), []string{"empty_key", "holder_mismatch", "missing_generation", "no_deadline", "receipt_without_close", "ttl_non_positive"}},
		"the time of elsewhere": {func(t *h) { t.Deadline = noon.Add(time.Second).In(time.FixedZone("", 3600)) }, nil},
	} {
		problems := handoff.Check([]handoff.Ticket{stored("k", test.change)}, noon)
		var codes []string
		for _, p := range problems {
			codes = append(codes, p.Code)
			if wantKey := stored("k", test.change).Key; p.Key != wantKey || p.Text == "" {
				t.Errorf("%s: problem %+v", name, p)
			}
		}
		if !slices.Equal(codes, test.want) {
			t.Errorf("%s: problems %v, want %v", name, problems, test.want)
		}
	}
}

// HAND-005, HAND-080, HAND-081, AMB-053: sorted, the same for each order of the tickets, one
// problem for each key that several have, and nothing is written to.
func TestCheckIsPureAndSorted(t *testing.T) {
	if p := handoff.Check(nil, noon); p != nil {
		t.Errorf("problems of nothing: %v", p)
	}
	held := func(t *handoff.Ticket) { t.Holder = "to" }
	snapshot := []handoff.Ticket{
		stored("b", nil), stored("a", nil), stored("b", held), stored("c", func(t *handoff.Ticket) { t.TTL, t.Payload = -1, []byte("p") }),
		stored("b", nil), stored("", nil), stored("a", with("accepted", func(t *handoff.Ticket) { t.Holder = "" })),
		stored("c", func(t *handoff.Ticket) { t.TTL = -2 }),
	}
	want := []handoff.Problem{
		{Key: "", Code: "empty_key"},
		{Key: "a", Code: "duplicate_key"}, {Key: "a", Code: "holder_mismatch"},
		{Key: "b", Code: "duplicate_key"}, {Key: "b", Code: "holder_mismatch"},
		{Key: "c", Code: "duplicate_key"}, {Key: "c", Code: "ttl_non_positive"}, {Key: "c", Code: "ttl_non_positive"},
	}
	var before []handoff.Problem
	for range 20 {
		given := slices.Clone(snapshot)
		got := handoff.Check(given, noon)
		if !reflect.DeepEqual(given, snapshot) {
			t.Fatal("Check has changed its input")
		}
		if before != nil && !slices.Equal(got, before) {
			t.Fatalf("another order gives %v, before %v", got, before)
		}
		before = slices.Clone(got)
		for i := range got {
			got[i].Text = ""
		}
		if !slices.Equal(got, want) {
			t.Fatalf("problems %v, want %v", got, want)
		}
		rand.Shuffle(len(snapshot), func(i, j int) { snapshot[i], snapshot[j] = snapshot[j], snapshot[i] })
	}
}

// HAND-095, HAND-010, HAND-014
func TestTicketsAreValidated(t *testing.T) {
	for field, change := range map[string]func(*handoff.Ticket){
		"":               func(t *handoff.Ticket) { t.TTL, t.Payload, t.State = 1, nil, "whatever" },
		"Ticket.Key":     func(t *handoff.Ticket) { t.Key = "" },
		"Ticket.From":    func(t *handoff.Ticket) { t.From = "" },
		"Ticket.To":      func(t *handoff.Ticket) { t.To = "" },
		"Ticket.ReplyTo": func(t *handoff.Ticket) { t.ReplyTo = "" },
		"Ticket.TTL":     func(t *handoff.Ticket) { t.TTL = 0 },
	} {
		h := valid()
		change(&h)
		mustBeInvalid(t, field, h.Validate())
	}
	h := valid()
	h.TTL = -time.Second
	mustBeInvalid(t, "Ticket.TTL", h.Validate())
}

// HAND-016, HAND-043, HAND-044, HAND-095
func TestReceiptsAreValidated(t *testing.T) {
	for _, test := range []struct {
		r     handoff.Receipt
		field string
	}{
		{handoff.Receipt{Status: "done", Summary: "s"}, ""},
		{handoff.Receipt{Status: "done", Summary: "s", Artifacts: []string{""}}, ""},
		{handoff.Receipt{Status: "failed", Failure: "f"}, ""},
		{handoff.Receipt{Status: "refused", Failure: "f", Summary: "s"}, ""},
		{handoff.Receipt{Status: "done"}, "Receipt.Summary"},
		{handoff.Receipt{Status: "done", Summary: "s", Failure: "f"}, "Receipt.Failure"},
		{handoff.Receipt{Status: "failed"}, "Receipt.Failure"},
		{handoff.Receipt{Status: "refused", Summary: "s"}, "Receipt.Failure"},
		{handoff.Receipt{Summary: "s"}, "Receipt.Status"},
		{handoff.Receipt{Status: "DONE", Summary: "s"}, "Receipt.Status"},
	} {
		mustBeInvalid(t, test.field, test.r.Validate())
	}
}

func mustBeInvalid(t *testing.T, field string, err error) {
	t.Helper()
	var invalid *handoff.InvalidError
	if field == "" {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	if !errors.As(err, &invalid) || invalid.Field != field || invalid.Rule == "" {
		t.Errorf("error %v, want one about %s", err, field)
	}
}

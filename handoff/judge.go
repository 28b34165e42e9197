package handoff

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Codes of problems, for machines.
const (
	CodeEmptyKey        = "empty_key"             // a ticket has no key
	CodeDuplicateKey    = "duplicate_key"         // several tickets have one key
	CodeUnknownState    = "unknown_state"         // the state is not in the vocabulary
	CodeNoDeadline      = "no_deadline"           // no deadline: unbounded
	CodeHolderMismatch  = "holder_mismatch"       // state and holder do not go together
	CodeMissingFence    = "missing_generation"    // accepted without a generation
	CodeReceiptUntimely = "receipt_without_close" // closed without ReceiptAt, or the reverse
	CodeOverdueHolder   = "overdue_holder"        // offered past the deadline: no holder came
	CodeOverdueReply    = "overdue_reply"         // accepted past the deadline: no reply came
	CodeTTLNonPositive  = "ttl_non_positive"      // the TTL is not positive
)

// Validate judges what a source gives to Offer: Key, From, To and ReplyTo must not be
// empty and TTL must be positive. Its error is an [*InvalidError] about the first field
// that is not. It is pure.
func (t Ticket) Validate() error {
	for _, f := range []struct{ name, value string }{
		{"Ticket.Key", string(t.Key)}, {"Ticket.From", string(t.From)}, {"Ticket.To", string(t.To)}, {"Ticket.ReplyTo", t.ReplyTo},
	} {
		if f.value == "" {
			return &InvalidError{f.name, "must not be empty"}
		}
	}
	if t.TTL <= 0 {
		return &InvalidError{"Ticket.TTL", "must be positive: a hand-over has a time limit"}
	}
	return nil
}

// Validate judges whether a receipt contradicts itself: its status must be in the
// vocabulary, done needs a Summary and no Failure, failed and refused need a Failure. Its
// error is an [*InvalidError]. It is pure.
func (r Receipt) Validate() error {
	switch r.Status {
	case ReceiptDone:
		if r.Summary == "" {
			return &InvalidError{"Receipt.Summary", "must not be empty if done"}
		}
		if r.Failure != "" {
			return &InvalidError{"Receipt.Failure", "must be empty if done"}
		}
	case ReceiptFailed, ReceiptRefused:
		if r.Failure == "" {
			return &InvalidError{"Receipt.Failure", "must not be empty if failed or refused"}
		}
	default:
		return &InvalidError{"Receipt.Status", "must be done, failed or refused"}
	}
	return nil
}

// A Problem is an invariant that a snapshot breaks.
type Problem struct {
	Key  Key    // of the ticket; empty if it has none
	Code string // one of the codes, for machines
	Text string // for people
}

// Check judges whether the tickets of a snapshot contradict themselves; whether a policy
// is good is none of its business. now is the time by the clock of the store. It is pure,
// and sorts what it finds by Key, Code and Text, whatever the order of the tickets.
//
//   - Keys are unique and not empty, states are in the vocabulary.
//   - There is a deadline, and TTL is positive.
//   - Accepted goes with a holder, who is To, and a generation; without accepted there is
//     no holder.
//   - Closed goes with ReceiptAt; without closed there is none.
//   - What is offered or accepted has time left. A store may write expiry lazily; then
//     this shows what is overdue and nobody has looked after.
func Check(snapshot []Ticket, now time.Time) []Problem {
	var problems []Problem
	times := make(map[Key]int, len(snapshot))
	for _, t := range snapshot {
		problems = t.check(problems, now)
		if times[t.Key]++; times[t.Key] == 2 {
			problems = append(problems, Problem{t.Key, CodeDuplicateKey, "several tickets have this key"})
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return problems
}

// check appends the problems that the ticket has by itself.
func (t Ticket) check(problems []Problem, now time.Time) []Problem {
	found := func(is bool, code, format string, args ...any) {
		if is {
			problems = append(problems, Problem{t.Key, code, fmt.Sprintf(format, args...)})
		}
	}
	accepted, closed := t.State == StateAccepted, t.State == StateClosed
	found(t.Key == "", CodeEmptyKey, "a ticket has no key")
	found(!t.State.known(), CodeUnknownState, "state %q is not in the vocabulary", t.State)
	found(t.Deadline.IsZero(), CodeNoDeadline, "no deadline: the hand-over is unbounded")
	found(t.TTL <= 0, CodeTTLNonPositive, "TTL %v is not positive", t.TTL)
	found(accepted && t.Holder == "", CodeHolderMismatch, "accepted, and has no holder")
	found(accepted && t.Holder != "" && t.To != "" && t.Holder != t.To, CodeHolderMismatch, "accepted, and its holder is not the addressee")
	found(!accepted && t.Holder != "", CodeHolderMismatch, "%s, and has a holder", t.State)
	found(accepted && t.Generation == 0, CodeMissingFence, "accepted, and has no generation")
	found(closed && t.ReceiptAt.IsZero(), CodeReceiptUntimely, "closed, and has no time of receipt")
	found(!closed && !t.ReceiptAt.IsZero(), CodeReceiptUntimely, "%s, and has a time of receipt", t.State)
	found(t.State == StateOffered && t.overdue(now), CodeOverdueHolder, "not taken by its deadline, and not marked expired")
	found(accepted && t.overdue(now), CodeOverdueReply, "not replied to by its deadline, and not marked expired")
	return problems
}

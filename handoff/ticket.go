package handoff

import "time"

// A Key is the idempotency key of a hand-over. It comes from the caller's business and is
// compared byte by byte.
type Key string

// An Agent is the identity of a party. It is compared byte by byte.
type Agent string

// A State is how far a ticket has come. Closed, expired and withdrawn are ends.
type State string

// The states.
const (
	StateOffered   State = "offered"   // waits to be taken; From is still responsible
	StateAccepted  State = "accepted"  // handed over: To is responsible since Take
	StateClosed    State = "closed"    // the receipt is settled; what came out stands in Receipt.Status
	StateExpired   State = "expired"   // not taken in time, or taken and not replied to in time
	StateWithdrawn State = "withdrawn" // taken back by the source
)

// live reports whether s is a state that is no end.
func (s State) live() bool { return s == StateOffered || s == StateAccepted }

// known reports whether s is in the vocabulary.
func (s State) known() bool {
	return s.live() || s == StateClosed || s == StateExpired || s == StateWithdrawn
}

// A Ticket is a hand-over in its current generation. The source gives the fields down to
// TTL; the store makes the others, and ignores what Offer is given in them.
type Ticket struct {
	Key     Key    // idempotency key, from the business
	From    Agent  // who offers: responsible until the ticket is taken, and the only one who may cancel
	To      Agent  // who is to take over: the only one who may take
	Payload []byte // carried unchanged, not interpreted
	ReplyTo string // where the receipt goes: mandatory, whoever offers

	// TTL is how long taking and replying may last together. It must be positive. It is a
	// duration and no time, since the store judges by its own clock.
	TTL time.Duration

	Generation uint64    // 1 for the first of a key, and one more for each hand-over after it
	Deadline   time.Time // by the store's clock; from this instant on the ticket is expired. Never zero.
	State      State
	Holder     Agent     // who is responsible since Take; only while accepted
	ReceiptAt  time.Time // when the receipt was settled; only if closed
}

// overdue reports whether the deadline has come by now: at the deadline itself it has
// (AMB-047). A ticket without deadline is invalid, but not overdue.
func (t Ticket) overdue(now time.Time) bool {
	return !t.Deadline.IsZero() && !now.Before(t.Deadline)
}

package outbox

import (
	"crypto/sha256"
	"time"

	"github.com/orbitkit/orbit"
)

// A State is the state of a row.
type State int8

// States of a row. A relay moves PENDING to one of the next three; an operator moves
// BLOCKED to PENDING, and REJECTED or BLOCKED to DISCARDED. An accepted answer is a
// fact and makes DELIVERED of any other state.
const (
	Pending   State = 1 // to be sent when due
	Delivered State = 2 // accepted by the platform; says nothing about the business work
	Rejected  State = 3 // refused for good, no task exists
	Blocked   State = 4 // needs a person; a task may exist
	Discarded State = 5 // closed by an operator
)

var stateNames = [...]string{"INVALID", "PENDING", "DELIVERED", "REJECTED", "BLOCKED", "DISCARDED"}

// String returns the state's name in capitals.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return stateNames[0]
	}
	return stateNames[s]
}

// stateOf returns the state with this number, or 0 for none.
func stateOf(n integer) State {
	if n < integer(Pending) || n > integer(Discarded) {
		return 0
	}
	return State(n)
}

// An Outcome is the class of the last answer of a row, or of the lack of one.
type Outcome int8

// Outcomes of a send, and reasons not to send.
const (
	OutcomeNone        Outcome = 0  // none is recorded
	OutcomeAccepted    Outcome = 1  // task exists
	OutcomeUnknown     Outcome = 2  // may or may not have been accepted
	OutcomeNotAccepted Outcome = 3  // certainly not, for now: 429
	OutcomeRefused     Outcome = 4  // never will be: 400, 413, 415
	OutcomeConflict    Outcome = 5  // key used with other content
	OutcomeMismatch    Outcome = 6  // accepted as something else
	OutcomeNeedsPerson Outcome = 7  // 403, 404, 409 STATE_CONFLICT
	OutcomeTooOld      Outcome = 8  // the key's retention ends
	OutcomeExpired     Outcome = 9  // NotAfter has passed
	OutcomeDamaged     Outcome = 10 // what is stored cannot be what was frozen
)

var outcomeNames = [...]string{
	"none", "accepted", "unknown", "not_accepted", "refused", "conflict", "mismatch", "needs_person",
	"too_old", "expired", "damaged",
}

// String returns the outcome's name in snake_case, as in logs and metrics.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return "invalid"
	}
	return outcomeNames[o]
}

// sent reports whether the outcome is that of a send.
func (o Outcome) sent() bool { return o < OutcomeTooOld }

// An Answer is what a row keeps of the last answer. Its texts hold no payload and no
// credential; what is too long is cut.
type Answer struct {
	Outcome Outcome
	// Unknown marks the row: this send, or an earlier one that left no trace, may
	// have been accepted. The mark stays until an exact answer to the key.
	Unknown   bool
	Status    int    // HTTP status, 0 without an answer
	Code      string // error code, at most 64 bytes
	Message   string // at most 1024 bytes
	Digest    string // content digest that the server answered, if it differs; at most 128 bytes
	RequestID string // 32 hexadecimal characters, or empty
}

// A Row is a frozen message and what is known of its delivery.
type Row struct {
	// Frozen when the message was enqueued.

	Seq           int64
	Operation     Operation
	CancelTaskID  string // of a cancel: the task, 32 hexadecimal characters; else empty
	Shard         int
	Lane          int64
	Size          int // bytes of Request
	Target        string
	Key           string
	QueueID       string // 32 hexadecimal characters; empty for a cancel
	Handler       string // empty for a cancel
	Request       []byte // every send carries exactly these bytes
	RequestSHA256 [sha256.Size]byte
	Algorithm     string // of Digest
	Digest        orbit.Digest
	Traceparent   string
	CreatedAt     time.Time
	NotBefore     time.Time // zero means none
	NotAfter      time.Time // zero means none

	// Delivery.

	State        State
	DueAt        time.Time // zero unless Pending
	WindowFrom   time.Time // start of the time in which the server knows the key
	Attempts     int       // sends that were recorded
	Last         Answer    // Last.Unknown: some send may have been accepted
	TaskID       string    // 32 hexadecimal characters; empty unless Delivered
	Deduplicated bool
	AcceptedAt   time.Time // by the platform's clock; zero unless Delivered
	SettledAt    time.Time // when the row ceased to be Pending; zero while it is
	// LateAllowed says that an operator wants the row sent although NotAfter has passed.
	LateAllowed bool

	// ReadAt is the database's time at which the row was read.
	ReadAt time.Time

	// Damage tells what of the row cannot be as it was frozen, without any content: a column of
	// the wrong type, length or range, an identity or a lane that does not fit. Empty for a
	// sound row. What is damaged is read as zero, and an unreadable mark of an unknown send as
	// set. The request is judged by [Row.Intact] only.
	Damage string
}

// Intact reports whether the row is what was frozen: it has no [Row.Damage], and its request
// the SHA-256 and the size that stand beside it. A row that is not must be blocked with
// [OutcomeDamaged] and never sent (OUT-008).
func (r *Row) Intact() bool {
	return r.Damage == "" && r.requestIntact()
}

func (r *Row) requestIntact() bool {
	return len(r.Request) == r.Size && sha256.Sum256(r.Request) == r.RequestSHA256
}

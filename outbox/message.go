package outbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// MaxTarget is the longest target name, in bytes.
const MaxTarget = 64

// clockTolerance is how far this process's clock may be ahead of the database's, which
// judges NotAfter in the end.
const clockTolerance = time.Minute

// A Message is a submit request to be frozen: what the business has decided and the
// platform must be told, once.
type Message struct {
	// Key is the idempotency key: 1-128 printable ASCII characters without blanks,
	// built from the business operation (see [Key]). The same operation must always
	// give the same key, and nothing else may.
	Key string
	// Target names the task server and namespace that the request is meant for: 1-64
	// ASCII letters, digits, '_', '.', ':' and '-', a letter or digit first. The
	// relay knows its address and credential.
	Target string
	// Request is validated here by the server's own rules, so that what can never be
	// accepted fails the business transaction. Its time limit runs from acceptance
	// by the platform, not from the business commit.
	Request orbit.SubmitTaskRequest
	// NotBefore is the earliest send; zero means at once. Like NotAfter it is no part of
	// the content: a repeat with other times finds the first row and leaves its times.
	NotBefore time.Time
	// NotAfter is the latest send; zero means none. When it passes, the row is
	// blocked for an operator, since an earlier send may have been accepted. A time
	// that has passed already is refused.
	NotAfter time.Time
	// Traceparent is the W3C trace context to be sent along; empty means none. It is
	// no part of the content.
	Traceparent string
	// AllowAbsoluteTimes lets Request carry AvailableAt or StartDeadlineAt. They are
	// frozen: if the row waits longer than they allow, the server refuses it.
	AllowAbsoluteTimes bool
}

// frozen is a command in the form of its row.
type frozen struct {
	message   *Message // what stands around the request
	operation Operation
	taskID    []byte // of a cancel; empty for a submit
	identity  [sha256.Size]byte
	queueID   string // of a submit, normalised; empty for a cancel
	queue     any    // the same as a column's value; NULL for a cancel
	handler   string // of a submit
	body      []byte
	digest    orbit.Digest
}

// Validate holds m to every rule that [Outbox.Enqueue] holds it to before any I/O, and returns
// its content digest. Its error is an [*orbit.InvalidArgumentError], which names the field and
// the rule. Enqueue calls it: a service needs it only to refuse a message before it has begun
// a transaction.
func (m Message) Validate() (orbit.Digest, error) {
	f, err := m.freeze()
	return f.digest, err
}

// freeze checks m by every rule and encodes its request once.
func (m *Message) freeze() (frozen, error) {
	if err := m.checkAround(); err != nil {
		return frozen{}, err
	}
	body, s, err := m.Request.Freeze()
	if err != nil {
		return frozen{}, err
	}
	if len(body) > orbit.MaxBodyBytes {
		return frozen{}, &orbit.InvalidArgumentError{Field: "request", Rule: fmt.Sprintf("must be at most %d bytes when encoded", orbit.MaxBodyBytes)}
	}
	queue, err := sqldb.ParseID(s.Request.QueueID)
	if err != nil {
		return frozen{}, err
	}
	return frozen{
		message: m, operation: OperationSubmit, taskID: empty, identity: identityOf(m.Target, OperationSubmit, nil, m.Key),
		queueID: s.Request.QueueID, queue: queue[:], handler: s.Request.Handler, body: body, digest: s.Digest,
	}, nil
}

// checkAround checks all but the request.
func (m *Message) checkAround() error {
	if err := orbit.ValidateIdempotencyKey(m.Key); err != nil {
		return err
	}
	if err := ValidateTarget(m.Target); err != nil {
		return err
	}
	if m.Traceparent != "" {
		if err := orbit.ValidateTraceparent(m.Traceparent); err != nil {
			return err
		}
	}
	return m.checkTimes()
}

// checkTimes refuses times that a waiting row may outlive (OUT-015) and times that a
// row cannot hold.
func (m *Message) checkTimes() error {
	if !m.AllowAbsoluteTimes {
		const remedy = "is an absolute time that may have passed when the row is sent: use Message.NotBefore, or set AllowAbsoluteTimes"
		if m.Request.AvailableAt != nil {
			return &orbit.InvalidArgumentError{Field: "available_at", Rule: remedy}
		}
		if m.Request.StartDeadlineAt != nil {
			return &orbit.InvalidArgumentError{Field: "start_deadline_at", Rule: remedy}
		}
	}
	if err := checkYear("not_before", m.NotBefore); err != nil {
		return err
	}
	if err := checkYear("not_after", m.NotAfter); err != nil {
		return err
	}
	if !m.NotAfter.IsZero() && !m.NotBefore.IsZero() && !m.NotAfter.After(m.NotBefore) {
		return &orbit.InvalidArgumentError{Field: "not_after", Rule: "must be later than not_before"}
	}
	if !m.NotAfter.IsZero() && time.Since(m.NotAfter) > clockTolerance {
		return &orbit.InvalidArgumentError{Field: "not_after", Rule: "must not have passed"}
	}
	return nil
}

func checkYear(field string, t time.Time) error {
	if year := t.UTC().Year(); !t.IsZero() && (year < 2000 || year > 9998) {
		return &orbit.InvalidArgumentError{Field: field, Rule: "must lie in the years 2000 to 9998 in UTC"}
	}
	return nil
}

// ValidateTarget refuses a name that is no target: see [Message]. Its error is an
// [*orbit.InvalidArgumentError].
func ValidateTarget(name string) error {
	err := validTarget(name)
	if err == nil {
		return nil
	}
	return &orbit.InvalidArgumentError{Field: "target", Rule: err.Error()}
}

func validTarget(name string) error {
	if len(name) < 1 || len(name) > MaxTarget {
		return fmt.Errorf("must be 1 to %d characters long", MaxTarget)
	}
	for i := range len(name) {
		c := name[i]
		letter := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c != '_' && c != '.' && c != ':' && c != '-') {
			return errors.New("must begin with an ASCII letter or digit and contain only letters, digits, '_', '.', ':' and '-'")
		}
	}
	return nil
}

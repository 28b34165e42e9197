package accept

import (
	"crypto/sha256"
	"errors"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// An Item is one submit that has passed every check but those of this package.
type Item struct {
	Namespace   sqldb.ID
	Queue       sqldb.ID // of the submission, which has it as text
	Credential  sqldb.ID
	Request     sqldb.ID // id of the HTTP request, for the audit
	Key         string   // idempotency key
	Submission  orbit.Submission
	Traceparent string // empty means none
	Minimal     bool   // the answer will not show the payload
}

// An Outcome is what became of an item. If Err is set the rest means nothing.
type Outcome struct {
	Deduplicated bool // the receipt is that of an earlier submit with this key
	Receipt      Receipt
	// Err is an [*orbit.InvalidArgumentError] for a rule of the moment, ErrConflict, or
	// an error that wraps ErrUnavailable. The first two leave no record.
	Err error
}

var (
	// ErrConflict reports that the key already stands for other content.
	ErrConflict = idempotency.ErrConflict
	// ErrUnavailable reports that the database could not be asked or did not answer. The
	// item may have been accepted: the sender must repeat it with the same key.
	ErrUnavailable = errors.New("acceptance is unknown")
)

// A Receipt is the stored answer to the first submit.
type Receipt struct {
	task      []byte // without its payload
	payloadAt int
	payload   []byte      // nil if the item was Minimal
	fresh     *orbit.Task // what task says, if it has just been made
}

// AppendTask appends the accepted task, byte for byte as in the first answer. It must not
// be called for a Minimal item.
func (r Receipt) AppendTask(dst []byte) []byte {
	dst = append(dst, r.task[:r.payloadAt]...)
	dst = append(dst, r.payload...)
	return append(dst, r.task[r.payloadAt:]...)
}

// AppendMinimalTask appends the six members of a minimal answer. It fails only on a
// receipt that is damaged.
func (r Receipt) AppendMinimalTask(dst []byte) ([]byte, error) {
	if r.fresh != nil {
		return r.fresh.AppendMinimalJSON(dst), nil
	}
	// The payload's place is empty in the stored text; null makes it JSON again.
	text := append([]byte{}, r.task[:r.payloadAt]...)
	text = append(text, "null"...)
	text = append(text, r.task[r.payloadAt:]...)
	var t orbit.Task
	if err := t.UnmarshalJSON(text); err != nil {
		return dst, err
	}
	return t.AppendMinimalJSON(dst), nil
}

const operationSubmit = 1

// identity is the primary key of the record of a submit: namespace, operation, no task,
// key (IDEM-002).
func identity(namespace sqldb.ID, key string) [sha256.Size]byte {
	h := sha256.New()
	h.Write(namespace[:])
	h.Write([]byte{operationSubmit})
	h.Write(make([]byte, len(sqldb.ID{})))
	h.Write([]byte(key))
	return [sha256.Size]byte(h.Sum(nil))
}

package accept

import (
	"errors"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// An Item is one submit, or one manual retry, that has passed every check but those of this package.
type Item struct {
	Namespace   sqldb.ID
	Queue       sqldb.ID // of the submission, which has it as text
	Credential  sqldb.ID
	Actor       string   // person who acts by hand, for the audit in the credential's place, at most 128 bytes; empty means the credential
	Request     sqldb.ID // id of the HTTP request, for the audit
	Key         string   // idempotency key
	Submission  orbit.Submission
	Traceparent string // empty means none
	Minimal     bool   // the answer will not show the payload
	Retry       *Retry // set if a person has a task repeated; Submission is then made of that task
}

// A Retry makes an item a manual retry: a new task linked to one that has failed or was
// cancelled (AMB-072). Its key is one of the retries of that task.
type Retry struct {
	Of     sqldb.ID     // the task to be repeated
	Root   sqldb.ID     // operation root of that task, and so of the new one
	Digest orbit.Digest // of the command's content
	Reason string       // for the audit: at most 4096 bytes
	// Refused is a conflict with the state of the task, found by the caller. It is the
	// outcome unless the key is known: a repeat gets its receipt first (IDEM-019).
	Refused error
}

// An Outcome is what became of an item. If Err is set the rest means nothing.
type Outcome struct {
	Task         sqldb.ID // that was made, now or by the earlier submit
	Deduplicated bool     // the receipt is that of an earlier submit with this key
	Receipt      Receipt
	// Err is an [*orbit.InvalidArgumentError] for a rule of the moment,
	// [quota.ErrApplicationFull], [quota.ErrQueueFull], the Refused of a Retry,
	// ErrConflict, ErrTooLong, or an error that wraps ErrUnavailable. All but the last two
	// leave no record.
	Err error
}

var (
	// ErrConflict reports that the key already stands for other content.
	ErrConflict = idempotency.ErrConflict
	// ErrUnavailable reports that the database could not be asked or did not answer. The
	// item may have been accepted: the sender must repeat it with the same key.
	ErrUnavailable = errors.New("acceptance is unknown")
	// ErrTooLong reports that the receipt of an earlier submit is not shown, because the
	// answer would become too long. The sender repeats the item alone.
	ErrTooLong = errors.New("the receipts of earlier submits are too long for one answer: repeat this item alone")
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

// operation is what the item's key stands for.
func (i *Item) operation() idempotency.Operation {
	if i.Retry != nil {
		return idempotency.Retry
	}
	return idempotency.Submit
}

// identity is the primary key of the item's record (IDEM-002).
func (i *Item) identity() idempotency.Identity {
	var subject sqldb.ID
	if i.Retry != nil {
		subject = i.Retry.Of
	}
	return idempotency.NewIdentity(i.Namespace, i.operation(), subject, i.Key)
}

// content is the digest by which a repeat is told from a conflict.
func (i *Item) content() orbit.Digest {
	if i.Retry != nil {
		return i.Retry.Digest
	}
	return i.Submission.Digest
}

package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Cancel is a cancel command to be frozen: the business has decided that a task, which the
// platform has accepted, is not to be done any more (OUT-022, AMB-062).
type Cancel struct {
	// Key is the idempotency key of the cancel, by the rules of [Message]. Keys of cancels
	// and of submits do not meet, nor do those of cancels of different tasks.
	Key string
	// Target names the task server and namespace that the task is in.
	Target string
	// TaskID names the task: 32 lower-case hexadecimal characters.
	TaskID string
	// Request has the revision of the task that the business has seen, and the reason. It
	// is frozen: if the task has moved on when the row is sent, the server answers
	// STATE_CONFLICT and the row is BLOCKED, for a person to look at the task first.
	Request orbit.CancelTaskRequest
	// NotBefore, NotAfter and Traceparent are those of [Message].
	NotBefore, NotAfter time.Time
	Traceparent         string
}

// EnqueueCancel freezes c through tx as [Outbox.Enqueue] freezes a submit, with the same
// receipt and errors: the cancel is sent if and only if the caller's own changes commit.
// Delivered means that the platform has taken it: a task that runs is only told to stop, and
// an effect that has happened stays. Rows are sent in no promised order; a cancel names a
// task that exists, so its submit was accepted before.
func (o *Outbox) EnqueueCancel(ctx context.Context, tx Tx, c Cancel) (Receipt, error) {
	if err := o.check(tx); err != nil {
		return Receipt{}, err
	}
	around := c.around()
	o.join(ctx, &around)
	f, err := c.freeze(&around)
	if err != nil {
		return Receipt{}, fmt.Errorf("outbox: enqueue cancel: %w", err)
	}
	return o.enqueue(ctx, tx, &f)
}

// Validate holds c to every rule that [Outbox.EnqueueCancel] holds it to before any I/O, and
// returns its content digest, as [Message.Validate] does.
func (c Cancel) Validate() (orbit.Digest, error) {
	around := c.around()
	f, err := c.freeze(&around)
	return f.digest, err
}

func (c *Cancel) around() Message {
	return Message{Key: c.Key, Target: c.Target, NotBefore: c.NotBefore, NotAfter: c.NotAfter, Traceparent: c.Traceparent}
}

// freeze checks c by every rule and encodes its request once.
func (c *Cancel) freeze(around *Message) (frozen, error) {
	if err := around.checkAround(); err != nil {
		return frozen{}, err
	}
	if !orbit.ValidID(c.TaskID) {
		return frozen{}, &orbit.InvalidArgumentError{Field: "task_id", Rule: "must be 32 lower-case hexadecimal characters"}
	}
	task, err := sqldb.ParseID(c.TaskID)
	if err != nil {
		return frozen{}, err
	}
	body, digest, err := c.Request.Freeze()
	if err != nil {
		return frozen{}, err
	}
	return frozen{
		message: around, operation: OperationCancel, taskID: task[:], identity: identityOf(around.Target, OperationCancel, task[:], around.Key),
		body: body, digest: digest,
	}, nil
}

// verifyCancel holds a cancel against what must be true of it.
func verifyCancel(r *Row, report func(broken bool, rule string)) {
	_, digest, err := orbit.ParseCancel(r.Request)
	report(err != nil, "request is none that a server could accept")
	report(err == nil && r.Algorithm == orbit.DigestAlgorithm && digest != r.Digest, "content digest is not that of the request")
	report(r.CancelTaskID == "", "a cancel names no task")
	report(r.QueueID != "" || r.Handler != "", "a cancel has a queue or handler")
	report(r.State == Delivered && r.TaskID != r.CancelTaskID, "a cancel was accepted for another task")
}

package orbit

import "context"

// CancelTaskRequest asks for the cancellation of a task.
type CancelTaskRequest struct {
	ExpectedRevision uint64 // revision that the caller has seen; not zero
	Reason           string // for people: 1 to 1024 Unicode characters, not only blanks
}

type wireCancel struct {
	ExpectedRevision decimalUint `json:"expected_revision" strict:"required"`
	Reason           string      `json:"reason" strict:"required"`
}

// ParseCancel reads the body of POST /v1/tasks/{task_id}:cancel strictly (CAN-005,
// CAN-006) and returns the digest of its content. Its errors are
// [*InvalidArgumentError].
func ParseCancel(body []byte) (CancelTaskRequest, Digest, error) {
	var w wireCancel
	if err := decode(body, &w); err != nil {
		return CancelTaskRequest{}, Digest{}, err
	}
	r := CancelTaskRequest{ExpectedRevision: uint64(w.ExpectedRevision), Reason: w.Reason}
	if err := r.validate(); err != nil {
		return CancelTaskRequest{}, Digest{}, err
	}
	return r, digestOf(r.appendJSON(nil)), nil
}

func (r CancelTaskRequest) validate() error {
	if err := validRevision(r.ExpectedRevision); err != nil {
		return err
	}
	return validReason("reason", r.Reason)
}

// appendJSON encodes a valid request, in the canonical form.
func (r CancelTaskRequest) appendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.decimal("expected_revision", r.ExpectedRevision)
	o.string("reason", r.Reason)
	return o.end()
}

// CancelTask cancels a task, once, under key. A task that runs is only told to stop: its
// state in the receipt is RUNNING, and its worker's answer or its timeout decides what
// becomes of it. A task with an unknown effect goes to NEEDS_REVIEW. Cancelling undoes
// no effect that has happened outside. A stale revision, a task that is final and one
// with a cancel intent give an [*APIError] with CodeStateConflict; other errors are as for
// [Client.SubmitTask].
func (c *Client) CancelTask(ctx context.Context, taskID, key string, r CancelTaskRequest) (TaskReceipt, error) {
	if err := r.validate(); err != nil {
		return TaskReceipt{}, err
	}
	return c.runOnTask(ctx, taskID, command{
		act: "cancel task", path: submitPath + "/" + taskID + ":cancel", key: key, body: r.appendJSON(nil),
	})
}

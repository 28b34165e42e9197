package orbit

import (
	"context"
	"fmt"
	"net/http"
)

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

// Freeze checks r by the server's rules and returns the body to be sent, the same for equal
// requests, and the digest of its content. Its errors are [*InvalidArgumentError].
func (r CancelTaskRequest) Freeze() ([]byte, Digest, error) {
	if err := r.validate(); err != nil {
		return nil, Digest{}, err
	}
	body := r.appendJSON(nil)
	return body, digestOf(body), nil
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

// CancelFrozen sends body, which must come from [CancelTaskRequest.Freeze], once under key
// and reports what came back. Accepted is a 200, or a 202 while the task runs, with the task
// as the cancel left it: hold its id against taskID. Traceparent may be empty. Errors are as
// for [Client.SubmitFrozen] (OUT-022).
func (c *Client) CancelFrozen(ctx context.Context, taskID, key string, body []byte, traceparent string) (Answer, error) {
	if !ValidID(taskID) {
		return Answer{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	if err := (FrozenItem{Key: key, Body: body, Traceparent: traceparent}).validate(); err != nil {
		return Answer{}, err
	}
	req, err := c.newRequest(ctx, http.MethodPost, submitPath+"/"+taskID+":cancel", body)
	if err != nil {
		return Answer{}, fmt.Errorf("orbit: cancel task: %w", err)
	}
	req.Header.Set(HeaderIdempotencyKey, key)
	if traceparent != "" {
		req.Header.Set(HeaderTraceparent, traceparent)
	}
	r, err := c.exchange(req, maxSingleAnswer)
	if err != nil {
		return Answer{}, &UnknownOutcomeError{Act: "cancel task", Err: err}
	}
	return r.answer(http.StatusOK, http.StatusAccepted), nil
}

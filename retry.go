package orbit

import (
	"context"
	"errors"
	"net/http"
)

// RetryTaskRequest asks for a new task that does again what a failed or cancelled one
// was to do.
type RetryTaskRequest struct {
	ExpectedRevision uint64 // revision that the caller has seen; not zero
	Reason           string // for people: 1 to 1024 Unicode characters, not only blanks
}

// ParseRetry reads the body of POST /v1/tasks/{task_id}:retry strictly (AMB-072) and
// returns the digest of its content. Its errors are [*InvalidArgumentError].
func ParseRetry(body []byte) (RetryTaskRequest, Digest, error) {
	r, d, err := ParseCancel(body) // the same members under the same rules
	return RetryTaskRequest(r), d, err
}

// RetryTask makes a new task with the frozen fields of a task that is FAILED or
// CANCELLED, once, under key. The new one is linked by RetryOf; the old one stays as it is
// (STATE-019). Its absolute times are not taken over: it may start at once. Any other
// state and a stale revision give an [*APIError] with CodeStateConflict; other errors are
// as for [Client.SubmitTask].
func (c *Client) RetryTask(ctx context.Context, taskID, key string, r RetryTaskRequest) (Accepted, error) {
	const act = "retry task"
	if !ValidID(taskID) {
		return Accepted{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	same := CancelTaskRequest(r)
	if err := same.validate(); err != nil {
		return Accepted{}, err
	}
	reply, _, err := c.run(ctx, command{
		act: act, method: http.MethodPost, path: submitPath + "/" + taskID + ":retry", key: key,
		body: same.appendJSON(nil), success: []int{http.StatusOK, http.StatusCreated},
	})
	if err != nil {
		return Accepted{}, err
	}
	a := reply.answer(http.StatusOK, http.StatusCreated)
	switch {
	case a.Accepted == nil:
		return Accepted{}, failed(act, a.Status, a.Err, a.Unreadable)
	case a.Accepted.Task.RetryOf != taskID:
		return Accepted{}, &UnknownOutcomeError{Act: act, Status: a.Status, Err: errors.New("receipt is not one of a retry of this task")}
	}
	return *a.Accepted, nil
}

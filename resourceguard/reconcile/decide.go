package reconcile

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/orbitkit/orbit"
)

// evidence is what a decision rests on. It depends on the task and the store alone, so
// that whoever repeats the decision sends the same bytes under the same key.
type evidence struct {
	Attempt    string `json:"attempt_id"`  // that was fenced
	FenceToken string `json:"fence_token"` // decimal: the resource has been raised to it
	Operation  string `json:"operation"`
	Applied    bool   `json:"applied"`
	AppliedBy  string `json:"applied_by,omitempty"`    // attempt
	Token      string `json:"applied_token,omitempty"` // decimal
	AppliedAt  string `json:"applied_at,omitempty"`
	Digest     string `json:"content_sha256,omitempty"`
	Then       string `json:"then,omitempty"` // thenRetry: a manual retry follows
}

const thenRetry = "retry"

func (p *proof) evidence(retry bool) (json.RawMessage, error) {
	e := evidence{
		Attempt: p.attempt.ID, FenceToken: strconv.FormatUint(p.attempt.FenceToken, 10),
		Operation: p.operation, Applied: p.applied,
	}
	if p.applied {
		e.AppliedBy, e.Token = p.record.Attempt, strconv.FormatUint(p.record.Token, 10)
		e.AppliedAt, e.Digest = p.record.AppliedAt.UTC().Format(time.RFC3339Nano), hex.EncodeToString(p.record.Digest[:])
	}
	if retry {
		e.Then = thenRetry
	}
	return json.Marshal(e)
}

// request is the review that p calls for.
func (r *Reconciler) request(p *proof, retry bool) (q orbit.ReviewTaskRequest, err error) {
	q = orbit.ReviewTaskRequest{ExpectedRevision: p.task.Revision, Source: r.cfg.Source}
	if q.Evidence, err = p.evidence(retry); err != nil {
		return q, err
	}
	if !p.applied {
		q.Decision = orbit.StateFailed
		q.Note = "the resource was raised to the attempt's fence token and has no record of the operation: no attempt of this task has applied it, and none can any more"
		return q, nil
	}
	q.Decision = orbit.StateSucceeded
	q.Note = "the resource was raised to the attempt's fence token and has the operation on record"
	if result, err := orbit.ValidatePayload("result", p.record.Receipt); err == nil {
		q.Result = result
	}
	return q, nil
}

// mayRetry tells whether an operation that was not applied is tried again. A task that
// somebody wanted cancelled is not.
func (r *Reconciler) mayRetry(p *proof) bool {
	return !p.applied && p.rule.Absent == Retry && p.chain.retries < r.cfg.MaxRetries && p.task.CancelRequestedAt == nil
}

// decide closes the review of a task, and makes its retry.
func (r *Reconciler) decide(ctx context.Context, p proof) (o Outcome, retryID string, err error) {
	retry := r.mayRetry(&p)
	q, err := r.request(&p, retry)
	if err != nil {
		return "", "", err
	}
	if retry {
		defer func() {
			if err != nil { // also a review without an answer: it may have failed the task
				r.owe()
			}
		}()
	}
	key := fmt.Sprintf("reconcile-%s-%d", p.task.ID, p.task.Revision)
	receipt, err := insist(ctx, func() (orbit.TaskReceipt, error) { return r.client.ReviewTask(ctx, p.task.ID, key, q) })
	switch {
	case err != nil:
		return "", "", overtaken(err)
	case p.applied:
		return Succeeded, "", nil
	case !retry:
		return Failed, "", nil
	}
	accepted, err := r.retry(ctx, receipt.Task)
	return Retried, accepted.Task.ID, err
}

// retryReason goes with every retry, so that its repeat has the same content.
const retryReason = "provably not applied: done again by the reconciler"

// retry makes the new task of one that has failed in a review of ours, once.
func (r *Reconciler) retry(ctx context.Context, failed orbit.Task) (orbit.Accepted, error) {
	q := orbit.RetryTaskRequest{ExpectedRevision: failed.Revision, Reason: retryReason}
	accepted, err := insist(ctx, func() (orbit.Accepted, error) {
		return r.client.RetryTask(ctx, failed.ID, "reconcile-retry-"+failed.ID, q)
	})
	return accepted, overtaken(err)
}

// overtaken tells a refusal because of what others did from one that concerns us.
func overtaken(err error) error {
	for _, code := range []string{orbit.CodeStateConflict, orbit.CodeIdempotencyConflict, orbit.CodeNotFound} {
		if isCode(err, code) {
			return errOvertaken
		}
	}
	return err
}

const (
	tries    = 4
	tryPause = 50 * time.Millisecond // doubled with each try
)

// insist repeats a write with an unknown outcome, the same under the same key, a few
// times. If the outcome is unknown after that, so is its error; the next pass goes on.
func insist[T any](ctx context.Context, write func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		done, err := write()
		var unknown *orbit.UnknownOutcomeError
		if !errors.As(err, &unknown) || try == tries || !sleep(ctx, tryPause<<try) {
			return done, err
		}
	}
}

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
)

// A review and the retry that is to follow are two calls. What ends a reconciler between
// them leaves a FAILED task whose evidence promises a retry: the sweep finds it and sends
// the retry under the key that it would have had. It is made by the first pass of a
// process, after a pass that could not complete a retry, and from time to time for
// the sake of another process that never came back.
const (
	sweepEvery = time.Hour
	sweepBack  = time.Hour // how far a sweep looks back beyond the one before, for clocks that differ
)

func (r *Reconciler) owe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed = true
}

// sweepIfDue makes a sweep if one is due.
func (r *Reconciler) sweepIfDue(ctx context.Context, counts *Counts) error {
	if !r.retries() {
		return nil
	}
	r.mu.Lock()
	began, since := time.Now(), r.swept
	due := r.owed || began.Sub(since) > sweepEvery
	r.owed = false // what fails from now on sets it again
	r.mu.Unlock()
	if !due {
		return nil
	}
	if err := r.sweep(ctx, since, began, counts); err != nil {
		r.owe()
		return fmt.Errorf("reconcile: look for retries that are owed: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = began
	return nil
}

// retries tells whether any rule asks for retries.
func (r *Reconciler) retries() bool {
	for _, rule := range r.rules {
		if rule.Absent == Retry {
			return true
		}
	}
	return false
}

// sweep makes the retries that are owed to tasks that failed since the last sweep.
func (r *Reconciler) sweep(ctx context.Context, since, now time.Time, counts *Counts) error {
	var first error
	for _, queue := range r.queues {
		list := orbit.ListTasksRequest{QueueID: queue, State: orbit.StateFailed, CreatedFrom: now.Add(-r.cfg.MaxAge), Limit: pageSize}
		for t, err := range r.client.Tasks(ctx, list) {
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return errors.Join(first, err)
			}
			if t.CompletedAt != nil && t.CompletedAt.Before(since.Add(-sweepBack)) {
				continue
			}
			if err := r.settle(ctx, t, counts); err != nil && first == nil {
				first = fmt.Errorf("task %s: %w", t.ID, err)
			}
		}
	}
	return first
}

// settle makes the retry of t if it is owed. A retry that was made before is found by its
// key, and so is made once.
func (r *Reconciler) settle(ctx context.Context, t orbit.Task, counts *Counts) error {
	h := Handler{t.Handler, t.HandlerVersion}
	if t.ConcurrencyKey == "" || r.rules[h].Absent != Retry {
		return nil
	}
	promised, err := r.promised(ctx, t.ID)
	if err != nil || !promised {
		return err
	}
	accepted, err := r.retry(ctx, t)
	switch {
	case errors.Is(err, errOvertaken):
		return nil
	case err == nil && !accepted.Deduplicated:
		r.tell(ctx, Finding{TaskID: t.ID, QueueID: t.QueueID, Handler: h, Outcome: Retried, RetryID: accepted.Task.ID}, counts)
	}
	return err
}

// promised tells whether a task failed in a review of ours that promised a retry.
func (r *Reconciler) promised(ctx context.Context, taskID string) (bool, error) {
	for e, err := range r.client.Evidence(ctx, taskID, orbit.PageRequest{Limit: pageSize}) {
		if isCode(err, orbit.CodeNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if e.Kind == orbit.EvidenceReview {
			var body struct {
				Source   string   `json:"source"`
				Evidence evidence `json:"evidence"`
			}
			err := json.Unmarshal(e.Body, &body)
			return err == nil && body.Source == r.cfg.Source && body.Evidence.Then == thenRetry, nil // a task has one review
		}
	}
	return false, nil
}

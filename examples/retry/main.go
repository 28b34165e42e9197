// Retry shows the two ways in which work is done again. The server repeats an attempt by
// itself if the worker says that nothing happened and the task's policy allows it. A task
// that has failed for good stays as it is; a person makes a new one from it, linked to the
// old, which is the same operation for the resource.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./retry
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/worker"
)

func main() { demo.Main("retry", play) }

var policy = orbit.RetryPolicy{MaxAttempts: 3, InitialDelayMS: 50, MaxDelayMS: 1000, AttemptTimeoutMS: 10_000}

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "mails")
	if err != nil {
		return err
	}
	p := &post{roots: make(chan string, 2)}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{"mail.send": p.busy, "mail.address": p.address}, queue.ID)
	if err != nil {
		return err
	}
	defer drain()
	if err := automatic(ctx, d, queue.ID); err != nil {
		return err
	}
	if err := manual(ctx, d, queue.ID, p); err != nil {
		return err
	}
	return drain()
}

// run submits a task and waits for its end.
func run(ctx context.Context, d *demo.Demo, queue, handler string) (orbit.Task, error) {
	accepted, err := d.Client.SubmitTask(ctx, d.Key(handler), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: handler, HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"mail":17}`), Retry: policy, TaskTimeoutMS: 60_000,
	})
	if err != nil {
		return orbit.Task{}, err
	}
	return d.Client.WaitTask(ctx, accepted.Task.ID)
}

// A post is the worker's code.
type post struct {
	corrected atomic.Bool // somebody has corrected the address
	roots     chan string // identities of the operation, as the handler is given them
}

// busy cannot do anything before the third attempt, and knows that nothing has happened.
func (p *post) busy(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	if e.Task.AttemptNumber < 3 {
		return nil, worker.Retryable(errors.New("mail server is busy"))
	}
	return json.RawMessage(`{"sent":true}`), nil
}

// address fails in a way that no repeat can mend.
func (p *post) address(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	p.roots <- e.OperationRoot
	if !p.corrected.Load() {
		return nil, worker.Failed(errors.New("there is no such address"))
	}
	return json.RawMessage(`{"sent":true}`), nil
}

// automatic lets the server retry. Between two attempts it waits as the policy says.
func automatic(ctx context.Context, d *demo.Demo, queue string) error {
	task, err := run(ctx, d, queue, "mail.send")
	if err != nil {
		return err
	}
	var attempts []orbit.Attempt
	for attempt, err := range d.Client.Attempts(ctx, task.ID, orbit.PageRequest{}) {
		if err != nil {
			return err
		}
		attempts = append(attempts, attempt)
	}
	slices.Reverse(attempts) // now the oldest first
	kept := true
	for i := 1; i < len(attempts); i++ {
		waited := attempts[i].ClaimedAt.Sub(*attempts[i-1].EndedAt)
		kept = kept && waited >= orbit.RetryDelay(policy, i)-time.Millisecond // times are rounded
	}
	fmt.Printf("automatic: task=%s attempts=%d back_off_kept=%t\n", task.State, len(attempts), kept)
	return errors.Join(demo.Same("state", task.State, orbit.StateSucceeded), demo.Same("attempts", len(attempts), 3), demo.Same("back-off is kept", kept, true))
}

// manual retries a failed task by hand, once its cause has gone.
func manual(ctx context.Context, d *demo.Demo, queue string, p *post) error {
	failed, err := run(ctx, d, queue, "mail.address")
	if err != nil {
		return err
	}
	p.corrected.Store(true)
	why := orbit.RetryTaskRequest{ExpectedRevision: failed.Revision, Reason: "address was corrected"}
	accepted, err := d.Client.RetryTask(ctx, failed.ID, d.Key("again"), why)
	if err != nil {
		return err
	}
	again, err := d.Client.RetryTask(ctx, failed.ID, d.Key("again"), why) // the same command makes no third task
	if err != nil {
		return err
	}
	retried, err := d.Client.WaitTask(ctx, accepted.Task.ID)
	if err != nil {
		return err
	}
	first, second := <-p.roots, <-p.roots
	fmt.Printf("failed: task=%s attempts=%d\n", failed.State, failed.AttemptCount)
	fmt.Printf("manual: task=%s repeat_is_same_task=%t same_operation=%t\n", retried.State, again.Task.ID == retried.ID, first == second)
	return errors.Join(
		demo.Same("failed task", failed.State, orbit.StateFailed),
		demo.Same("attempts of a final failure", failed.AttemptCount, 1),
		demo.Same("retried task", retried.State, orbit.StateSucceeded),
		demo.Same("task of the repeat", again.Task.ID, retried.ID),
		demo.Same("operation", second, first),
		demo.Same("root of the operation", first, failed.ID),
		linked(ctx, d, failed.ID, retried),
	)
}

// linked shows how the two tasks hang together. The old one stays failed, and a task that
// has succeeded cannot be retried.
func linked(ctx context.Context, d *demo.Demo, failed string, retried orbit.Task) error {
	old, err := d.Client.GetTask(ctx, failed)
	if err != nil {
		return err
	}
	source, err := d.Client.GetTaskSource(ctx, retried.ID)
	if err != nil {
		return err
	}
	_, err = d.Client.RetryTask(ctx, retried.ID, d.Key("once-more"), orbit.RetryTaskRequest{ExpectedRevision: retried.Revision, Reason: "to be sure"})
	refusal, err := demo.Refused("a retry of a task that has succeeded", err, orbit.CodeStateConflict)
	if err != nil {
		return err
	}
	fmt.Printf("linked: source=%s retry_of_failed=%t old_task=%s retry_of_success=%s\n", source.Kind, retried.RetryOf == failed, old.State, refusal.Code)
	return errors.Join(
		demo.Same("retry_of", retried.RetryOf, failed),
		demo.Same("source", source, orbit.Source{Kind: orbit.SourceManualRetry, TaskID: failed}),
		demo.Same("old task", old.State, orbit.StateFailed),
	)
}

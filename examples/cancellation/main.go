// Cancellation cancels a task that waits and one that runs. The first is over at once. The
// second is only asked to stop: its worker decides what becomes of it, since it alone knows
// what has happened already. Cancelling undoes no effect outside.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./cancellation
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/worker"
)

func main() { demo.Main("cancellation", play) }

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "renders")
	if err != nil {
		return err
	}
	if err := waiting(ctx, d, queue.ID); err != nil {
		return err
	}
	return running(ctx, d, queue.ID)
}

func submit(ctx context.Context, d *demo.Demo, operation, queue string) (orbit.Task, error) {
	accepted, err := d.Client.SubmitTask(ctx, d.Key(operation), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "film.render", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:       json.RawMessage(`{"film":"objects/7"}`),
		TaskTimeoutMS: 60_000,
	})
	return accepted.Task, err
}

// waiting cancels a task that nobody has taken. Its revision says what the caller has seen of
// it; a repeat under the same key gets the first receipt.
func waiting(ctx context.Context, d *demo.Demo, queue string) error {
	task, err := submit(ctx, d, "waiting", queue)
	if err != nil {
		return err
	}
	why := orbit.CancelTaskRequest{ExpectedRevision: task.Revision, Reason: "source object was replaced"}
	first, err := d.Client.CancelTask(ctx, task.ID, d.Key("cancel-waiting"), why)
	if err != nil {
		return err
	}
	again, err := d.Client.CancelTask(ctx, task.ID, d.Key("cancel-waiting"), why)
	if err != nil {
		return err
	}
	_, err = d.Client.CancelTask(ctx, task.ID, d.Key("cancel-twice"), why) // another key is another command
	refusal, err := demo.Refused("a second cancel", err, orbit.CodeStateConflict)
	if err != nil {
		return err
	}
	fmt.Printf("waiting: cancel=%s revision=%d completed=%t\n", first.Task.State, first.Task.Revision, first.Task.CompletedAt != nil)
	fmt.Printf("waiting: repeat=%s deduplicated=%t second=%s\n", again.Task.State, again.Deduplicated, refusal.Code)
	return errors.Join(
		demo.Same("state", first.Task.State, orbit.StateCancelled),
		demo.Same("revision", first.Task.Revision, task.Revision+1),
		demo.Same("is completed", first.Task.CompletedAt != nil, true),
		demo.Same("repeat is deduplicated", again.Deduplicated, true),
		demo.Same("revision of the repeat", again.Task.Revision, first.Task.Revision),
	)
}

// running cancels a task while a worker runs it.
func running(ctx context.Context, d *demo.Demo, queue string) error {
	r := renderer{started: make(chan struct{}), told: make(chan error, 1)}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{"film.render": r.render}, queue)
	if err != nil {
		return err
	}
	defer drain()
	task, err := submit(ctx, d, "running", queue)
	if err != nil {
		return err
	}
	select {
	case <-r.started:
	case <-ctx.Done():
		return fmt.Errorf("no worker took the task: %w", context.Cause(ctx))
	}
	// The caller's view of the task is from before its start: nothing is done.
	why := orbit.CancelTaskRequest{ExpectedRevision: task.Revision, Reason: "customer left"}
	_, err = d.Client.CancelTask(ctx, task.ID, d.Key("cancel-stale"), why)
	stale, err := demo.Refused("a cancel with a stale revision", err, orbit.CodeStateConflict)
	if err != nil {
		return err
	}
	fmt.Printf("running: stale=%s\n", stale.Code)
	if task, err = d.Client.GetTask(ctx, task.ID); err != nil {
		return err
	}
	why.ExpectedRevision = task.Revision
	return errors.Join(stop(ctx, d, task.ID, why, r), history(ctx, d, task.ID), drain())
}

// stop asks for the end of the task and waits for it. The receipt of the command stays what
// it was, whatever has become of the task since.
func stop(ctx context.Context, d *demo.Demo, task string, why orbit.CancelTaskRequest, r renderer) error {
	receipt, err := d.Client.CancelTask(ctx, task, d.Key("cancel-running"), why)
	if err != nil {
		return err
	}
	ended, err := d.Client.WaitTask(ctx, task)
	if err != nil {
		return err
	}
	again, err := d.Client.CancelTask(ctx, task, d.Key("cancel-running"), why)
	if err != nil {
		return err
	}
	told := errors.Is(<-r.told, worker.ErrCancelRequested)
	fmt.Printf("running: cancel=%s worker_told=%t ended=%s\n", receipt.Task.State, told, ended.State)
	fmt.Printf("running: repeat=%s deduplicated=%t\n", again.Task.State, again.Deduplicated)
	return errors.Join(
		demo.Same("receipt", receipt.Task.State, orbit.StateRunning),
		demo.Same("worker was told of the cancel", told, true),
		demo.Same("end", ended.State, orbit.StateCancelled),
		demo.Same("receipt of the repeat", again.Task.State, orbit.StateRunning),
		demo.Same("repeat is deduplicated", again.Deduplicated, true),
	)
}

// A renderer is a handler that looks at its context between two steps of its work.
type renderer struct {
	started chan struct{}
	told    chan error // why its context ended
}

func (r renderer) render(ctx context.Context, _ worker.Execution) (json.RawMessage, error) {
	close(r.started)
	<-ctx.Done() // where the steps would be
	cause := context.Cause(ctx)
	r.told <- cause
	if errors.Is(cause, worker.ErrCancelRequested) {
		return nil, worker.Cancelled(errors.New("stopped between two frames, nothing published"))
	}
	return nil, cause // lease lost, timeout: the outcome is unknown
}

// history shows how the attempt ended.
func history(ctx context.Context, d *demo.Demo, task string) error {
	var outcomes []string
	for attempt, err := range d.Client.Attempts(ctx, task, orbit.PageRequest{}) {
		if err != nil {
			return err
		}
		outcomes = append(outcomes, attempt.Outcome)
		fmt.Printf("running: attempt=%d outcome=%s error=%q\n", attempt.Number, attempt.Outcome, attempt.ErrorText)
	}
	return demo.Same("outcomes", fmt.Sprint(outcomes), fmt.Sprint([]string{orbit.OutcomeCancelled}))
}

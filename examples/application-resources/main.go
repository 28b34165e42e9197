// Application-resources bounds the application as a whole and stops its dispatch, as an
// operator does in an emergency. This concerns everything in the application for a few
// seconds, other programs included: run it on a test installation. What it changes it puts
// back, also when it fails or is interrupted (but not if it is killed).
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./application-resources
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/worker"
)

func main() { demo.Main("application-resources", play) }

func play(ctx context.Context, d *demo.Demo) (err error) {
	before, err := d.Client.GetApplication(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("application: mine=%t state=%s\n", before.ID == d.Credentials.ApplicationID, before.State)
	if err := demo.Same("application", before.ID, d.Credentials.ApplicationID); err != nil {
		return err
	}
	if before.DispatchStopped {
		return errors.New("the dispatch of the application is stopped already: this is no place for an example")
	}
	queue, err := d.Queue(ctx, "jobs")
	if err != nil {
		return err
	}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{"job.run": run}, queue.ID)
	if err != nil {
		return err
	}
	defer drain()
	if err := finish(ctx, d, queue.ID, "before"); err != nil { // the worker is there
		return err
	}
	defer func() { err = errors.Join(err, restore(ctx, d, before)) }()
	return errors.Join(emergency(ctx, d, queue.ID, before), drain())
}

func run(context.Context, worker.Execution) (json.RawMessage, error) { return nil, nil }

func submit(ctx context.Context, d *demo.Demo, operation, queue string) (orbit.Accepted, error) {
	return d.Client.SubmitTask(ctx, d.Key(operation), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "job.run", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"job":1}`), TaskTimeoutMS: 60_000,
	})
}

// finish runs one task to its end.
func finish(ctx context.Context, d *demo.Demo, queue, operation string) error {
	accepted, err := submit(ctx, d, operation, queue)
	if err != nil {
		return err
	}
	task, err := d.Client.WaitTask(ctx, accepted.Task.ID)
	if err != nil {
		return err
	}
	return demo.Same("task "+operation, task.State, orbit.StateSucceeded)
}

// emergency stops the dispatch and lets nothing more in, then lets everything go on.
func emergency(ctx context.Context, d *demo.Demo, queue string, before orbit.Application) error {
	yes, no, one := true, false, uint64(1)
	stop := orbit.UpdateApplicationRequest{ExpectedRevision: before.Revision, DispatchStopped: &yes}
	stopped, err := d.Client.UpdateApplication(ctx, d.Key("stop"), stop)
	if err != nil {
		return err
	}
	_, err = d.Client.UpdateApplication(ctx, d.Key("stop-late"), stop)
	stale, err := demo.Refused("a change of a stale revision", err, orbit.CodeStateConflict)
	if err != nil {
		return err
	}
	waiting, err := submit(ctx, d, "waiting", queue)
	if err != nil {
		return err
	}
	// One unfinished task there is, so that the limit is reached.
	limited, err := d.Client.UpdateApplication(ctx, d.Key("limit"), orbit.UpdateApplicationRequest{ExpectedRevision: stopped.Revision, MaxUnfinished: &one})
	if err != nil {
		return err
	}
	if err := full(ctx, d, queue, limited); err != nil {
		return err
	}
	held, err := hold(ctx, d, waiting.Task.ID)
	if err != nil {
		return err
	}
	fmt.Printf("stopped: dispatch_stopped=%t task=%s attempts=%d stale_change=%s\n", stopped.DispatchStopped, held.State, held.AttemptCount, stale.Code)
	if err := errors.Join(
		demo.Same("dispatch is stopped", stopped.DispatchStopped, true),
		demo.Same("state while stopped", held.State, orbit.StateWaiting),
		demo.Same("attempts while stopped", held.AttemptCount, 0),
	); err != nil {
		return err
	}

	going, err := d.Client.UpdateApplication(ctx, d.Key("go"), orbit.UpdateApplicationRequest{
		ExpectedRevision: limited.Revision, DispatchStopped: &no, MaxUnfinished: &before.MaxUnfinished,
	})
	if err != nil {
		return err
	}
	fmt.Printf("going on: dispatch_stopped=%t\n", going.DispatchStopped)
	return resumed(ctx, d, waiting.Task)
}

// full shows that a full application takes no new task and still answers for old ones.
func full(ctx context.Context, d *demo.Demo, queue string, limited orbit.Application) error {
	_, err := submit(ctx, d, "one-too-many", queue)
	refusal, err := demo.Refused("a task for a full application", err, orbit.CodeApplicationFull)
	if err != nil {
		return err
	}
	again, err := submit(ctx, d, "waiting", queue)
	if err != nil {
		return err
	}
	counted := limited.Unfinished != nil && *limited.Unfinished >= limited.MaxUnfinished
	fmt.Printf("full: submit=%d %s retry_after=%v counted=%t repeat_of_accepted=%t\n", refusal.Status, refusal.Code, refusal.RetryAfter, counted, again.Deduplicated)
	return errors.Join(
		demo.Same("answer says when to come back", refusal.HasRetryAfter, true),
		demo.Same("unfinished tasks are counted", counted, true),
		demo.Same("repeat is deduplicated", again.Deduplicated, true),
	)
}

// pause is how long the worker, which is there and free, is given to take the task.
const pause = time.Second

// hold returns the task as it is after the pause.
func hold(ctx context.Context, d *demo.Demo, task string) (orbit.Task, error) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return orbit.Task{}, context.Cause(ctx)
	}
	return d.Client.GetTask(ctx, task)
}

// resumed shows that the task is done now, and by the server's clock was not taken before.
func resumed(ctx context.Context, d *demo.Demo, accepted orbit.Task) error {
	task, err := d.Client.WaitTask(ctx, accepted.ID)
	if err != nil {
		return err
	}
	page, err := d.Client.ListAttempts(ctx, task.ID, orbit.PageRequest{})
	if err != nil {
		return err
	}
	const clocks = pause / 10 // two clocks do not run alike
	waited := len(page.Items) == 1 && page.Items[0].ClaimedAt.Sub(accepted.CreatedAt) >= pause-clocks
	fmt.Printf("resumed: task=%s attempts=%d waited=%t\n", task.State, len(page.Items), waited)
	return errors.Join(
		demo.Same("state", task.State, orbit.StateSucceeded),
		demo.Same("attempts", len(page.Items), 1),
		demo.Same("task waited for the resume", waited, true),
	)
}

// restore puts back what differs from before, whatever has become of the run. The key is
// new with each look, since the revision is part of the content.
func restore(ctx context.Context, d *demo.Demo, before orbit.Application) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	now, err := d.Client.GetApplication(ctx)
	for look := 1; err == nil && (now.MaxUnfinished != before.MaxUnfinished || now.DispatchStopped != before.DispatchStopped); look++ {
		now, err = d.Client.UpdateApplication(ctx, d.Key(fmt.Sprint("restore-", look)), orbit.UpdateApplicationRequest{
			ExpectedRevision: now.Revision, MaxUnfinished: &before.MaxUnfinished, DispatchStopped: &before.DispatchStopped,
		})
		var conflict *orbit.APIError
		if errors.As(err, &conflict) && conflict.Code == orbit.CodeStateConflict { // somebody else changed it meanwhile
			now, err = d.Client.GetApplication(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("the application is NOT as it was (limit %d, dispatch stopped %t): %w", before.MaxUnfinished, before.DispatchStopped, err)
	}
	fmt.Printf("restored: limit=%t dispatch=%t\n", now.MaxUnfinished == before.MaxUnfinished, now.DispatchStopped == before.DispatchStopped)
	return nil
}

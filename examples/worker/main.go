// Worker runs an automatic worker: it takes tasks, keeps their leases, reports their ends,
// and drains when it is told to stop. A real worker is such a program with a longer life,
// stopped by SIGTERM.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./worker
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

func main() { demo.Main("worker", play) }

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "files")
	if err != nil {
		return err
	}
	o := &office{started: make(chan struct{}), release: make(chan struct{})}
	scan := worker.Handler{Name: "file.scan", Version: "v1"}
	drain, err := d.Start(ctx, worker.Config{
		Queues: []string{queue.ID},
		Handlers: map[worker.Handler]worker.HandlerFunc{
			{Name: "file.convert", Version: "v1"}: convert,
			{Name: "file.print", Version: "v1"}:   printFile,
			scan:                                  o.scan,
			{Name: "file.archive", Version: "v1"}: o.archive,
		},
		Capacity:        4,
		HandlerCapacity: map[worker.Handler]int{scan: 1}, // there is one scanner
		Middleware:      []worker.Middleware{o.counted},
		DrainTimeout:    30 * time.Second,
	})
	if err != nil {
		return err
	}
	defer drain()
	defer o.finish()
	return inOrder(
		func() error { return success(ctx, d, queue.ID) },
		func() error { return retryable(ctx, d, queue.ID) },
		func() error { return oneAtATime(ctx, d, queue.ID, o) },
		func() error { return draining(ctx, d, queue.ID, o, drain) },
	)
}

// inOrder does one step after the other until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func submit(ctx context.Context, d *demo.Demo, queue, operation, handler string) (orbit.Task, error) {
	accepted, err := d.Client.SubmitTask(ctx, d.Key(operation), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: handler, HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:       json.RawMessage(`{"source_ref":"objects/input.txt","pages":3}`),
		Retry:         orbit.RetryPolicy{MaxAttempts: 2, InitialDelayMS: 50, AttemptTimeoutMS: 30_000},
		TaskTimeoutMS: 60_000,
	})
	return accepted.Task, err
}

// run submits a task and waits for its end.
func run(ctx context.Context, d *demo.Demo, queue, operation, handler string) (orbit.Task, error) {
	task, err := submit(ctx, d, queue, operation, handler)
	if err != nil {
		return task, err
	}
	return d.Client.WaitTask(ctx, task.ID)
}

// convert succeeds. What it tells as progress goes with the next renewal of the lease, for
// people who look at a long attempt.
func convert(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	var file struct{ Pages int }
	if err := json.Unmarshal(e.Task.Payload, &file); err != nil {
		return nil, worker.Failed(err) // no repeat can mend the payload
	}
	for page := range file.Pages {
		if err := e.Progress(fmt.Sprintf("page %d of %d", page+1, file.Pages)); err != nil {
			return nil, worker.Failed(err) // nothing is published yet
		}
	}
	return fmt.Appendf(nil, `{"pages":%d}`, file.Pages), nil
}

func success(ctx context.Context, d *demo.Demo, queue string) error {
	task, err := run(ctx, d, queue, "convert", "file.convert")
	if err != nil {
		return err
	}
	fmt.Printf("success: task=%s attempts=%d result=%s\n", task.State, task.AttemptCount, task.Result)
	return errors.Join(
		demo.Same("state", task.State, orbit.StateSucceeded),
		demo.Same("result", string(task.Result), `{"pages":3}`),
	)
}

// printFile cannot do anything at first and knows that nothing has happened. Had it only lost
// the answer of the printer it would return that error as it is: the outcome is unknown.
func printFile(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	if e.Task.AttemptNumber == 1 {
		return nil, worker.Retryable(errors.New("printer is busy, nothing was printed"))
	}
	return nil, nil
}

func retryable(ctx context.Context, d *demo.Demo, queue string) error {
	task, err := run(ctx, d, queue, "print", "file.print")
	if err != nil {
		return err
	}
	var first orbit.Attempt
	for attempt, err := range d.Client.Attempts(ctx, task.ID, orbit.PageRequest{}) {
		if err != nil {
			return err
		}
		first = attempt // the newest comes first, the first one last
	}
	fmt.Printf("retryable: first=%s error=%q task=%s attempts=%d\n", first.Outcome, first.ErrorText, task.State, task.AttemptCount)
	return errors.Join(
		demo.Same("state", task.State, orbit.StateSucceeded),
		demo.Same("outcome of the first attempt", first.Outcome, orbit.OutcomeFailed),
	)
}

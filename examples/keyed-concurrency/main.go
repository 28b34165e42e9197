// Keyed-concurrency runs two tasks of two queues that write to the same resource. They share
// a resource key, so the task server runs them one after the other, each with a greater
// token. The resource checks the token with every write: when the request of the first
// attempt comes once more, after the second has written, it is refused.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit-keyed.credentials.json go run ./keyed-concurrency
//
// The run takes a minute at the most. If it is killed, what became of its tasks stands in
// their history (see the example history).
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

func main() { demo.Main("keyed-concurrency", play) }

func play(ctx context.Context, d *demo.Demo) error {
	key := d.Key("object/42")
	tasks, err := submit(ctx, d, key)
	if err != nil {
		return err
	}
	r := newResource(d.Credentials.NamespaceID)
	var drains []func() error
	for _, t := range tasks { // a worker for each queue: only the key keeps them apart
		drain, err := d.Start(ctx, worker.Config{
			Queues: []string{t.QueueID}, Capacity: 4,
			Handlers: map[worker.Handler]worker.HandlerFunc{{Name: "object.update", Version: "v1"}: r.update},
		})
		if err != nil {
			return err
		}
		defer drain()
		drains = append(drains, drain)
	}
	if err := complete(ctx, d, tasks, r); err != nil {
		return err
	}
	return lateRequest(r, drains)
}

// submit makes two queues and a task in each. Both tasks have the same resource key.
func submit(ctx context.Context, d *demo.Demo, key string) ([]orbit.Task, error) {
	var tasks []orbit.Task
	for _, name := range []string{"web", "batch"} {
		queue, err := d.Queue(ctx, name)
		if err != nil {
			return nil, err
		}
		accepted, err := d.Client.SubmitTask(ctx, d.Key("update-"+name), orbit.SubmitTaskRequest{
			QueueID: queue.ID, Handler: "object.update", HandlerVersion: "v1", PayloadVersion: "v1",
			Payload:        fmt.Appendf(nil, `{"object_ref":"objects/42","set_by":%q}`, name),
			ConcurrencyKey: key,
			RecoverySafety: orbit.RecoveryIdempotent, // the resource knows an operation that it has applied
			TaskTimeoutMS:  20_000,
			Retry:          orbit.RetryPolicy{MaxAttempts: 3, AttemptTimeoutMS: 10_000}, // within the task's time
		})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, accepted.Task)
	}
	return tasks, nil
}

// update is the handler: it hands the token of its attempt to the resource with the write,
// and the identity of the operation, which stays the same in every attempt.
func (r *resource) update(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	applied, err := r.apply(write{
		namespace: e.Task.NamespaceID, key: e.Task.ConcurrencyKey, token: e.ConcurrencyToken,
		operation: e.OperationRoot, attempt: e.AttemptID, content: string(e.Task.Payload),
	})
	if err != nil {
		return nil, worker.Failed(err) // the resource says that it has not written
	}
	return fmt.Appendf(nil, `{"applied":%t}`, applied), nil
}

// complete waits for the tasks and looks up the tokens of the attempts that wrote, in the
// order in which the resource took their writes.
func complete(ctx context.Context, d *demo.Demo, tasks []orbit.Task, r *resource) error {
	queues := make(map[string]bool)
	tokens := make(map[string]uint64) // by attempt, as the server's history has them
	completed := 0
	for _, t := range tasks {
		ended, err := d.Client.WaitTask(ctx, t.ID)
		if err != nil {
			return err
		}
		queues[ended.QueueID] = true
		if ended.State == orbit.StateSucceeded {
			completed++
		}
		for attempt, err := range d.Client.Attempts(ctx, t.ID, orbit.PageRequest{}) {
			if err != nil {
				return err
			}
			tokens[attempt.ID] = attempt.ConcurrencyToken
		}
	}
	increasing, last := true, uint64(0)
	for _, w := range r.written() {
		token := tokens[w.attempt]
		increasing = increasing && token > last && token == w.token
		last = token
	}
	fmt.Printf("queues=%d completed=%d tokens_increasing=%t\n", len(queues), completed, increasing)
	return errors.Join(
		demo.Same("number of queues", len(queues), 2),
		demo.Same("number of completed tasks", completed, 2),
		demo.Same("tokens increase", increasing, true),
	)
}

// lateRequest plays the first write once more, as if it had been held up on its way until
// the second was done, and drains the workers.
func lateRequest(r *resource, drains []func() error) error {
	writes := r.written()
	if len(writes) == 0 {
		return errors.New("nothing was written")
	}
	_, late := r.apply(writes[0])
	var errs []error
	for _, drain := range drains {
		errs = append(errs, drain())
	}
	stale, drained := errors.Is(late, errStale), errors.Join(errs...)
	fmt.Printf("resource_writes=%d stale_write_rejected=%t worker_drained=%t\n", len(r.written()), stale, drained == nil)
	return errors.Join(
		demo.Same("number of writes", len(r.written()), 2),
		demo.Same("late request is refused as stale", stale, true),
		drained,
	)
}

// Resources makes a queue, bounds it, and pauses it. A full queue refuses new tasks and
// says when to come back; a paused one takes them and gives none out.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./resources
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
)

func main() { demo.Main("resources", play) }

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := create(ctx, d)
	if err != nil {
		return err
	}
	if queue, err = pause(ctx, d, queue); err != nil {
		return err
	}
	tasks, err := fill(ctx, d, queue)
	if err != nil {
		return err
	}
	if queue, err = work(ctx, d, queue, tasks); err != nil {
		return err
	}
	return rename(ctx, d, queue)
}

// create makes a queue that holds at most two unfinished tasks and runs one at a time. A
// repeat under the same key gives the same queue; its name is taken for everybody else.
func create(ctx context.Context, d *demo.Demo) (orbit.Queue, error) {
	wanted := orbit.CreateQueueRequest{Name: d.Key("printer"), MaxBacklog: 2, MaxConcurrency: 1}
	queue, err := d.Client.CreateQueue(ctx, d.Key("create"), wanted)
	if err != nil {
		return queue, err
	}
	again, err := d.Client.CreateQueue(ctx, d.Key("create"), wanted)
	if err != nil {
		return queue, err
	}
	_, err = d.Client.CreateQueue(ctx, d.Key("create-other"), wanted)
	refusal, err := demo.Refused("a second queue of that name", err, orbit.CodeStateConflict)
	if err != nil {
		return queue, err
	}
	fmt.Printf("created: backlog=%d concurrency=%d repeat_is_same_queue=%t same_name=%s\n", queue.MaxBacklog, queue.MaxConcurrency, again.ID == queue.ID, refusal.Code)
	return queue, errors.Join(
		demo.Same("queue of the repeat", again.ID, queue.ID),
		demo.Same("limit of the backlog", queue.MaxBacklog, wanted.MaxBacklog),
		demo.Same("limit of attempts", queue.MaxConcurrency, wanted.MaxConcurrency),
	)
}

// pause stops the queue. Whoever changes it says which revision he has seen; one who has
// not seen the pause changes nothing.
func pause(ctx context.Context, d *demo.Demo, queue orbit.Queue) (orbit.Queue, error) {
	yes := true
	change := orbit.UpdateQueueRequest{ExpectedRevision: queue.Revision, Paused: &yes}
	paused, err := d.Client.UpdateQueue(ctx, queue.ID, d.Key("pause"), change)
	if err != nil {
		return queue, err
	}
	_, err = d.Client.UpdateQueue(ctx, queue.ID, d.Key("pause-late"), change)
	refusal, err := demo.Refused("a change of a stale revision", err, orbit.CodeStateConflict)
	if err != nil {
		return queue, err
	}
	fmt.Printf("paused: paused=%t revision=%d stale_change=%s\n", paused.Paused, paused.Revision, refusal.Code)
	return paused, errors.Join(demo.Same("paused", paused.Paused, true), demo.Same("revision", paused.Revision, queue.Revision+1))
}

func submit(ctx context.Context, d *demo.Demo, operation, queue string) (orbit.Accepted, error) {
	return d.Client.SubmitTask(ctx, d.Key(operation), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "page.print", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload: json.RawMessage(`{"page":1}`), TaskTimeoutMS: 60_000,
	})
}

// fill submits until the queue is full. What was accepted before is still answered.
func fill(ctx context.Context, d *demo.Demo, queue orbit.Queue) (tasks []string, err error) {
	for _, operation := range []string{"page-1", "page-2"} {
		accepted, err := submit(ctx, d, operation, queue.ID)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, accepted.Task.ID)
	}
	_, err = submit(ctx, d, "page-3", queue.ID)
	full, err := demo.Refused("a task for a full queue", err, orbit.CodeQueueFull)
	if err != nil {
		return nil, err
	}
	again, err := submit(ctx, d, "page-1", queue.ID)
	if err != nil {
		return nil, err
	}
	if queue, err = d.Client.GetQueue(ctx, queue.ID); err != nil {
		return nil, err
	}
	if queue.Unfinished == nil {
		return nil, errors.New("the queue has a limit and no count")
	}
	fmt.Printf("full: third=%d %s retry_after=%v unfinished=%d repeat_of_first=%t\n", full.Status, full.Code, full.RetryAfter, *queue.Unfinished, again.Deduplicated)
	return tasks, errors.Join(
		demo.Same("answer says when to come back", full.HasRetryAfter, true),
		demo.Same("unfinished tasks", *queue.Unfinished, 2),
		demo.Same("repeat is deduplicated", again.Deduplicated, true),
	)
}

// rename changes the name and finds the queue in the list of all.
func rename(ctx context.Context, d *demo.Demo, queue orbit.Queue) error {
	name := d.Key("old-printer")
	renamed, err := d.Client.UpdateQueue(ctx, queue.ID, d.Key("rename"), orbit.UpdateQueueRequest{ExpectedRevision: queue.Revision, Name: &name})
	if err != nil {
		return err
	}
	found := 0
	for q, err := range d.Client.Queues(ctx, orbit.PageRequest{Limit: 100}) {
		if err != nil {
			return err
		}
		if q.ID == queue.ID && q.Name == name {
			found++
		}
	}
	fmt.Printf("renamed: revision=%d found_in_list=%d\n", renamed.Revision, found)
	return errors.Join(demo.Same("revision", renamed.Revision, queue.Revision+1), demo.Same("entries in the list", found, 1))
}

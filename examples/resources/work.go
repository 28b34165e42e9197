package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/worker"
)

// work runs a worker while the queue is paused, and then lets the queue go on.
func work(ctx context.Context, d *demo.Demo, queue orbit.Queue, tasks []string) (orbit.Queue, error) {
	other, err := d.Queue(ctx, "other-printer")
	if err != nil {
		return queue, err
	}
	p := &printer{queue: queue.ID}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{"page.print": p.print}, queue.ID, other.ID)
	if err != nil {
		return queue, err
	}
	defer drain()
	if err := hold(ctx, d, other, tasks[0]); err != nil {
		return queue, err
	}
	if queue, err = resume(ctx, d, queue, tasks, p); err != nil {
		return queue, err
	}
	return queue, drain()
}

// hold gives the worker a task of another queue, which shows that it takes what there is.
// The task of the paused queue was there before and has not been touched.
func hold(ctx context.Context, d *demo.Demo, other orbit.Queue, paused string) error {
	elsewhere, err := submit(ctx, d, "page-elsewhere", other.ID)
	if err != nil {
		return err
	}
	done, err := d.Client.WaitTask(ctx, elsewhere.Task.ID)
	if err != nil {
		return err
	}
	held, err := d.Client.GetTask(ctx, paused)
	if err != nil {
		return err
	}
	fmt.Printf("held: other_queue=%s paused_queue=%s attempts=%d\n", done.State, held.State, held.AttemptCount)
	return errors.Join(
		demo.Same("task of the other queue", done.State, orbit.StateSucceeded),
		demo.Same("task of the paused queue", held.State, orbit.StateWaiting),
		demo.Same("attempts", held.AttemptCount, 0),
	)
}

// resume ends the pause and the limit of the backlog. The task that was refused is sent
// again: a refusal has left nothing under its key.
func resume(ctx context.Context, d *demo.Demo, queue orbit.Queue, tasks []string, p *printer) (orbit.Queue, error) {
	no, none := false, uint64(0)
	queue, err := d.Client.UpdateQueue(ctx, queue.ID, d.Key("resume"), orbit.UpdateQueueRequest{ExpectedRevision: queue.Revision, Paused: &no, MaxBacklog: &none})
	if err != nil {
		return queue, err
	}
	third, err := submit(ctx, d, "page-3", queue.ID)
	if err != nil {
		return queue, err
	}
	succeeded := 0
	for _, id := range append(tasks, third.Task.ID) {
		task, err := d.Client.WaitTask(ctx, id)
		if err != nil {
			return queue, err
		}
		if task.State == orbit.StateSucceeded {
			succeeded++
		}
	}
	fmt.Printf("resumed: succeeded=%d third_is_new=%t most_at_once=%d\n", succeeded, !third.Deduplicated, p.atMost())
	return queue, errors.Join(
		demo.Same("succeeded", succeeded, 3),
		demo.Same("third is a repeat", third.Deduplicated, false),
		demo.Same("most at once", p.atMost(), 1),
	)
}

// A printer counts how many pages of a queue it prints at one time.
type printer struct {
	queue     string
	mu        sync.Mutex
	now, most int
}

func (p *printer) print(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	if e.Task.QueueID == p.queue {
		p.count(1)
		defer p.count(-1)
	}
	return nil, nil
}

func (p *printer) count(change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now += change
	p.most = max(p.most, p.now)
}

func (p *printer) atMost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

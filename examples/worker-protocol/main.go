// Worker-protocol speaks the worker protocol message by message, for those who build a
// runner of their own. It renews by hand and only once: for work that takes longer, and for
// everything else that can go wrong, there is the automatic worker (see the example worker).
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./worker-protocol
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

func main() { demo.Main("worker-protocol", play) }

// A runner is one worker process. Its identity and registration stay the same on every
// connection.
type runner struct {
	demo         *demo.Demo
	registration worker.Registration
	conn         *worker.Conn
}

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "files")
	if err != nil {
		return err
	}
	r := &runner{demo: d, registration: worker.Registration{
		ProcessID: worker.NewProcessID(),
		Handlers:  []worker.Handler{{Name: "file.convert", Version: "v1"}},
		Queues:    []string{queue.ID},
		Capacity:  1,
		// ConcurrencyKeys stays false: no resource here checks tokens, so the process gets
		// no task with a resource key.
	}}
	if err := r.hello(ctx); err != nil {
		return err
	}
	defer func() { r.conn.Close() }()
	first, err := r.handBack(ctx, queue.ID)
	if err != nil {
		return err
	}
	if err := r.execute(ctx, first); err != nil {
		return err
	}
	if err := r.resume(ctx, queue.ID); err != nil {
		return err
	}
	return r.drain(ctx)
}

// hello opens a connection and registers the process. Held are the attempts that it goes on
// with.
func (r *runner) hello(ctx context.Context, held ...worker.Attempt) (err error) {
	r.conn, err = worker.Dial(ctx, r.demo.URL, r.demo.Credentials.Token, r.registration, worker.Network{}, held...)
	if err != nil {
		return err
	}
	s := r.conn.Session()
	fmt.Printf("hello: lease_known=%t attempts_known_to_server=%d\n", s.Lease > 0, len(s.Attempts))
	return demo.Same("attempts known to the server", len(s.Attempts), len(held))
}

func (r *runner) submit(ctx context.Context, queue, operation string) (orbit.Task, error) {
	accepted, err := r.demo.Client.SubmitTask(ctx, r.demo.Key(operation), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "file.convert", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:       json.RawMessage(`{"source_ref":"objects/input.txt"}`),
		TaskTimeoutMS: 60_000,
	})
	return accepted.Task, err
}

// next gives credit for one assignment and waits for it. The server assigns nothing that
// was not asked for.
func (r *runner) next(ctx context.Context) (*worker.Assignment, error) {
	if err := r.conn.Credit(ctx, 1); err != nil {
		return nil, err
	}
	for {
		event, err := r.conn.Next(ctx)
		if err != nil {
			return nil, err
		}
		switch e := event.(type) {
		case *worker.Assignment:
			fmt.Printf("assign: attempt=%d payload=%s\n", e.Task.AttemptNumber, e.Task.Payload)
			return e, nil
		case *worker.RefusedError: // of the credit
			return nil, e
		}
	}
}

// handBack returns an assignment that was not started, and takes the task again.
func (r *runner) handBack(ctx context.Context, queue string) (*worker.Assignment, error) {
	task, err := r.submit(ctx, queue, "first")
	if err != nil {
		return nil, err
	}
	offer, err := r.next(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.conn.Return(ctx, offer.Attempt); err != nil {
		return nil, err
	}
	if task, err = r.demo.Client.GetTask(ctx, task.ID); err != nil {
		return nil, err
	}
	fmt.Printf("return: task=%s\n", task.State)
	again, err := r.next(ctx)
	if err != nil {
		return nil, err
	}
	return again, errors.Join(
		demo.Same("state of what was handed back", task.State, orbit.StateWaiting),
		demo.Same("task assigned again", again.Task.ID, task.ID),
		demo.Same("attempt is a new one", again.Attempt != offer.Attempt, true),
	)
}

// execute takes an attempt from its start to its end. Every message may be repeated, on this
// connection or the next, and has the same answer then.
func (r *runner) execute(ctx context.Context, offer *worker.Assignment) error {
	a := offer.Attempt
	grant, err := r.conn.Start(ctx, a)
	if err != nil {
		return err // no right to execute
	}
	again, err := r.conn.Start(ctx, a)
	if err != nil {
		return err
	}
	fmt.Printf("start: granted=%t repeat_granted=%t\n", grant.Lease > 0, again.Lease > 0)
	renewed, err := r.conn.Renew(ctx, a, "page 1 of 3") // at the latest after a third of the lease
	if err != nil {
		return err
	}
	fmt.Printf("renew: granted=%t cancel_requested=%t\n", renewed.Lease > 0, renewed.CancelRequested)

	report := worker.Report{Receipt: worker.NewProcessID(), Outcome: orbit.OutcomeSucceeded, Result: json.RawMessage(`{"pages":3}`)}
	recorded, err := r.conn.Finish(ctx, a, report)
	if err != nil {
		return err
	}
	repeat, err := r.conn.Finish(ctx, a, report)
	if err != nil {
		return err
	}
	other := worker.Report{Receipt: worker.NewProcessID(), Outcome: orbit.OutcomeUnknown, Error: "another end of the same attempt"}
	late, err := r.conn.Finish(ctx, a, other)
	if err != nil {
		return err
	}
	fmt.Printf("finish: status=%s task=%s\n", recorded.Status, recorded.TaskState)
	fmt.Printf("finish: repeat=%s same_answer=%t other_report=%s\n", repeat.Status, repeat == recorded, late.Status)
	return errors.Join(
		demo.Same("report is recorded", recorded.Recorded, true),
		demo.Same("task after it", recorded.TaskState, orbit.StateSucceeded),
		demo.Same("answer to the repeat", repeat, recorded),
		demo.Same("another report is recorded", late.Recorded, false),
		demo.Same("granted", grant.Lease > 0 && again.Lease > 0 && renewed.Lease > 0, true),
	)
}

// resume loses the connection while an attempt runs. That releases nothing: the process
// connects again, takes the attempt up, and goes on.
func (r *runner) resume(ctx context.Context, queue string) error {
	if _, err := r.submit(ctx, queue, "second"); err != nil {
		return err
	}
	offer, err := r.next(ctx)
	if err != nil {
		return err
	}
	if _, err := r.conn.Start(ctx, offer.Attempt); err != nil {
		return err
	}
	r.conn.Close()
	if err := r.hello(ctx, offer.Attempt); err != nil {
		return err
	}
	kept, err := r.conn.Resume(ctx, offer.Attempt)
	if err != nil {
		return err
	}
	fmt.Printf("resume: kept=%t running=%t granted=%t\n", kept.Kept, kept.Running, kept.Grant.Lease > 0)
	report := worker.Report{Receipt: worker.NewProcessID(), Outcome: orbit.OutcomeFailed, Error: "no such object, nothing was written"}
	got, err := r.conn.Finish(ctx, offer.Attempt, report)
	if err != nil {
		return err
	}
	fmt.Printf("finish: status=%s task=%s\n", got.Status, got.TaskState)
	return errors.Join(
		demo.Same("attempt is kept and runs", kept.Kept && kept.Running, true),
		demo.Same("task", got.TaskState, orbit.StateFailed),
	)
}

// drain ends the work: after its answer no assignment comes any more.
func (r *runner) drain(ctx context.Context) error {
	if err := r.conn.Drain(ctx); err != nil {
		return err
	}
	err := r.conn.Close()
	fmt.Printf("drain: drained=%t\n", err == nil)
	return err
}

// Tasks submits tasks as a business program does: each under a key of its business
// operation, so that it may be sent again whenever the answer is not known. It shows every
// kind of answer and error.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./tasks
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
)

func main() { demo.Main("tasks", play) }

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "conversions")
	if err != nil {
		return err
	}
	request := orbit.SubmitTaskRequest{
		QueueID:        queue.ID,
		Handler:        "file.convert",
		HandlerVersion: "v1",
		PayloadVersion: "v1",
		// Kept digit for digit, since nobody decodes it into a float64 on the way.
		Payload:     json.RawMessage(`{"source_ref":"objects/input.txt","format":"pdf","sequence":9007199254740993}`),
		BusinessKey: "conversion-001",
		// Nobody works on this queue: the tasks end by themselves after a minute.
		TaskTimeoutMS: 60_000,
	}
	first, err := submit(ctx, d, request)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *demo.Demo, orbit.SubmitTaskRequest, orbit.Accepted) error{
		read, conflict, invalid, lost, batch, list,
	} {
		if err := step(ctx, d, request, first); err != nil {
			return err
		}
	}
	return nil
}

// submit sends a request twice under one key: the second answer is the first receipt.
func submit(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest) (orbit.Accepted, error) {
	first, err := d.Client.SubmitTask(ctx, d.Key("001"), r)
	if err != nil {
		return first, err
	}
	again, err := d.Client.SubmitTask(ctx, d.Key("001"), r)
	if err != nil {
		return first, err
	}
	fmt.Printf("accepted=%s revision=%d deduplicated=%t\n", first.Task.State, first.Task.Revision, first.Deduplicated)
	fmt.Printf("repeated=%s deduplicated=%t same_task=%t\n", again.Task.State, again.Deduplicated, again.Task.ID == first.Task.ID)
	return first, errors.Join(
		demo.Same("state", first.Task.State, orbit.StateWaiting),
		demo.Same("revision", first.Task.Revision, 1),
		demo.Same("first is deduplicated", first.Deduplicated, false),
		demo.Same("repeat is deduplicated", again.Deduplicated, true),
		demo.Same("task of the repeat", again.Task.ID, first.Task.ID),
	)
}

// read gets the task: the payload has the digits that were sent.
func read(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest, first orbit.Accepted) error {
	task, err := d.Client.GetTask(ctx, first.Task.ID)
	if err != nil {
		return err
	}
	var payload struct {
		Sequence uint64 `json:"sequence"` // an exact type, not any
	}
	if err := json.Unmarshal(task.Payload, &payload); err != nil {
		return err
	}
	fmt.Printf("sequence=%d payload_unchanged=%t\n", payload.Sequence, string(task.Payload) == string(r.Payload))
	return demo.Same("payload", string(task.Payload), string(r.Payload))
}

// conflict uses the key of the first task for other content. That is a bug of the sender:
// nothing is accepted, and a repeat would not help.
func conflict(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest, _ orbit.Accepted) error {
	r.Payload = json.RawMessage(`{"source_ref":"objects/other.txt"}`)
	_, err := d.Client.SubmitTask(ctx, d.Key("001"), r)
	refusal, err := demo.Refused("other content under a known key", err, orbit.CodeIdempotencyConflict)
	if err != nil {
		return err
	}
	fmt.Printf("other_content=%d %s\n", refusal.Status, refusal.Code)
	return nil
}

// invalid breaks a rule that the client knows as well as the server: nothing is sent.
func invalid(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest, _ orbit.Accepted) error {
	r.Retry.MaxAttempts = orbit.MaxAttempts + 1
	_, err := d.Client.SubmitTask(ctx, d.Key("invalid"), r)
	var bad *orbit.InvalidArgumentError
	if !errors.As(err, &bad) {
		return fmt.Errorf("a bad request gave %w", err)
	}
	fmt.Printf("invalid=%q rule=%q\n", bad.Field, bad.Rule)
	return nil
}

// lost loses the answer of an accepted submit. Whether it was accepted is unknown, so it is
// sent again under the same key until an answer arrives.
func lost(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest, _ orbit.Accepted) error {
	unlucky, err := orbit.NewClient(d.URL, d.Credentials.Token, orbit.ClientConfig{Transport: answerLoser{}})
	if err != nil {
		return err
	}
	_, err = unlucky.SubmitTask(ctx, d.Key("002"), r)
	var unknown *orbit.UnknownOutcomeError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("a lost answer gave %w", err)
	}
	again, err := d.Client.SubmitTask(ctx, d.Key("002"), r)
	if err != nil {
		return err
	}
	fmt.Printf("answer_lost=unknown sent_again=%s deduplicated=%t\n", again.Task.State, again.Deduplicated)
	return demo.Same("lost submit was accepted", again.Deduplicated, true)
}

// An answerLoser is a network that breaks after the request has arrived.
type answerLoser struct{}

func (answerLoser) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(errors.New("connection reset by the example"), resp.Body.Close())
}

// batch sends three requests in one call. Each has its own answer; one that is refused does
// not touch the others.
func batch(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest, _ orbit.Accepted) error {
	other := r
	other.BusinessKey = "conversion-003"
	results, err := d.Client.SubmitTasks(ctx, []orbit.BatchItem{
		{Key: d.Key("003"), Request: other}, // new
		{Key: d.Key("001"), Request: other}, // a known key with other content
		{Key: d.Key("001"), Request: r},     // a known key with its own content
	})
	if err != nil {
		return err // of the call as a whole
	}
	var answers []string
	for _, result := range results {
		var refusal *orbit.APIError
		switch {
		case errors.As(result.Err, &refusal):
			answers = append(answers, refusal.Code)
		case result.Err != nil:
			return result.Err // unknown: to be sent again under its key
		default:
			answers = append(answers, fmt.Sprintf("deduplicated:%t", result.Accepted.Deduplicated))
		}
	}
	fmt.Printf("batch=%v\n", answers)
	return demo.Same("answers of the batch", fmt.Sprint(answers), "[deduplicated:false IDEMPOTENCY_CONFLICT deduplicated:true]")
}

// list reads the queue, newest first. Conflicts and invalid requests have left nothing.
func list(ctx context.Context, d *demo.Demo, r orbit.SubmitTaskRequest, _ orbit.Accepted) error {
	tasks := 0
	for task, err := range d.Client.Tasks(ctx, orbit.ListTasksRequest{QueueID: r.QueueID, State: orbit.StateWaiting}) {
		if err != nil {
			return err
		}
		tasks++
		if len(task.Payload) > 0 {
			return fmt.Errorf("the summary of task %s has a payload", task.ID)
		}
	}
	fmt.Printf("tasks_in_queue=%d\n", tasks)
	return demo.Same("tasks in the queue", tasks, 3)
}

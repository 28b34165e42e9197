// History reads what has happened to a task: its attempts, what was learned about them
// afterwards, and where the task comes from. The first attempt fails and says that nothing
// happened; the second is still at work when its time is over and reports too late; the
// third succeeds.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./history
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/examples/internal/demo"
	"github.com/orbitkit/orbit/worker"
)

func main() { demo.Main("history", play) }

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "copies")
	if err != nil {
		return err
	}
	c := copier{client: d.Client}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{"object.copy": c.copy}, queue.ID)
	if err != nil {
		return err
	}
	defer drain()
	accepted, err := d.Client.SubmitTask(ctx, d.Key("copy"), orbit.SubmitTaskRequest{
		QueueID: queue.ID, Handler: "object.copy", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:        json.RawMessage(`{"from":"objects/1","to":"objects/2"}`),
		ConcurrencyKey: d.Key("objects/2"),
		RecoverySafety: orbit.RecoveryIdempotent, // a second copy does no harm
		Retry:          orbit.RetryPolicy{MaxAttempts: 3, AttemptTimeoutMS: 3000, InitialDelayMS: 50},
		TaskTimeoutMS:  60_000,
	})
	if err != nil {
		return err
	}
	task, err := d.Client.WaitTask(ctx, accepted.Task.ID)
	if err != nil {
		return err
	}
	if err := drain(); err != nil { // until the late report has arrived too
		return err
	}
	fmt.Printf("task=%s attempts=%d effect_uncertain=%t\n", task.State, task.AttemptCount, task.EffectUncertain)
	return errors.Join(
		demo.Same("state", task.State, orbit.StateSucceeded),
		demo.Same("attempts", task.AttemptCount, 3),
		demo.Same("effect is uncertain", task.EffectUncertain, false),
		demo.Same("result", string(task.Result), `{"copied_by_attempt":3}`),
		attempts(ctx, d.Client, task.ID),
		evidence(ctx, d.Client, task.ID),
		source(ctx, d.Client, task.ID),
	)
}

// A copier is a handler with two bad days.
type copier struct{ client *orbit.Client }

func (c copier) copy(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	switch e.Task.AttemptNumber {
	case 1:
		return nil, worker.Retryable(errors.New("target is locked, nothing was written"))
	case 2:
		// The copy takes longer than the attempt may, and cannot be interrupted. Its report
		// comes when the server has given the attempt up.
		if err := c.outlive(context.WithoutCancel(ctx), e); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, `{"copied_by_attempt":%d}`, e.Task.AttemptNumber), nil
}

// outlive returns once the attempt is over for the server.
func (c copier) outlive(ctx context.Context, e worker.Execution) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		attempt, err := c.client.GetAttempt(ctx, e.Task.ID, e.AttemptID)
		if err != nil {
			return err
		}
		if attempt.State == orbit.AttemptEnded {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// attempts reads the attempts, one to a page, and puts the oldest first. Each has a greater
// token than those before it; the resource refuses the smaller ones.
func attempts(ctx context.Context, c *orbit.Client, task string) error {
	var all []orbit.Attempt
	for attempt, err := range c.Attempts(ctx, task, orbit.PageRequest{Limit: 1}) {
		if err != nil {
			return err
		}
		all = append(all, attempt)
	}
	slices.Reverse(all)
	increasing := true
	var outcomes []string
	for i, a := range all {
		fmt.Printf("attempt=%d outcome=%s retryable=%t reason=%q error=%q result=%s\n", a.Number, a.Outcome, a.Retryable, a.Reason, a.ErrorText, orNone(a.Result))
		outcomes = append(outcomes, a.Outcome)
		increasing = increasing && (i == 0 || a.ConcurrencyToken > all[i-1].ConcurrencyToken)
	}
	fmt.Printf("tokens_increasing=%t\n", increasing)
	return errors.Join(
		demo.Same("tokens increase", increasing, true),
		demo.Same("outcomes", fmt.Sprint(outcomes), "[FAILED UNKNOWN SUCCEEDED]"),
	)
}

func orNone(result json.RawMessage) string {
	if len(result) == 0 {
		return "none"
	}
	return string(result)
}

// evidence reads what came too late. It has changed nothing: the task's result is that of
// the third attempt.
func evidence(ctx context.Context, c *orbit.Client, task string) error {
	var kinds []string
	for e, err := range c.Evidence(ctx, task, orbit.PageRequest{}) {
		if err != nil {
			return err
		}
		attempt, err := c.GetAttempt(ctx, task, e.AttemptID)
		if err != nil {
			return err
		}
		var report struct {
			Outcome string          `json:"outcome"`
			Result  json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(e.Body, &report); err != nil {
			return err
		}
		fmt.Printf("evidence=%s attempt=%d outcome=%s result=%s\n", e.Kind, attempt.Number, report.Outcome, report.Result)
		kinds = append(kinds, e.Kind)
		if err := errors.Join(demo.Same("attempt of the evidence", attempt.Number, 2), demo.Same("outcome reported too late", report.Outcome, orbit.OutcomeSucceeded)); err != nil {
			return err
		}
	}
	return demo.Same("kinds of evidence", fmt.Sprint(kinds), fmt.Sprint([]string{orbit.EvidenceLateFinish}))
}

func source(ctx context.Context, c *orbit.Client, task string) error {
	from, err := c.GetTaskSource(ctx, task)
	if err != nil {
		return err
	}
	fmt.Printf("source=%s\n", from.Kind)
	return demo.Same("source", from.Kind, orbit.SourceSubmit)
}

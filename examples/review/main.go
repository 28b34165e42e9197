// Review decides about tasks of which nobody knows whether they had an effect. A worker
// that loses the answer to its write cannot tell; a task that must not run twice then goes
// to NEEDS_REVIEW, and only somebody who has looked at the resource ends it.
//
//	ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=/tmp/orbit.json go run ./review
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

func main() { demo.Main("review", play) }

func play(ctx context.Context, d *demo.Demo) error {
	queue, err := d.Queue(ctx, "transfers")
	if err != nil {
		return err
	}
	b := &bank{booked: make(map[string]bool)}
	drain, err := d.Work(ctx, map[string]worker.HandlerFunc{"money.transfer": b.transfer}, queue.ID)
	if err != nil {
		return err
	}
	defer drain()
	for _, accident := range []string{"after the write", "before the write"} {
		if err := review(ctx, d, b, queue.ID, accident); err != nil {
			return fmt.Errorf("connection lost %s: %w", accident, err)
		}
	}
	return drain()
}

// A bank is the resource, in memory for the example. It knows which operations it has
// booked.
type bank struct {
	mu     sync.Mutex
	booked map[string]bool // by operation root
}

// transfer loses its connection, before or after the write. It cannot tell which.
func (b *bank) transfer(_ context.Context, e worker.Execution) (json.RawMessage, error) {
	var accident string
	if err := json.Unmarshal(e.Task.Payload, &accident); err != nil {
		return nil, worker.Failed(err)
	}
	if accident == "after the write" {
		b.mu.Lock()
		b.booked[e.OperationRoot] = true
		b.mu.Unlock()
	}
	return nil, worker.Unknown(errors.New("connection to the bank was lost"))
}

func (b *bank) has(operation string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booked[operation]
}

// review runs a task into the accident, looks at the bank and decides.
func review(ctx context.Context, d *demo.Demo, b *bank, queue, accident string) error {
	payload, err := json.Marshal(accident)
	if err != nil {
		return err
	}
	accepted, err := d.Client.SubmitTask(ctx, d.Key(accident[:5]), orbit.SubmitTaskRequest{
		QueueID: queue, Handler: "money.transfer", HandlerVersion: "v1", PayloadVersion: "v1",
		Payload:        payload,
		RecoverySafety: orbit.RecoveryReconcileOnly,       // never twice; also the default
		Retry:          orbit.RetryPolicy{MaxAttempts: 3}, // only for failures without effect
		TaskTimeoutMS:  60_000,                            // a task in review is not ended by it
	})
	if err != nil {
		return err
	}
	open, err := d.Client.WaitTask(ctx, accepted.Task.ID)
	if err != nil {
		return err
	}
	fmt.Printf("%s: task=%s attempts=%d effect_uncertain=%t\n", accident, open.State, open.AttemptCount, open.EffectUncertain)
	if err := errors.Join(
		demo.Same("state", open.State, orbit.StateNeedsReview),
		demo.Same("attempts", open.AttemptCount, 1),
		demo.Same("effect is uncertain", open.EffectUncertain, true),
	); err != nil {
		return err
	}
	verdict := decide(open, b.has(open.ID))
	decided, err := d.Client.ReviewTask(ctx, open.ID, d.Key("review-"+accident[:5]), verdict)
	if err != nil {
		return err
	}
	again, err := d.Client.ReviewTask(ctx, open.ID, d.Key("review-"+accident[:5]), verdict)
	if err != nil {
		return err
	}
	_, err = d.Client.ReviewTask(ctx, open.ID, d.Key("second-"+accident[:5]), verdict) // another key is another decision
	refusal, err := demo.Refused("a second decision", err, orbit.CodeStateConflict)
	if err != nil {
		return err
	}
	fmt.Printf("%s: decision=%s effect_uncertain=%t repeat_deduplicated=%t second_decision=%s\n",
		accident, decided.Task.State, decided.Task.EffectUncertain, again.Deduplicated, refusal.Code)
	return errors.Join(
		demo.Same("decision", decided.Task.State, verdict.Decision),
		demo.Same("effect is uncertain", decided.Task.EffectUncertain, false),
		demo.Same("repeat is deduplicated", again.Deduplicated, true),
		evidence(ctx, d.Client, open.ID, accident),
	)
}

// decide turns what the bank says into a decision. That it has not booked proves
// something only since no attempt can write any more; resources with late writes are
// fenced first (package resourceguard).
func decide(t orbit.Task, booked bool) orbit.ReviewTaskRequest {
	r := orbit.ReviewTaskRequest{
		ExpectedRevision: t.Revision,
		Source:           "example reviewer",
		Evidence:         fmt.Appendf(nil, `{"booked":%t}`, booked),
	}
	if booked {
		r.Decision, r.Note, r.Result = orbit.StateSucceeded, "the bank has booked it", json.RawMessage(`{"booked":true}`)
	} else {
		r.Decision, r.Note = orbit.StateFailed, "the bank has not booked it and cannot any more"
	}
	return r
}

// evidence reads what was kept of the decision.
func evidence(ctx context.Context, c *orbit.Client, task, accident string) error {
	var kinds []string
	for e, err := range c.Evidence(ctx, task, orbit.PageRequest{}) {
		if err != nil {
			return err
		}
		kinds = append(kinds, e.Kind)
		fmt.Printf("%s: evidence=%s body=%s\n", accident, e.Kind, e.Body)
	}
	return demo.Same("kinds of evidence", fmt.Sprint(kinds), fmt.Sprint([]string{orbit.EvidenceReview}))
}

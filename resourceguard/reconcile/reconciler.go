package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orbitkit/orbit"
)

// A Reconciler works on the queues of one task server, within the namespace of its client's
// credential. Any number may work on the same queues. It is safe for concurrent use.
type Reconciler struct {
	client *orbit.Client
	queues []string
	rules  map[Handler]Rule
	cfg    Config
	calls  calls

	mu    sync.Mutex
	owed  bool      // retries may be owed, see sweep
	swept time.Time // begin of the last complete sweep
}

// New returns a reconciler for the tasks in queues whose handlers have a rule. Its
// credential needs tasks:read and reviews:decide, and tasks:submit for a rule with Retry.
func New(client *orbit.Client, queues []string, rules map[Handler]Rule, cfg Config) (*Reconciler, error) {
	switch {
	case client == nil || reflect.ValueOf(*client).IsZero():
		return nil, errors.New("reconcile: client must be given, and made by orbit.NewClient")
	case len(queues) == 0:
		return nil, errors.New("reconcile: queues must not be empty")
	case len(rules) == 0:
		return nil, errors.New("reconcile: rules must not be empty")
	}
	for _, id := range queues {
		if !orbit.ValidID(id) {
			return nil, fmt.Errorf("reconcile: queue id %q must be 32 lower-case hexadecimal characters", id)
		}
	}
	for h, rule := range rules {
		if err := h.validate(rule); err != nil {
			return nil, err
		}
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Reconciler{client: client, queues: slices.Compact(slices.Sorted(slices.Values(queues))), rules: maps.Clone(rules), cfg: cfg, owed: true}, nil
}

// Run makes a pass, waits for Config.Interval and begins again, until ctx ends; then it
// returns nil. After a pass that met an error it waits as the back-off says.
func (r *Reconciler) Run(ctx context.Context) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.cfg.RetryFirst), backoff.WithMaxInterval(r.cfg.RetryMost), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		_, err := r.Once(ctx)
		wait := r.cfg.Interval
		if err == nil {
			b.Reset()
		} else if ctx.Err() == nil {
			wait = b.NextBackOff()
			r.cfg.Log.WarnContext(ctx, "reconcile pass met an error", "err", err, "retry_in", wait)
		}
		sleep(ctx, wait)
	}
	return nil
}

// Once makes one pass: it looks at every task in NEEDS_REVIEW of the queues, page by page,
// and decides about those that can be proven. The error is the first that kept it from
// looking or deciding; the rest of the pass was made all the same where that was possible. The
// tasks concerned are as they were, or decided without an answer having come: the next
// pass tells.
func (r *Reconciler) Once(ctx context.Context) (Counts, error) {
	var counts Counts
	first := r.sweepIfDue(ctx, &counts)
	for _, queue := range r.queues {
		for t, err := range r.client.Tasks(ctx, orbit.ListTasksRequest{QueueID: queue, State: orbit.StateNeedsReview, Limit: pageSize}) {
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return counts, fmt.Errorf("reconcile: queue %s: %w", queue, errors.Join(first, err))
			}
			f := r.look(ctx, t)
			if f.Outcome == Undecided && ctx.Err() != nil { // nothing is known of it but that the pass was ended
				return counts, errors.Join(first, context.Cause(ctx))
			}
			r.tell(ctx, f, &counts)
			if f.Outcome == Undecided && first == nil {
				first = fmt.Errorf("reconcile: task %s: %w", f.TaskID, f.Err)
			}
		}
	}
	return counts, first
}

const pageSize = 100 // tasks read at a time

func (r *Reconciler) tell(ctx context.Context, f Finding, counts *Counts) {
	counts.add(f.Outcome)
	log := r.cfg.Log.With("task_id", f.TaskID, "queue_id", f.QueueID, "handler", f.Handler.Name, "outcome", string(f.Outcome))
	switch f.Outcome {
	case Succeeded, Failed, Retried:
		log.InfoContext(ctx, "task decided", "retry_id", f.RetryID)
	case Undecided:
		log.WarnContext(ctx, "task undecided", "err", f.Err)
	default:
		log.DebugContext(ctx, "task left", "reason", string(f.Reason), "err", f.Err)
	}
	r.cfg.Observer(f)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

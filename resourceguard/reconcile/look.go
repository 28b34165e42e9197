package reconcile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/resourceguard"
)

var errTimeout = errors.New("Config.Timeout is over")

// look makes of one listed task what can be made of it.
func (r *Reconciler) look(ctx context.Context, listed orbit.Task) Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errTimeout)
	defer cancel()
	f := Finding{TaskID: listed.ID, QueueID: listed.QueueID, Handler: Handler{listed.Handler, listed.HandlerVersion}}
	p, err := r.prove(ctx, listed)
	if err == nil {
		f.Outcome, f.RetryID, err = r.decide(ctx, p)
	}
	var l *left
	switch {
	case err == nil:
	case errors.As(err, &l):
		f.Outcome, f.Reason, f.Err = Left, l.reason, l.err
	case errors.Is(err, errOvertaken):
		f.Outcome = Overtaken
	default:
		f.Outcome, f.Err = Undecided, err
		if context.Cause(ctx) == errTimeout {
			f.Err = fmt.Errorf("%w: %w", errTimeout, err)
		}
	}
	return f
}

// A proof is what is known for certain about the effect of a task.
type proof struct {
	task      orbit.Task
	rule      Rule
	chain     chain
	attempt   orbit.Attempt // the one that was fenced
	operation string
	applied   bool
	record    resourceguard.Record // if applied
}

// prove fences the attempts of a task and finds out whether its operation was applied.
// The order is what makes it a proof: absent before the raise says nothing.
func (r *Reconciler) prove(ctx context.Context, listed orbit.Task) (p proof, err error) {
	if listed.ConcurrencyKey == "" {
		return p, leave(Keyless)
	}
	rule, known := r.rules[Handler{listed.Handler, listed.HandlerVersion}]
	if !known {
		return p, leave(NoRule)
	}
	store := rule.Store(listed.ConcurrencyKey)
	if store == nil {
		return p, leave(NoStore)
	}
	p.rule = rule
	if p.task, err = r.read(ctx, listed.ID); err != nil {
		return p, err
	}
	if p.attempt, err = r.unknownAttempt(ctx, p.task.ID); err != nil {
		return p, err
	}
	if p.chain, err = r.follow(ctx, p.task); err != nil {
		return p, err
	}
	var content []byte
	if p.operation, content, err = rule.operation(p.task, p.chain.root); err != nil {
		return p, &left{NoOperation, err}
	}
	if err := raise(ctx, store, &p); err != nil {
		return p, err
	}
	return p, r.lookUp(ctx, store, &p, content)
}

// read returns a task that is still to be decided.
func (r *Reconciler) read(ctx context.Context, id string) (orbit.Task, error) {
	t, err := r.client.GetTask(ctx, id)
	if isCode(err, orbit.CodeNotFound) || err == nil && t.State != orbit.StateNeedsReview {
		return orbit.Task{}, errOvertaken
	}
	return t, err
}

// unknownAttempt returns the attempt with the highest fence_token: a raise to it shuts out
// every attempt of the task that ended unknown (TOK-017). The others ended known.
func (r *Reconciler) unknownAttempt(ctx context.Context, taskID string) (orbit.Attempt, error) {
	var highest orbit.Attempt
	for a, err := range r.client.Attempts(ctx, taskID, orbit.PageRequest{Limit: pageSize}) {
		switch {
		case isCode(err, orbit.CodeNotFound):
			return orbit.Attempt{}, errOvertaken
		case err != nil:
			return orbit.Attempt{}, err
		case a.FenceToken > highest.FenceToken:
			highest = a
		}
	}
	if highest.FenceToken == 0 {
		return orbit.Attempt{}, leave(NoFence)
	}
	return highest, nil
}

func (rule Rule) operation(t orbit.Task, root string) (string, []byte, error) {
	if rule.Operation != nil {
		return rule.Operation(t, root)
	}
	return root, t.Payload, nil
}

// raise returns nil once none of the task's attempts can write any more.
func raise(ctx context.Context, store Store, p *proof) error {
	err := store.Raise(ctx, resourceguard.Fence{
		Namespace: p.task.NamespaceID, Key: p.task.ConcurrencyKey, Token: p.attempt.FenceToken, // and no attempt: it is nobody's token
	})
	if err == nil || errors.Is(err, resourceguard.ErrStale) { // stale: a later attempt has fenced it
		return nil
	}
	return refused(err)
}

// refused tells what no repeat changes from what may pass.
func refused(err error) error {
	if errors.Is(err, resourceguard.ErrNotAuthorised) || errors.Is(err, resourceguard.ErrInvalid) {
		return &left{Refused, err}
	}
	return err
}

func (r *Reconciler) lookUp(ctx context.Context, store Store, p *proof, content []byte) (err error) {
	p.record, p.applied, err = store.Lookup(ctx, p.task.NamespaceID, p.task.ConcurrencyKey, p.operation)
	switch {
	case err != nil:
		return refused(err)
	case p.applied && p.record.Digest != sha256.Sum256(content):
		return leave(OtherContent)
	case !p.applied && time.Since(p.chain.began) > r.cfg.MaxAge:
		return leave(TooOld)
	}
	return nil
}

func isCode(err error, code string) bool {
	var refusal *orbit.APIError
	return errors.As(err, &refusal) && refusal.Code == code
}

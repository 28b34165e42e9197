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
	stale     bool                 // the resource has seen a token above the fence
}

// prove fences the attempts of a task and finds out whether its operation was applied.
// The order is what makes it a proof: absent before the raise says nothing.
func (r *Reconciler) prove(ctx context.Context, listed orbit.Task) (p proof, err error) {
	if listed.ConcurrencyKey == "" {
		return p, leave(Keyless)
	}
	handler := Handler{listed.Handler, listed.HandlerVersion}
	rule, known := r.rules[handler]
	if !known {
		return p, leave(NoRule)
	}
	store, err := ask(ctx, &r.calls, handler, func() (Store, error) { return rule.Store(listed.ConcurrencyKey), nil })
	if err != nil {
		return p, err
	}
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
	named, err := ask(ctx, &r.calls, handler, func() (operation, error) { return rule.operation(p.task, p.chain.root) })
	if err != nil {
		return p, err
	}
	p.operation = named.id
	at := who(store, handler)
	if p.stale, err = r.raise(ctx, store, at, p); err != nil {
		return p, err
	}
	return p, r.lookUp(ctx, store, at, &p, named.content)
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
// every attempt of the task that ended unknown (TOK-017). The others ended known. One that
// ended unknown and has no fence_token is shut out by nothing.
func (r *Reconciler) unknownAttempt(ctx context.Context, taskID string) (orbit.Attempt, error) {
	var highest orbit.Attempt
	unfenced := false
	for a, err := range r.client.Attempts(ctx, taskID, orbit.PageRequest{Limit: pageSize}) {
		switch {
		case isCode(err, orbit.CodeNotFound):
			return orbit.Attempt{}, errOvertaken
		case err != nil:
			return orbit.Attempt{}, err
		case a.FenceToken > highest.FenceToken:
			highest = a
		}
		unfenced = unfenced || a.Outcome == orbit.OutcomeUnknown && a.FenceToken == 0
	}
	if unfenced || highest.FenceToken == 0 {
		return orbit.Attempt{}, leave(NoFence)
	}
	return highest, nil
}

// An operation is what a guard knows a task's write by.
type operation struct {
	id      string
	content []byte
}

func (rule Rule) operation(t orbit.Task, root string) (operation, error) {
	if rule.Operation == nil {
		return operation{root, t.Payload}, nil
	}
	id, content, err := rule.Operation(t, root)
	if err != nil {
		return operation{}, &left{NoOperation, err}
	}
	return operation{id, content}, nil
}

// raise returns once none of the task's attempts can write any more. stale tells that
// somebody has fenced them before, with a token above the fence.
func (r *Reconciler) raise(ctx context.Context, store Store, at any, p proof) (stale bool, err error) {
	fence := resourceguard.Fence{
		Namespace: p.task.NamespaceID, Key: p.task.ConcurrencyKey, Token: p.attempt.FenceToken, // and no attempt: it is nobody's token
	}
	_, err = ask(ctx, &r.calls, at, func() (struct{}, error) { return struct{}{}, store.Raise(ctx, fence) })
	if errors.Is(err, resourceguard.ErrStale) {
		return true, nil
	}
	return false, refused(err)
}

// refused tells what no repeat changes from what may pass.
func refused(err error) error {
	if errors.Is(err, resourceguard.ErrNotAuthorised) || errors.Is(err, resourceguard.ErrInvalid) {
		return &left{Refused, err}
	}
	return err
}

// recorded is the answer to a look-up.
type recorded struct {
	record resourceguard.Record
	found  bool
}

func (r *Reconciler) lookUp(ctx context.Context, store Store, at any, p *proof, content []byte) error {
	namespace, key, id := p.task.NamespaceID, p.task.ConcurrencyKey, p.operation // p is not to be read by a call that is late
	got, err := ask(ctx, &r.calls, at, func() (recorded, error) {
		record, found, err := store.Lookup(ctx, namespace, key, id)
		return recorded{record, found}, err
	})
	p.record, p.applied = got.record, got.found
	switch {
	case err != nil:
		return refused(err)
	case p.applied && p.record.Digest != sha256.Sum256(content):
		return leave(OtherContent)
	case !p.applied && time.Since(p.chain.began) > r.cfg.MaxAge:
		return leave(TooOld)
	case !p.applied && p.stale && p.shared():
		return leave(Superseded)
	}
	return nil
}

// shared tells whether another task may have the same operation. One that repeats nothing
// has no repeats of its own either: those are made of tasks that are over.
func (p *proof) shared() bool { return p.chain.retries > 0 || p.rule.Operation != nil }

func isCode(err error, code string) bool {
	var refusal *orbit.APIError
	return errors.As(err, &refusal) && refusal.Code == code
}

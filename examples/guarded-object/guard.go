package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/resourceguard"
)

// tries is how often a write is done anew because another came first.
const tries = 10

// A guard judges writes to objects by what stands in their bodies. It keeps nothing in
// memory, so any number of processes may guard one bucket.
type guard struct {
	bucket    bucket
	authorise resourceguard.AuthoriseFunc
}

// A contentFunc is the owner's write: it makes new content, and a receipt for repeats, out
// of the content so far, which is nil at first. It may run several times and must change
// nothing else.
type contentFunc func(content []byte) (next, receipt []byte, err error)

// apply has the verdicts and errors of resourceguard.Guard.Apply. After
// resourceguard.ErrRetryable, and after any error of the store, run it again: the
// operation is applied if it was not, and replayed if it was.
func (g *guard) apply(ctx context.Context, w resourceguard.Write, f contentFunc) (res resourceguard.Result, err error) {
	if err := validWrite(w); err != nil {
		return res, err
	}
	if f == nil {
		return res, &resourceguard.InvalidError{Field: "f", Rule: "must be given"}
	}
	err = g.change(ctx, fence(w), func(b *guardedBody, o object) (changed bool, err error) {
		res, changed, err = judge(b, o, w, f)
		return changed, err
	})
	if err != nil {
		return resourceguard.Result{}, err
	}
	return res, nil
}

// judge is the atomic step, in memory: it is void unless the conditional write succeeds.
func judge(b *guardedBody, o object, w resourceguard.Write, f contentFunc) (res resourceguard.Result, changed bool, err error) {
	done, there := b.Operations[w.Operation]
	if err := b.admit(fence(w)); err != nil {
		var stale *resourceguard.StaleError
		if errors.As(err, &stale) {
			stale.AlreadyApplied = there && done.conflict(w) == nil
		}
		return res, false, err
	}
	if there {
		res = resourceguard.Result{Verdict: resourceguard.Replayed, Receipt: done.Receipt}
		if err := done.conflict(w); err != nil {
			return res, false, err
		}
		return res, b.raise(fence(w)), nil
	}
	content, receipt, err := f(bytes.Clone(b.Content))
	if err == nil {
		err = validReceipt(receipt)
	}
	if err != nil {
		return res, false, err
	}
	b.raise(fence(w))
	b.Content = content
	return resourceguard.Result{Verdict: resourceguard.Applied, Receipt: receipt}, true, b.record(w, receipt, o.at)
}

// raise makes the object refuse every token below f's, without a write of content. The
// body changes, and with it the ETag: a writer that read before comes too late.
func (g *guard) raise(ctx context.Context, f resourceguard.Fence) error {
	if err := validFence(f); err != nil {
		return err
	}
	return g.change(ctx, f, func(b *guardedBody, _ object) (bool, error) {
		if err := b.admit(f); err != nil {
			return false, err
		}
		return b.raise(f), nil
	})
}

// lookup proves nothing by an absent record, unless the object was raised before.
func (g *guard) lookup(ctx context.Context, namespace, key, id string) (resourceguard.Record, bool, error) {
	if err := validOperation(namespace, key, id); err != nil {
		return resourceguard.Record{}, false, err
	}
	if err := g.allowed(ctx, namespace, key); err != nil {
		return resourceguard.Record{}, false, err
	}
	b, _, err := g.read(ctx, namespace, key)
	if err != nil {
		return resourceguard.Record{}, false, err
	}
	o, there := b.Operations[id]
	r := resourceguard.Record{Token: o.Token, Attempt: o.Attempt, Receipt: o.Receipt, AppliedAt: o.AppliedAt}
	hex.Decode(r.Digest[:], []byte(o.Digest))
	return r, there, nil
}

// content is what the owner has written last.
func (g *guard) content(ctx context.Context, namespace, key string) ([]byte, error) {
	b, _, err := g.read(ctx, namespace, key)
	return b.Content, err
}

// change reads the object, lets f decide, and writes it back if nobody has changed it
// since. What f found is judged anew each time: another writer may have raised the token
// in between.
func (g *guard) change(ctx context.Context, at resourceguard.Fence, f func(*guardedBody, object) (changed bool, err error)) error {
	if err := g.allowed(ctx, at.Namespace, at.Key); err != nil {
		return err
	}
	for range tries {
		b, o, err := g.read(ctx, at.Namespace, at.Key)
		if err != nil {
			return err
		}
		changed, err := f(&b, o)
		if err != nil || !changed {
			return err
		}
		err = g.write(ctx, b, o)
		if !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: %w %d times", resourceguard.ErrRetryable, errChanged, tries)
}

func (g *guard) read(ctx context.Context, namespace, key string) (guardedBody, object, error) {
	o, err := g.bucket.get(ctx, objectName(namespace, key))
	if errors.Is(err, errNoObject) {
		return guardedBody{Namespace: namespace, Key: key, Operations: make(map[string]operation)}, o, nil
	}
	if err != nil {
		return guardedBody{}, o, fmt.Errorf("read object: %w", err)
	}
	b, err := parseBody(o.body, namespace, key)
	return b, o, err
}

// write puts nothing that matters into the metadata, since the ETag does not cover it. The
// ETag is a digest of the body, so it comes back only with the very same body: tokens and
// records included, and what was judged on it still holds.
func (g *guard) write(ctx context.Context, b guardedBody, before object) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if _, err := g.bucket.put(ctx, objectName(b.Namespace, b.Key), before.etag, text, nil); err != nil {
		return fmt.Errorf("write object: %w", err)
	}
	return nil
}

func (g *guard) allowed(ctx context.Context, namespace, key string) error {
	if err := g.authorise(ctx, namespace, key); err != nil {
		return fmt.Errorf("%w: namespace %q, key %q: %w", resourceguard.ErrNotAuthorised, namespace, key, err)
	}
	return nil
}

package guardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitkit/orbit/resourceguard"
)

// maxTries bounds how often one write is tried again after ErrRetryable.
const maxTries = 200

// A trial is a store under test and what its logs ought to hold.
type trial struct {
	store  Store
	others []Store // the same resource, opened once more
	logs   map[place][]Entry
}

type place struct{ namespace, key string }

// apply performs s on store, again and again while the store asks for it.
func (t *trial) apply(ctx context.Context, store Store, s step) (resourceguard.Result, error) {
	for range maxTries {
		res, err := s.perform(ctx, store)
		if !errors.Is(err, resourceguard.ErrRetryable) {
			return res, err
		}
	}
	return resourceguard.Result{}, fmt.Errorf("%w %d times in a row", resourceguard.ErrRetryable, maxTries)
}

func (s step) perform(ctx context.Context, store Store) (resourceguard.Result, error) {
	if !s.raises {
		return store.Apply(ctx, s.write, []byte(s.receipt), s.end)
	}
	r, can := store.(Raiser)
	if !can {
		return resourceguard.Result{}, fmt.Errorf("%w: Raise", ErrUnsupported)
	}
	w := s.write
	return resourceguard.Result{}, r.Raise(ctx, resourceguard.Fence{Namespace: w.Namespace, Key: w.Key, Token: w.Token, Attempt: w.Attempt})
}

// watch has the log of s's key compared in the end, even if nothing is written to it.
func (t *trial) watch(s step) {
	at := place{s.write.Namespace, s.write.Key}
	if _, watched := t.logs[at]; !watched {
		t.logs[at] = nil
	}
}

// expect notes that the log of s's key is to end with its entry.
func (t *trial) expect(s step) {
	at := place{s.write.Namespace, s.write.Key}
	t.logs[at] = append(t.logs[at], s.entry())
}

// checkLogs compares each log that was written to with what was to be written.
func (t *trial) checkLogs(ctx context.Context) error {
	for at, want := range t.logs {
		got, err := t.store.Log(ctx, at.namespace, at.key)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("log of namespace %q, key %q holds %v, want %v", at.namespace, at.key, got, want)
		}
	}
	return nil
}

// stores returns the store twice if it can be reopened, so that writers use both.
func (t *trial) stores(ctx context.Context) ([]Store, error) {
	if len(t.others) == 0 {
		if err := t.reopen(ctx); err != nil && !errors.Is(err, ErrUnsupported) {
			return nil, err
		}
	}
	return append([]Store{t.store}, t.others...), nil
}

func (t *trial) reopen(ctx context.Context) error {
	r, can := t.store.(Reopener)
	if !can {
		return fmt.Errorf("%w: Reopen", ErrUnsupported)
	}
	other, err := r.Reopen(ctx)
	if err != nil {
		return fmt.Errorf("reopen store: %w", err)
	}
	t.others = append(t.others, other)
	return nil
}

func (t *trial) close() error {
	var errs []error
	for _, s := range append(t.others, t.store) {
		errs = append(errs, closeStore(s))
	}
	return errors.Join(errs...)
}

func (t *trial) keepsRaise() bool {
	k, is := t.store.(Keeper)
	return is && k.KeepsRaise()
}

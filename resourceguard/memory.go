package resourceguard

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// A Memory is a guard in the memory of one process, for examples and tests. It shows
// where the atomic check belongs: a mutex held over check and write. It is no
// production store: it protects neither against another process nor against a
// restart, it knows no transaction but fn, and it grows with every operation. It is
// safe for concurrent use.
type Memory struct {
	authorise AuthoriseFunc

	mu        sync.Mutex
	resources map[resource]*memory
}

type resource struct{ namespace, key string }

type memory struct {
	seen
	operations map[string]Record
}

// NewMemory returns an empty guard. authorise is as in [New].
func NewMemory(authorise AuthoriseFunc) (*Memory, error) {
	if authorise == nil {
		return nil, invalid("authorise", "must be given: a token is no permission")
	}
	return &Memory{authorise: authorise, resources: make(map[resource]*memory)}, nil
}

// Apply runs fn if w may be written and has not been, with the verdicts and errors of
// [Guard.Apply]. If fn returns an error nothing is changed in the guard; what fn has
// changed elsewhere is for fn to undo. fn must not call the guard.
func (m *Memory) Apply(ctx context.Context, w Write, fn func(context.Context) (receipt []byte, err error)) (Result, error) {
	if err := w.validate(); err != nil {
		return Result{}, err
	}
	if fn == nil {
		return Result{}, invalid("fn", "must be given")
	}
	if err := allowed(ctx, m.authorise, w.Namespace, w.Key); err != nil {
		return Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.at(w.Namespace, w.Key)
	r, there := have.operations[w.Operation]
	if err := have.admit(w.Token, w.Attempt); err != nil {
		setApplied(err, there && r.conflict(w) == nil)
		return Result{}, err
	}
	if there {
		return have.replay(w, r)
	}
	return have.apply(ctx, w, fn)
}

func (have *memory) replay(w Write, r Record) (Result, error) {
	if err := r.conflict(w); err != nil {
		return Result{}, err
	}
	have.raise(w.fence())
	return Result{Verdict: Replayed, Receipt: bytes.Clone(r.Receipt)}, nil
}

func (have *memory) apply(ctx context.Context, w Write, fn func(context.Context) ([]byte, error)) (Result, error) {
	receipt, err := fn(ctx)
	if err != nil {
		return Result{}, err
	}
	if receipt, err = validReceipt(receipt); err != nil {
		return Result{}, err
	}
	have.raise(w.fence())
	have.operations[w.Operation] = Record{
		Digest: w.digest(), Token: w.Token, Attempt: w.Attempt, Receipt: receipt, AppliedAt: time.Now().UTC(),
	}
	return Result{Verdict: Applied, Receipt: bytes.Clone(receipt)}, nil
}

// Raise is [Guard.Raise].
func (m *Memory) Raise(ctx context.Context, f Fence) error {
	if err := f.validate(); err != nil {
		return err
	}
	if err := allowed(ctx, m.authorise, f.Namespace, f.Key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.at(f.Namespace, f.Key)
	if err := have.admit(f.Token, f.Attempt); err != nil {
		return err
	}
	have.raise(f)
	return nil
}

// Lookup is [Guard.Lookup].
func (m *Memory) Lookup(ctx context.Context, namespace, key, operation string) (Record, bool, error) {
	if err := validOperation(namespace, key, operation); err != nil {
		return Record{}, false, err
	}
	if err := allowed(ctx, m.authorise, namespace, key); err != nil {
		return Record{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.resources[resource{namespace, key}]
	if have == nil {
		return Record{}, false, nil
	}
	r, there := have.operations[operation]
	r.Receipt = bytes.Clone(r.Receipt)
	return r, there, nil
}

// at returns what is known of a key, and begins to know it.
func (m *Memory) at(namespace, key string) *memory {
	where := resource{namespace, key}
	if m.resources[where] == nil {
		m.resources[where] = &memory{operations: make(map[string]Record)}
	}
	return m.resources[where]
}

func (have *memory) raise(f Fence) {
	if f.Token > have.highest {
		have.seen = seen{highest: f.Token, attempt: f.Attempt}
	}
}

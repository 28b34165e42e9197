package resourceguard_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

// TestGuardConforms runs the suite (TEST-055) on every engine under every isolation
// level and DSN flag that an owner may have (RG-005, RG-008, RG-009).
func TestGuardConforms(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		for _, s := range settings(db.Engine) {
			t.Run(s.name, func(t *testing.T) {
				store := openStore(t, db, s, resourceguard.Config{})
				guardtest.Run(t, store.emptied)
			})
		}
	})
}

func TestGuardThatKeepsRaiseConforms(t *testing.T) {
	onEngines(t, func(t *testing.T, db *dbtest.DB) {
		store := openStore(t, db, settings(db.Engine)[0], resourceguard.Config{KeepRaise: true})
		guardtest.Run(t, store.emptied)
	})
}

// RG-016
func TestMemoryConforms(t *testing.T) {
	guardtest.Run(t, func(context.Context) (guardtest.Store, error) {
		guard, err := resourceguard.NewMemory(guardtest.Authorise)
		return &memoryStore{Memory: guard, logs: make(map[[2]string][]guardtest.Entry)}, err
	})
}

// A memoryStore undoes its own entry, as nobody else does.
type memoryStore struct {
	*resourceguard.Memory

	mu   sync.Mutex
	logs map[[2]string][]guardtest.Entry
}

var errRolledBack = errors.New("rolled back")

func (s *memoryStore) Apply(ctx context.Context, w resourceguard.Write, receipt []byte, end guardtest.End) (resourceguard.Result, error) {
	res, err := s.Memory.Apply(ctx, w, func(context.Context) ([]byte, error) {
		switch end {
		case guardtest.RollBack:
			return nil, errRolledBack
		case guardtest.Refuse:
			return nil, guardtest.ErrBusiness
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		at := [2]string{w.Namespace, w.Key}
		s.logs[at] = append(s.logs[at], guardtest.Entry{Token: w.Token, Operation: w.Operation})
		return receipt, nil
	})
	if errors.Is(err, errRolledBack) {
		return resourceguard.Result{Verdict: resourceguard.Applied, Receipt: receipt}, nil
	}
	return res, err
}

func (s *memoryStore) Log(_ context.Context, namespace, key string) ([]guardtest.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]guardtest.Entry(nil), s.logs[[2]string{namespace, key}]...), nil
}

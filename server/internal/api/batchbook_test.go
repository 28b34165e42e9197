package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit/internal/bubble"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// issue 4: batches of one application are bounded, wait for each other in order, and do not
// touch those of another.
func TestBatchesOfAnApplicationAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBatchBook(400)
		one, other := sqldb.NewID(), sqldb.NewID()
		enter := func(application sqldb.ID, n int) func() {
			t.Helper()
			leave, err := b.enter(t.Context(), application, n)
			if err != nil {
				t.Fatalf("enter %d: %v", n, err)
			}
			return leave
		}
		var leaves []func()
		for range 4 {
			leaves = append(leaves, enter(one, 100))
		}
		began := time.Now()
		var refused *refusal
		if _, err := b.enter(t.Context(), one, 1); !errors.As(err, &refused) || refused.status != 503 || refused.retryAfter == 0 {
			t.Fatalf("one item too many = %v, want 503 with a time to come back", err)
		}
		if waited := time.Since(began); waited != batchPatience {
			t.Errorf("refused after %v, want %v", waited, batchPatience)
		}
		enter(other, 100)()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.enter(gone, one, 1); err == nil {
			t.Error("a sender that has gone is let in")
		}
		entered := make(chan func())
		go func() { entered <- enter(one, 50) }()
		synctest.Wait()
		leaves[0]()
		(<-entered)()
		for _, leave := range leaves[1:] {
			leave()
		}
		if len(b.open) != 0 {
			t.Errorf("%d applications are remembered that have nothing under way", len(b.open))
		}
	})
}

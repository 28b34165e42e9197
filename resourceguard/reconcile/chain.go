package reconcile

import (
	"context"
	"time"

	"github.com/orbitkit/orbit"
)

// longestChain bounds the way to the root. A longer one is not ours: see
// Config.MaxRetries.
const longestChain = 100

// A chain is a task with those that it repeats by hand.
type chain struct {
	root    string    // id of the first, which stands for the operation (AMB-073)
	began   time.Time // creation of the first
	retries int       // how many of them are repeats
}

// follow walks from a task to the first that it repeats.
func (r *Reconciler) follow(ctx context.Context, t orbit.Task) (chain, error) {
	for retries := range longestChain {
		if t.RetryOf == "" {
			return chain{root: t.ID, began: t.CreatedAt, retries: retries}, nil
		}
		earlier, err := r.client.GetTask(ctx, t.RetryOf)
		switch {
		case isCode(err, orbit.CodeNotFound):
			return chain{}, &left{NoRoot, err}
		case err != nil:
			return chain{}, err
		}
		t = earlier
	}
	return chain{}, leave(NoRoot)
}

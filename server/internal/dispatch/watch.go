package dispatch

import (
	"time"

	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// A Watch is told what a dispatcher did, after the commit, by whoever did it. Its functions
// must not block; one that is left out is not called.
type Watch struct {
	// Claimed is told of each claim: how many tasks it gave away, how long it took, and
	// why it failed. What a failed claim gave away nobody knows; it counts as nothing.
	Claimed func(tasks int, took time.Duration, err error)
	// Settled is told what a transaction did to attempts, which may be nothing.
	Settled func(settle.Tally)
}

func (w Watch) orNobody() Watch {
	if w.Claimed == nil {
		w.Claimed = func(int, time.Duration, error) {}
	}
	if w.Settled == nil {
		w.Settled = func(settle.Tally) {}
	}
	return w
}

// Package bubble runs tests in bubbles of [testing/synctest] that bear the race detector.
//
// The Go runtime (seen with 1.26.8) gives all timers of a bubble one context of the race
// detector. Goroutines that receive from timers which are due already, such as
// time.After(0), fire these themselves; two that do so at the same moment use the context
// from two threads, and the detector ends the process in one of its own checks ("CHECK
// failed", or a fault inside it). On one processor there are no two at the same moment. The
// detector misses nothing by that: it goes by the order that locks and channels make.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var processors struct {
	sync.Mutex
	bubbles int // that run now: tests may be parallel
	before  int // GOMAXPROCS without them
}

// Test is synctest.Test, on one processor.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	enter()
	defer leave()
	synctest.Test(t, f)
}

func enter() {
	processors.Lock()
	defer processors.Unlock()
	if processors.bubbles++; processors.bubbles == 1 {
		processors.before = runtime.GOMAXPROCS(1)
	}
}

func leave() {
	processors.Lock()
	defer processors.Unlock()
	if processors.bubbles--; processors.bubbles == 0 {
		runtime.GOMAXPROCS(processors.before)
	}
}

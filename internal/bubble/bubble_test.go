package bubble_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/bubble"
)

// With synctest.Test and -race this ends in the detector's own check within a second.
func TestTimersThatAreDueMayFireInManyGoroutines(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	bubble.Test(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20000 {
					<-time.After(0)
				}
			})
		}
		all.Wait()
	})
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("GOMAXPROCS is %d after the bubble, was %d", now, before)
	}
}

package handofftest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

// A lenient desk lets anybody cancel.
type lenient struct{ *handoff.LocalDesk }

func (l lenient) Cancel(ctx context.Context, key handoff.Key, _ handoff.Agent) error {
	return l.LocalDesk.Cancel(ctx, key, source)
}

// A witness is a test of which the failure is wanted.
type witness struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	log    strings.Builder
}

func (w *witness) Log(args ...any) { fmt.Fprintln(&w.log, args...) }
func (w *witness) Logf(format string, args ...any) {
	fmt.Fprintf(&w.log, format+"\n", args...)
}
func (w *witness) Failed() bool                      { w.mu.Lock(); defer w.mu.Unlock(); return w.failed }
func (w *witness) Fail()                             { w.mu.Lock(); defer w.mu.Unlock(); w.failed = true }
func (w *witness) FailNow()                          { w.Fail(); runtime.Goexit() }
func (w *witness) Error(args ...any)                 { w.Log(args...); w.Fail() }
func (w *witness) Errorf(format string, args ...any) { w.Logf(format, args...); w.Fail() }
func (w *witness) Fatal(args ...any)                 { w.Log(args...); w.FailNow() }
func (w *witness) Fatalf(format string, args ...any) { w.Logf(format, args...); w.FailNow() }

// Random commands find what a store allows too much (HAND-054).
func TestRandomCommandsFindABrokenStore(t *testing.T) {
	open := func(context.Context) (Host, error) {
		var mu sync.Mutex
		now := time.Unix(1_700_000_000, 0)
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		advance := func(_ context.Context, d time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
			return nil
		}
		return Host{Store: lenient{handoff.NewLocalDesk(handoff.WithClock(clock))}, Advance: advance}, nil
	}
	w := &witness{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); randomCommands(t.Context(), w, open) }()
	<-done
	if !w.failed || !strings.Contains(w.log.String(), "ErrNotSource") && !strings.Contains(w.log.String(), handoff.ErrNotSource.Error()) {
		t.Errorf("failed %t:\n%s", w.failed, w.log.String())
	}
}

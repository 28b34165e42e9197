// Package throttle holds back those who fail to authenticate again and again. It remembers a
// bounded number of them.
package throttle

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
)

const (
	rememberedSources = 4096            // addresses remembered
	burst             = 20              // failures that pass at full speed
	forget            = 3 * time.Second // one failure is forgotten in this time
	hold              = 1 * time.Second // of each failure beyond the burst
	mostHeld          = 256             // held back at one time; more pass
)

// Failures remembers who failed to authenticate, by address. Only failures are ever
// delayed, so a guesser cannot lock out those who share the address. It is safe for
// concurrent use.
type Failures struct {
	mu      sync.Mutex
	sources *lru.Cache[string, bucket]
	waiters *semaphore.Weighted
}

// A bucket holds how many failures are remembered as of a time.
type bucket struct {
	level float64
	at    time.Time
}

// New returns a Failures that remembers nobody.
func New() *Failures {
	sources, err := lru.New[string, bucket](rememberedSources)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &Failures{sources: sources, waiters: semaphore.NewWeighted(mostHeld)}
}

// HoldBack records a failure from the address of a request ("host:port"). If there were too
// many, it waits a moment, or until ctx ends, and returns how long the sender is to wait before
// the next request; else 0.
func (f *Failures) HoldBack(ctx context.Context, address string) (retryAfter time.Duration) {
	if !f.tooMany(address) {
		return 0
	}
	f.delay(ctx)
	return hold
}

func (f *Failures) tooMany(address string) bool {
	host := source(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	b, _ := f.sources.Get(host)
	b.level = min(2*burst, max(0, b.level-now.Sub(b.at).Seconds()/forget.Seconds())+1)
	b.at = now
	f.sources.Add(host, b)
	return b.level > burst
}

// source is what counts as one sender: an IPv4 address, or the /64 of an IPv6 one, of which
// a single customer has all.
func source(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}

// delay holds the caller back for a moment.
func (f *Failures) delay(ctx context.Context) {
	if !f.waiters.TryAcquire(1) {
		return
	}
	defer f.waiters.Release(1)
	select {
	case <-time.After(hold):
	case <-ctx.Done():
	}
}

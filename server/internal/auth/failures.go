package auth

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
	failureSources = 4096            // addresses remembered
	failureBurst   = 20              // failures that pass at full speed
	failureForget  = 3 * time.Second // one failure is forgotten in this time
	failureDelay   = 1 * time.Second // of each failure beyond the burst
	failureWaiters = 256             // held back at one time; more pass
)

// failures remembers who failed to authenticate, by address. Only failures are ever
// delayed, so a guesser cannot lock out those who share the address.
type failures struct {
	mu      sync.Mutex
	sources *lru.Cache[string, bucket]
	waiters *semaphore.Weighted
}

// A bucket holds how many failures are remembered as of a time.
type bucket struct {
	level float64
	at    time.Time
}

func newFailures() *failures {
	sources, err := lru.New[string, bucket](failureSources)
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	return &failures{sources: sources, waiters: semaphore.NewWeighted(failureWaiters)}
}

// tooMany records a failure from address and reports whether there were too many.
func (f *failures) tooMany(address string) bool {
	host := source(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	b, _ := f.sources.Get(host)
	b.level = max(0, b.level-now.Sub(b.at).Seconds()/failureForget.Seconds()) + 1
	b.at = now
	f.sources.Add(host, b)
	return b.level > failureBurst
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
func (f *failures) delay(ctx context.Context) {
	if !f.waiters.TryAcquire(1) {
		return
	}
	defer f.waiters.Release(1)
	select {
	case <-time.After(failureDelay):
	case <-ctx.Done():
	}
}

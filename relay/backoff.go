package relay

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// newBackOff returns an exponential back-off with full jitter that never gives up: the
// n-th delay is drawn evenly from zero to the n-th interval. The library draws from
// half the interval, give or take the factor.
func newBackOff(first, most time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first/2),
		backoff.WithMaxInterval(most/2),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(1),
		backoff.WithMaxElapsedTime(0),
	)
}

// delayAfter draws the delay after so many attempts have failed.
func delayAfter(attempts int, first, most time.Duration) time.Duration {
	const enough = 64 // intervals beyond have reached any maximum
	b := newBackOff(first, most)
	for range min(attempts, enough) {
		b.NextBackOff()
	}
	return b.NextBackOff()
}

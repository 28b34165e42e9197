package orbit

import "time"

// RetryDelay returns how long a task waits before its next attempt, after started
// attempts have been started (the first included): the initial delay doubled with
// each further attempt, bounded by the maximum (REF-RETRY-002). The policy must be
// normalised.
func RetryDelay(p RetryPolicy, started int) time.Duration {
	most := min(p.MaxDelayMS, MaxRetryDelayMS)
	delay := min(p.InitialDelayMS, most)
	for n := 1; n < started && delay > 0 && delay < most; n++ {
		delay = min(2*delay, most) // at most 2 × 2^44: no overflow
	}
	return time.Duration(delay) * time.Millisecond
}

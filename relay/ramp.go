package relay

import "sync/atomic"

// A ramp bounds how many rows share a request after a take-over. If a row kills relays,
// the first requests say which.
type ramp struct{ rows atomic.Int64 }

func (r *ramp) size() int { return int(r.rows.Load()) }

// grow doubles the bound after a request that the relay has survived.
func (r *ramp) grow() { r.rows.Store(min(2*r.rows.Load(), steep)) }

// steep is no bound any more.
const steep = 1 << 20

package relay

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

type counters struct {
	requests, sent, accepted, deduplicated  atomic.Int64
	rejected, blocked, unknown, notAccepted atomic.Int64
	leads, leasesLost, purged               atomic.Int64
}

// Stats is what a relay has done since it was made, and how it stands.
type Stats struct {
	Requests     int64 `json:"requests"`     // single and batch
	Sent         int64 `json:"sent"`         // rows in them, each time
	Accepted     int64 `json:"accepted"`     // rows that became a task
	Deduplicated int64 `json:"deduplicated"` // of these: an earlier send had been accepted
	Rejected     int64 `json:"rejected"`     // refusals and conflicts; blocked if an earlier send is unknown
	Blocked      int64 `json:"blocked"`      // rows handed to an operator
	Unknown      int64 `json:"unknown"`      // sends without an exact answer
	NotAccepted  int64 `json:"not_accepted"` // sends that met a full queue or application
	Leads        int64 `json:"leads"`        // times that a shard was led
	LeasesLost   int64 `json:"leases_lost"`  // of these: ended because another relay leads
	Purged       int64 `json:"purged"`       // delivered rows deleted for their age

	Shards  []ShardStats  `json:"shards"`  // those led now
	Targets []TargetStats `json:"targets"` // by name
	// Unclaimed are targets of due rows for which there is no credential.
	Unclaimed []string `json:"unclaimed,omitempty"`
}

// ShardStats tells about a shard that is led.
type ShardStats struct {
	Shard    int       `json:"shard"`
	Epoch    int64     `json:"epoch"`
	Since    time.Time `json:"since"`
	InFlight int       `json:"in_flight"` // rows that were read and are not settled
}

// TargetStats tells about a target: "open"; "trial" while one row tries whether more
// may follow; "held" for a time that the server asked for; "paused" until a probe finds
// the right server.
type TargetStats struct {
	Name        string    `json:"name"`
	State       string    `json:"state"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Stats returns a snapshot.
func (r *Relay) Stats() Stats {
	c := &r.count
	s := Stats{
		Requests: c.requests.Load(), Sent: c.sent.Load(), Accepted: c.accepted.Load(),
		Deduplicated: c.deduplicated.Load(), Rejected: c.rejected.Load(), Blocked: c.blocked.Load(),
		Unknown: c.unknown.Load(), NotAccepted: c.notAccepted.Load(), Leads: c.leads.Load(),
		LeasesLost: c.leasesLost.Load(), Purged: c.purged.Load(),
		Shards: []ShardStats{}, Targets: []TargetStats{},
	}
	for _, g := range r.gates {
		s.Targets = append(s.Targets, g.stats())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard, l := range r.leads {
		s.Shards = append(s.Shards, ShardStats{Shard: shard, Epoch: l.term.now().Epoch, Since: l.since, InFlight: l.flight.open()})
	}
	for target := range r.unclaimed {
		s.Unclaimed = append(s.Unclaimed, target)
	}
	slices.SortFunc(s.Shards, func(a, b ShardStats) int { return cmp.Compare(a.Shard, b.Shard) })
	slices.SortFunc(s.Targets, func(a, b TargetStats) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(s.Unclaimed)
	return s
}

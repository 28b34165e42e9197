package relaymetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitkit/orbit/relay"
)

var (
	shards = prometheus.NewDesc("orbit_relay_shards_led", "Shards that this relay leads.", nil, nil)
	flight = prometheus.NewDesc("orbit_relay_rows_in_flight", "Rows that were read and are not settled.", nil, nil)
	leads  = prometheus.NewDesc("orbit_relay_leads_total", "Times that this relay began to lead a shard.", nil, nil)
	purged = prometheus.NewDesc("orbit_relay_purged_rows_total", "Delivered rows deleted for their age.", nil, nil)
	gate   = prometheus.NewDesc("orbit_relay_target_state", "1 for the state that the breaker of a target is in.", []string{"target", "state"}, nil)
	alone  = prometheus.NewDesc("orbit_relay_unclaimed_targets", "Targets of due rows for which this relay has no credential.", nil, nil)
)

// gateStates are those of relay.TargetStats.
var gateStates = []string{"open", "trial", "held", "paused"}

// A standing collects how a relay stands at the moment of a scrape. It asks no database.
type standing struct{ relay *relay.Relay }

// Describe implements [prometheus.Collector].
func (*standing) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{shards, flight, leads, purged, gate, alone} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *standing) Collect(c chan<- prometheus.Metric) {
	st := s.relay.Stats()
	inFlight := 0
	for _, shard := range st.Shards {
		inFlight += shard.InFlight
	}
	c <- prometheus.MustNewConstMetric(shards, prometheus.GaugeValue, float64(len(st.Shards)))
	c <- prometheus.MustNewConstMetric(flight, prometheus.GaugeValue, float64(inFlight))
	c <- prometheus.MustNewConstMetric(leads, prometheus.CounterValue, float64(st.Leads))
	c <- prometheus.MustNewConstMetric(purged, prometheus.CounterValue, float64(st.Purged))
	c <- prometheus.MustNewConstMetric(alone, prometheus.GaugeValue, float64(len(st.Unclaimed)))
	for _, t := range st.Targets {
		for _, state := range gateStates {
			value := 0.0
			if t.State == state {
				value = 1
			}
			c <- prometheus.MustNewConstMetric(gate, prometheus.GaugeValue, value, t.Name, state)
		}
	}
}

package main

import "github.com/prometheus/client_golang/prometheus"

// An openness tells which databases are open. Metrics of a source are there only while its own
// is: without this one, a source that cannot be opened would be seen by nobody.
type openness struct{ sources *supervisor }

func (o *openness) desc() *prometheus.Desc {
	var labels []string
	if !o.sources.single {
		labels = []string{"source"}
	}
	return prometheus.NewDesc("orbit_relay_source_open", "1 while the database of the source is open, 0 while it cannot be opened.", labels, nil)
}

// Describe implements [prometheus.Collector].
func (o *openness) Describe(descs chan<- *prometheus.Desc) { descs <- o.desc() }

// Collect implements [prometheus.Collector].
func (o *openness) Collect(metrics chan<- prometheus.Metric) {
	for _, r := range o.sources.sources() {
		value, labels := 0.0, []string(nil)
		if r.isOpen() {
			value = 1
		}
		if !o.sources.single {
			labels = []string{r.config.Name}
		}
		metrics <- prometheus.MustNewConstMetric(o.desc(), prometheus.GaugeValue, value, labels...)
	}
}

package main

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/semaphore"

	"github.com/orbitkit/orbit/relay/relaymetrics"
)

// An exposition shows the metrics of the process and of every source that is served now.
type exposition struct {
	process *prometheus.Registry

	mu      sync.Mutex
	sources map[*prometheus.Registry]struct{}
}

// newExposition shows besides which sources are open.
func newExposition(sources *supervisor) *exposition {
	e := &exposition{process: prometheus.NewRegistry(), sources: map[*prometheus.Registry]struct{}{}}
	e.process.MustRegister(&openness{sources: sources}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return e
}

// source returns metrics for a source until end is called. With many sources each metric
// has the label source. Without an exposition there are none.
func (e *exposition) source(name string, labelled bool) (m *relaymetrics.Metrics, end func()) {
	if e == nil {
		return nil, func() {}
	}
	registry := prometheus.NewRegistry()
	var r prometheus.Registerer = registry
	if labelled {
		r = prometheus.WrapRegistererWith(prometheus.Labels{"source": name}, registry)
	}
	m = relaymetrics.New(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sources[registry] = struct{}{}
	return m, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.sources, registry)
	}
}

// gatherers are those of this moment.
func (e *exposition) gatherers() prometheus.Gatherers {
	all := prometheus.Gatherers{e.process}
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.sources {
		all = append(all, r)
	}
	return all
}

// maxScrapes is how many scrapes run at one time.
const maxScrapes = 4

func (e *exposition) handler() http.Handler {
	free := semaphore.NewWeighted(maxScrapes)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !free.TryAcquire(1) {
			http.Error(w, "too many scrapes at one time", http.StatusServiceUnavailable)
			return
		}
		defer free.Release(1)
		promhttp.HandlerFor(e.gatherers(), promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
	return mux
}

package worker

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orbitkit/orbit/internal/wire"
)

// Stats are what a Worker has done since it was made, and what it holds at the moment. For
// Prometheus, package workermetrics makes a collector of them.
type Stats struct {
	// Handlers tells of the executions of each handler of the configuration.
	Handlers map[Handler]HandlerStats
	// RoundTrips are times from a message to its answer, by type of message: task.start,
	// task.renew and task.finish. What was not answered is not in it.
	RoundTrips map[string]Histogram

	Connects        uint64 // connections that a server has taken
	ConnectFailures uint64 // tries that led to none
	Connected       int    // connections now: one or none
	LeasesLost      uint64 // rights to execute that ended before the end of the attempt was told

	Capacity  int // attempts that are held at most
	Starting  int // attempts that wait for the right to execute
	Running   int // attempts whose handler runs
	Stuck     int // those of them that ignore the end of their context for longer than StopTimeout
	Reporting int // attempts whose end has not been confirmed yet
	Returning int // attempts that are handed back; they take no slot
}

// HandlerStats tells of the executions of one handler. An execution that Run gave up at its
// end, because the handler did not return, is in none of it.
type HandlerStats struct {
	Outcomes map[string]uint64 // executions that ended, by outcome, such as orbit.OutcomeFailed
	Panics   uint64            // those that panicked; their outcome is UNKNOWN
	Duration Histogram         // from the call of the handler to its return
}

// A Histogram counts durations.
type Histogram struct {
	Bounds []time.Duration // ascending; not to be changed
	Counts []uint64        // by bound: those not longer than it and longer than the one before; the last are longer than all
	Count  uint64
	Sum    time.Duration
}

// add counts a duration.
func (h *Histogram) add(d time.Duration) {
	at, _ := slices.BinarySearch(h.Bounds, d)
	h.Counts[at]++
	h.Count++
	h.Sum += d
}

func newHistogram(bounds []time.Duration) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (h Histogram) clone() Histogram {
	h.Counts = slices.Clone(h.Counts)
	return h
}

const ms = time.Millisecond

var (
	durationBounds  = []time.Duration{ms, 5 * ms, 10 * ms, 50 * ms, 100 * ms, 500 * ms, time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute}
	roundTripBounds = []time.Duration{ms, 2 * ms, 5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}
)

// stats are the counters of a worker.
type stats struct {
	mu              sync.Mutex
	handlers        map[Handler]*HandlerStats
	roundTrips      map[string]*Histogram
	connects        uint64
	connectFailures uint64
	leasesLost      uint64
}

func newStats(handlers map[Handler]HandlerFunc) *stats {
	s := &stats{handlers: make(map[Handler]*HandlerStats), roundTrips: make(map[string]*Histogram)}
	for h := range handlers {
		s.handlers[h] = &HandlerStats{Outcomes: make(map[string]uint64), Duration: newHistogram(durationBounds)}
	}
	for _, message := range []string{wire.TypeStart, wire.TypeRenew, wire.TypeFinish} {
		h := newHistogram(roundTripBounds)
		s.roundTrips[message] = &h
	}
	return s
}

func (s *stats) executed(h Handler, outcome string, panicked bool, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.handlers[h]
	one.Outcomes[outcome]++
	one.Duration.add(took)
	if panicked {
		one.Panics++
	}
}

// answered counts the round trip of a message, unless it had no answer.
func (s *stats) answered(message string, asked time.Time, err error) {
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roundTrips[message].add(time.Since(asked))
}

func (s *stats) connected(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.connectFailures++
		return
	}
	s.connects++
}

func (s *stats) leaseLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leasesLost++
}

// Stats returns the counts of the moment. It may be called at any time.
func (w *Worker) Stats() Stats {
	all := w.stats.snapshot()
	w.addTo(&all)
	return all
}

func (s *stats) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Stats{
		Handlers: make(map[Handler]HandlerStats, len(s.handlers)), RoundTrips: make(map[string]Histogram, len(s.roundTrips)),
		Connects: s.connects, ConnectFailures: s.connectFailures, LeasesLost: s.leasesLost,
	}
	for h, one := range s.handlers {
		all.Handlers[h] = HandlerStats{Outcomes: maps.Clone(one.Outcomes), Panics: one.Panics, Duration: one.Duration.clone()}
	}
	for message, h := range s.roundTrips {
		all.RoundTrips[message] = h.clone()
	}
	return all
}

// addTo adds what the worker holds now.
func (w *Worker) addTo(all *Stats) {
	all.Capacity += w.cfg.Capacity
	if c, _ := w.link.now(); c != nil {
		all.Connected++
	}
	w.each(func(a *attempt) {
		switch a.slot().Phase {
		case SlotStarting:
			all.Starting++
		case SlotRunning:
			all.Running++
			a.set(func() {
				if a.stuck {
					all.Stuck++
				}
			})
		case SlotReporting:
			all.Reporting++
		case SlotReturning:
			all.Returning++
		}
	})
}

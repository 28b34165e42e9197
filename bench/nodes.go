package main

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/server"
)

// benchNodes compares what two and four nodes on one database end per second with what
// one node ends, with the same workers.
func benchNodes(ctx context.Context, o options) error {
	counts := []int{1, 2, 4}
	o.processes = max(o.processes, counts[len(counts)-1])
	systems := make(map[int]*orbitSystem)
	for _, n := range counts {
		s, err := newOrbitSystem(ctx, o, server.Config{})
		if err != nil {
			return err
		}
		defer s.close()
		for range n - 1 {
			if err := s.addNode(ctx, server.Config{}); err != nil {
				return err
			}
		}
		systems[n] = s
	}
	costs := make(map[int][]cost)
	ratios := map[int]*ratio{2: {name: "drain, two nodes to one"}, 4: {name: "drain, four nodes to one"}}
	for round := range o.pairs {
		rates := make(map[int]float64)
		for i := range counts {
			n := counts[(i+round)%len(counts)]
			w := systems[n].w
			w.settle(ctx)
			var before counters
			var err error
			rates[n], err = drainRate(ctx, systems[n], fmt.Sprintf("nodes-%d-%d", n, round), o.tasks/2, func() (err error) {
				before, err = w.counters(ctx)
				return err
			})
			if err != nil {
				return fmt.Errorf("%d nodes: %w", n, err)
			}
			after, err := w.counters(ctx)
			if err != nil {
				return err
			}
			costs[n] = append(costs[n], after.since(before, o.tasks/2))
		}
		for n, r := range ratios {
			r.add(rates[n], rates[1])
		}
	}
	ratios[2].print()
	ratios[4].print()
	for _, n := range counts {
		printCosts(fmt.Sprintf("drain, %d nodes", n), costs[n])
	}
	return nil
}

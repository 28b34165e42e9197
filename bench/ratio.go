package main

import (
	"fmt"
	"slices"
)

// A ratio collects pairs of runs: what ours did per second against the floor.
type ratio struct {
	name         string
	ours, floors []float64
}

func (r *ratio) add(ours, floor float64) {
	r.ours, r.floors = append(r.ours, ours), append(r.floors, floor)
}

// print shows the median ratio with its quartiles, and the medians of both rates.
func (r *ratio) print() { r.printAs("/s") }

func (r *ratio) printAs(unit string) {
	digits := 0
	if unit != "/s" {
		digits, unit = 2, " "+unit
	}
	ratios := make([]float64, len(r.ours))
	for i := range ratios {
		ratios[i] = r.ours[i] / r.floors[i]
	}
	fmt.Printf("%-28s ratio %.2f (quartiles %.2f to %.2f, %d pairs)   ours %.*f%s, floor %.*f%s\n",
		r.name, quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75), len(ratios),
		digits, quantile(r.ours, 0.5), unit, digits, quantile(r.floors, 0.5), unit)
}

// quantile interpolates between the two nearest values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

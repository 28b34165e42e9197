package worker

import (
	"slices"
	"testing"
	"time"
)

func TestAHistogramCountsUpToItsBounds(t *testing.T) {
	h := newHistogram([]time.Duration{ms, 10 * ms})
	for _, d := range []time.Duration{0, ms, ms + 1, 10 * ms, 11 * ms, time.Hour} {
		h.add(d)
	}
	if !slices.Equal(h.Counts, []uint64{2, 2, 2}) || h.Count != 6 || h.Sum != time.Hour+23*ms+1 {
		t.Errorf("histogram = %+v", h)
	}
}

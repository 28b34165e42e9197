package relay_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Cost law 3: a request of 100 rows costs no more than a read of what is due, a read of
// the rows and a settle in a transaction of its own (3), and no claim. That is 0.05
// statements a row on a machine so slow that each answer comes alone; answers that come
// together are settled together, and a steady drain then takes less than 0.04, which is
// for bench/ to measure.
func TestADrainCostsFewStatements(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const rows = 2500
		for from := 0; from < rows; from += 500 {
			keys := make([]string, 500)
			for i := range keys {
				keys[i] = fmt.Sprintf("k%d", from+i)
			}
			w.enqueueKeys(keys...)
		}
		var counted tap
		var timed atomic.Int64 // statements that time asks for, however many rows there are
		counted.fails = func(query string) bool {
			if strings.Contains(query, "FROM orbit_outbox_hold") || strings.Contains(query, "SET expires_at") || strings.Contains(query, "SELECT epoch, holder") {
				timed.Add(1)
			}
			return false
		}
		r, err := relay.New(counted.open(t, w.db), []relay.Target{w.target()}, relay.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if left, err := r.Drain(t.Context()); err != nil || len(left) > 0 {
			t.Fatalf("Drain = %v, %v", left, err)
		}
		if n := w.count(outbox.Delivered); n != rows {
			t.Fatalf("%d rows delivered, want %d", n, rows)
		}
		n, requests := counted.statements.Load()-timed.Load(), r.Stats().Requests
		t.Logf("%d rows: %d statements (%.4f a row), %d requests", rows, n, float64(n)/rows, requests)
		if most := 5*int64(requests) + 15; n > most {
			t.Errorf("%d statements for %d requests, want at most 5 for each and 15 for leading the shard: %d", n, requests, most)
		}
		if requests > rows/100*11/10+2 {
			t.Errorf("%d requests for %d rows", requests, rows)
		}
	})
}

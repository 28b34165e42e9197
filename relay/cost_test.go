package relay_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Cost law 3: hundreds of rows per statement, no claim. The budget is 0.04 statements a
// row in a steady drain.
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
		if n > rows*4/100 {
			t.Errorf("%d statements for %d rows, want at most 0.04 a row", n, rows)
		}
		if requests > rows/100*11/10+2 {
			t.Errorf("%d requests for %d rows", requests, rows)
		}
	})
}

package relay_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Shards spread over the relays that are there. One that comes gets its share, what one that
// goes or dies has led is shared by the others, and no row is lost or even sent twice
// (REL-015, REL-018).
func TestShardsSpreadOverRelaysAndRebalanceWithoutLoss(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		box, err := outbox.New(w.db.Dialect(), outbox.Config{Shards: 7})
		if err != nil {
			t.Fatal(err)
		}
		w.box = box
		ctx, cancel := contextWithCancel(t)
		var load sync.WaitGroup
		rows := 0
		load.Go(func() {
			for ; ctx.Err() == nil; rows += 5 {
				keys := make([]string, 5)
				for i := range keys {
					keys[i] = fmt.Sprintf("%d-%d", rows, i)
				}
				w.enqueueKeys(keys...)
				w.hook.Notify()
				time.Sleep(5 * time.Millisecond) // the pace of the load
			}
		})
		cfg := quick()
		cfg.Lease, cfg.SendTimeout = 3*time.Second, time.Second
		var relays []*relay.Relay
		var stops []func()
		add := func() {
			r := w.relay(cfg)
			relays, stops = append(relays, r), append(stops, w.start(r))
		}
		spread := func(what string, want ...int) {
			t.Helper()
			w.eventually(what, func() bool {
				for i, r := range relays {
					if len(r.Stats().Shards) != want[i] {
						return false
					}
				}
				return true
			})
		}
		add()
		spread("one relay leads all shards", 7)
		add()
		spread("two relays share them", 4, 3)
		add()
		spread("three relays share them", 3, 2, 2)
		stops[1]()
		spread("the two that are left share them", 4, 0, 3)
		guest := outbox.NewAttendance("dies")
		if _, err := w.store.Attend(t.Context(), guest, time.Hour); err != nil {
			t.Fatal(err)
		}
		spread("one that leads nothing yet has its share", 3, 0, 2)
		w.exec("UPDATE orbit_outbox_relay SET expires_at = 1 WHERE name = ?", []byte("dies"))
		spread("what was meant for one that died is shared by the others", 4, 0, 3)
		cancel()
		load.Wait()
		w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == int64(rows) })
		for _, stop := range stops {
			stop()
		}
		var sent, lost int64
		for _, r := range relays {
			sent, lost = sent+r.Stats().Sent, lost+r.Stats().LeasesLost
		}
		if n := w.fake.taskCount(); n != rows || sent != int64(rows) || lost != 0 {
			t.Errorf("%d rows became %d tasks by %d sends, and %d leases were lost", rows, n, sent, lost)
		}
		var left int
		if err := w.db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orbit_outbox_relay").Scan(&left); err != nil || left > 1 {
			t.Errorf("%d relays are still there, %v", left, err)
		}
	})
}

func TestTheSharesOfAllRelaysAreAllShards(t *testing.T) {
	for relays := 1; relays <= 9; relays++ {
		for shards := range 20 {
			sum := 0
			for rank := range relays {
				n := outbox.Share{Relays: relays, Rank: rank}.Of(shards)
				if n < shards/relays || n > shards/relays+1 {
					t.Errorf("relay %d of %d leads %d of %d shards", rank, relays, n, shards)
				}
				sum += n
			}
			if sum != shards {
				t.Errorf("%d relays lead %d of %d shards", relays, sum, shards)
			}
		}
	}
}

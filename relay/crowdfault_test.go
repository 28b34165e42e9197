package relay_test

import (
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// The issue, "two to eight relays on one table with one and with eight shards": each row is
// sent once, by whoever leads its shard, and goes on being so while relays come and go.
func TestEightRelaysShareOneAndEightShards(t *testing.T) { // REL-015, REL-018, OUT-003
	for _, shards := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				var err error
				if w.box, err = outbox.New(w.db.Dialect(), outbox.Config{Shards: shards}); err != nil {
					t.Fatal(err)
				}
				var relays []*relay.Relay
				var stops []func()
				for range 8 {
					r := w.relay(quick())
					relays, stops = append(relays, r), append(stops, w.start(r))
				}
				keys := 0
				enqueue := func() {
					var messages []outbox.Message
					for range 50 {
						keys++
						messages = append(messages, message(fmt.Sprintf("k%d", keys)))
					}
					w.enqueue(messages...)
					w.hook.Notify()
				}
				enqueue()
				w.eventually("every shard is led", func() bool { return led(relays) == shards })
				for _, stop := range stops[:7] { // the others take over at once, to the last
					enqueue()
					stop()
				}
				enqueue()
				w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == int64(keys) })
				w.eventually("one relay leads all", func() bool { return led(relays[7:]) == shards })
				sent := int64(0)
				for _, r := range relays {
					sent += r.Stats().Sent
				}
				if sent != int64(keys) || w.fake.taskCount() != keys {
					t.Errorf("%d rows were sent %d times and are %d tasks", keys, sent, w.fake.taskCount())
				}
				w.fake.checkIdentity(t, w.stored())
				w.wantOneRowPerKey(keys)
			})
		})
	}
}

// led counts the shards that relays lead.
func led(relays []*relay.Relay) (n int) {
	for _, r := range relays {
		n += len(r.Stats().Shards)
	}
	return n
}

func (w *world) wantOneRowPerKey(n int) {
	w.t.Helper()
	var rows, tasks int
	err := sqldb.EachRow(w.t.Context(), w.db.Read(), "SELECT COUNT(*), COUNT(DISTINCT task_id) FROM orbit_outbox", nil,
		func(scan func(...any) error) error { return scan(&rows, &tasks) })
	if err != nil || rows != n || tasks != n {
		w.t.Errorf("%d rows name %d tasks, %v; want %d of each", rows, tasks, err, n)
	}
}

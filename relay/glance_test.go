package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// A statementLog keeps the statements that a relay runs.
type statementLog struct {
	mu   sync.Mutex
	list []string
}

func (l *statementLog) note(query string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, query)
	return false
}

func (l *statementLog) take() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, l.list = l.list, nil
	return list
}

func (l *statementLog) with(text string) (n int) {
	for _, query := range l.take() {
		if strings.Contains(query, text) {
			n++
		}
	}
	return n
}

// Cost law 6: what lies between a wake-up and the send is one read of the rows where their lane is known,
// after one of the holds if those were read long ago. Whatever is not met at a glance is found
// by the look at all lanes that follows, in the same wake-up.
func TestAWakeUpCostsOneReadBeforeTheSend(t *testing.T) {
	other := message("other")
	other.Request.QueueID = queueB
	large := message("large")
	large.Request.Payload = []byte(`"` + strings.Repeat("x", 200_000) + `"`)
	tests := []struct {
		name  string
		quiet time.Duration // since the last row of its lane
		rows  []outbox.Message
		want  int // statements before the glance, -1 if there is none
	}{
		{"a lane that had a row just now", 100 * time.Millisecond, []outbox.Message{message("subject")}, 0},
		{"a lane that had one, and old holds", 10 * time.Second, []outbox.Message{message("subject")}, 1},
		{"a lane that is forgotten", 10 * time.Minute, []outbox.Message{message("subject")}, -1},
		{"another lane", 100 * time.Millisecond, []outbox.Message{other}, 0},
		{"another lane beside", 100 * time.Millisecond, []outbox.Message{message("beside"), other}, 0},
		{"a large row", 100 * time.Millisecond, []outbox.Message{large}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *timelapse) {
				var log statementLog
				b.tap.fails = log.note
				before := make(chan []string, 1)
				b.fake.answer = func(s send) reply {
					if s.key == test.rows[len(test.rows)-1].Key {
						before <- log.take()
					}
					return reply{}
				}
				_, stop := b.start(relay.Config{Poll: time.Hour, Lease: 24 * time.Hour, Hook: &b.hook, Retain: -1})
				defer stop()
				b.untilDelivered(b.enqueueKeys("warm-up")[0])
				time.Sleep(test.quiet)
				b.enqueue(test.rows...)
				log.take()
				woken := time.Now()
				b.hook.Notify()
				list := <-before
				if took := time.Since(woken); took > 10*time.Millisecond {
					t.Errorf("sent after %v", took)
				}
				// The election looks for new shards beside the reader.
				list = slices.DeleteFunc(list, func(query string) bool { return strings.Contains(query, "SELECT shard") })
				glance := slices.IndexFunc(list, func(query string) bool { return strings.Contains(query, "d.lane IN") })
				if glance != test.want {
					t.Errorf("the glance is number %d of the statements, want %d:\n%s", glance, test.want, strings.Join(list, "\n"))
				}
			})
		})
	}
}

// A hold that an operator has set a second ago is obeyed, however familiar the lane is: its
// rows are not sent, and not even read at each wake-up.
func TestAGlanceObeysHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		var log statementLog
		b.tap.fails = log.note
		_, stop := b.start(relay.Config{Poll: time.Hour, Lease: 24 * time.Hour, Hook: &b.hook})
		defer stop()
		b.untilDelivered(b.enqueueKeys("warm-up")[0])
		if err := b.store.Hold(t.Context(), "main", queueA, operator); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		b.enqueueKeys("subject")
		log.take()
		b.hook.Notify()
		time.Sleep(10 * time.Second)
		if n := log.with("d.lane"); n != 0 {
			t.Errorf("rows on hold were read %d times", n)
		}
		if n := len(b.fake.sendsOf("subject")); n != 0 {
			t.Errorf("a row on hold was sent %d times", n)
		}
	})
}

// Where rows trickle in, their answers share statements: each would be a commit of its own.
func TestRowsThatTrickleInShareTheirSettling(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		var log statementLog
		b.tap.fails = log.note
		_, stop := b.start(relay.Config{Hook: &b.hook})
		defer stop()
		b.untilDelivered(b.enqueueKeys("warm-up")[0])
		log.take()
		const rows = 100
		var last int64
		for i := range rows {
			last = b.enqueueKeys(fmt.Sprintf("k%d", i))[0]
			b.hook.Notify()
			time.Sleep(time.Millisecond)
		}
		b.untilDelivered(last)
		if n := log.with("SET state = 2"); n < 5 || n > 20 {
			t.Errorf("%d statements settle %d rows that came a millisecond apart, want about 10", n, rows)
		}
	})
}

// OUT-018: deletion keeps a pace that leaves room for others.
func TestDeletionKeepsItsPace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		const rows = 20_000
		b.fillOld(rows)
		r, stop := b.start(relay.Config{Retain: time.Hour})
		defer stop()
		time.Sleep(5 * time.Second)
		if n := r.Stats().Purged; n < 5*2000 || n > 5*3000 {
			t.Errorf("%d rows deleted in 5 seconds, want 2,000 to 3,000 a second", n)
		}
		time.Sleep(5 * time.Second)
		if n := r.Stats().Purged; n != rows {
			t.Errorf("%d of %d old rows deleted", n, rows)
		}
	})
}

// OUT-018: deletion that has fallen behind keeps no pace until it has caught up: at that pace
// it might never, and the table would grow without end.
func TestDeletionThatHasFallenBehindHurries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		var down atomic.Bool
		b.tap.fails = func(query string) bool {
			return down.Load() && strings.Contains(query, "settled_at\nFROM orbit_outbox")
		}
		const rows = 20_000
		b.fillOld(rows)
		down.Store(true)
		r, stop := b.start(relay.Config{Retain: time.Hour})
		defer stop()
		purge := func(want int64) time.Duration {
			for r.Stats().Purged == want-rows {
				time.Sleep(10 * time.Millisecond)
			}
			began := time.Now()
			for r.Stats().Purged < want {
				time.Sleep(10 * time.Millisecond)
			}
			return time.Since(began)
		}
		time.Sleep(16 * time.Minute)
		if n := r.Stats().Purged; n != 0 {
			t.Fatalf("%d rows deleted while nothing can be", n)
		}
		down.Store(false)
		if took := purge(rows); took > time.Second {
			t.Errorf("%d rows that had fallen behind took %v, want no pause between them", rows, took)
		}
		time.Sleep(2 * time.Minute) // it comes to the end
		b.fillOld(rows)
		if took := purge(2 * rows); took < 6*time.Second {
			t.Errorf("%d rows took %v after deletion had caught up, want its usual pace", rows, took)
		}
	})
}

// fillOld makes rows that were delivered long ago.
func (b *timelapse) fillOld(rows int) {
	b.t.Helper()
	m := b.enqueueKeys(fmt.Sprintf("old-%d", time.Now().UnixMicro()))[0]
	b.exec("UPDATE orbit_outbox SET state = 2, due_at = 0, outcome = 1, created_at = 1, settled_at = 1, accepted_at = 1 WHERE seq = ?", m)
	b.exec(`INSERT INTO orbit_outbox (identity, operation, operation_task_id, shard, lane, size, target, idempotency_key, queue_id, handler, request, request_sha256,
		content_algorithm, content_digest, traceparent, created_at, state, due_at, window_from, outcome, settled_at, accepted_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT randomblob(32), operation, operation_task_id, shard, lane, size, target, idempotency_key, queue_id, handler, request, request_sha256,
		content_algorithm, content_digest, traceparent, created_at, state, due_at, window_from, outcome, settled_at, accepted_at
		FROM orbit_outbox, n WHERE seq = ?`, rows-1, m)
}

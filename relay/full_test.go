package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// REL-020.
func TestAFullQueueDelaysItsOwnRowsOnly(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		refusals := 0
		w.fake.answer = func(s send) reply {
			if s.key[:1] == "b" {
				return reply{}
			}
			refusals++
			return reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "3600"}
		}
		var full, other []outbox.Message
		for i := range 100 {
			a, b := message(fmt.Sprintf("a%d", i)), message(fmt.Sprintf("b%d", i))
			b.Request.QueueID = queueB
			full, other = append(full, a), append(other, b)
		}
		w.enqueue(full...)
		cfg := quick()
		cfg.MaxRetryAfter = time.Hour
		stop := w.start(w.relay(cfg))
		w.eventually("the full queue is met", func() bool {
			w.fake.mu.Lock()
			defer w.fake.mu.Unlock()
			return refusals > 0
		})
		w.enqueue(other...)
		w.hook.Notify()
		w.eventually("the other queue is done", func() bool { return w.count(outbox.Delivered) == 100 })
		stop()
		w.fake.set(func(f *orbitFake) { f.answer = nil })
		w.exec("UPDATE orbit_outbox SET due_at = 1 WHERE state = 1")
		w.start(w.relay(quick()))
		w.eventually("the queue is done too", func() bool { return w.count(outbox.Delivered) == 200 })
		w.fake.checkIdentity(t, w.stored())
	})
}

func TestAFullApplicationDelaysTheWholeTarget(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		full := make(chan struct{})
		w.fake.answer = func(s send) reply {
			if closed(full) {
				return reply{}
			}
			close(full)
			return reply{status: 429, code: orbit.CodeApplicationFull, retryAfter: "1"}
		}
		b := message("b")
		b.Request.QueueID = queueB
		seqs := w.enqueue(message("a"), b)
		r := w.relay(quick())
		w.start(r)
		<-full
		w.eventually("the target is held", func() bool { return r.Stats().Targets[0].State == "held" })
		for _, seq := range seqs {
			w.untilState(seq, outbox.Delivered)
		}
		w.fake.mu.Lock()
		defer w.fake.mu.Unlock()
		if gap := w.fake.sends[1].at.Sub(w.fake.sends[0].at); gap < time.Second {
			t.Errorf("the next send came %v after the application was full, want at least 1s", gap)
		}
	})
}

// After a hold one row goes first: what stays full is not asked for each row.
func TestWhatStaysFullIsAskedWithOneRowAtATime(t *testing.T) {
	for _, code := range []string{orbit.CodeQueueFull, orbit.CodeApplicationFull} {
		t.Run(code, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *timelapse) {
				_, stop := b.start(relay.Config{Hook: &b.hook, Lease: time.Hour})
				defer stop()
				b.untilDelivered(b.enqueueKeys("warm-up")[0])
				b.fake.set(func(f *orbitFake) { f.answer = func(send) reply { return reply{status: 429, code: code} } })
				keys := make([]string, 1000)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", i)
				}
				b.enqueueKeys(keys...)
				b.hook.Notify()
				time.Sleep(10 * time.Minute)
				b.fake.mu.Lock()
				all, trials := len(b.fake.sends), 0
				for _, s := range b.fake.sends {
					if s.batch == 1 {
						trials++
					}
				}
				b.fake.answer = nil
				b.fake.mu.Unlock()
				// Four batches were under way when the first was answered.
				if trials < 10 || all-trials > 400 {
					t.Errorf("%d rows were sent into what was full, %d of them alone", all, trials)
				}
				for range 10_000 {
					if b.count(outbox.Delivered) == 1001 {
						return
					}
					time.Sleep(time.Second)
				}
				t.Errorf("%d rows are delivered, want 1001", b.count(outbox.Delivered))
			})
		})
	}
}

// A request that times out while others are answered says nothing about the target.
func TestASlowRowDoesNotCloseTheTargetForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		r, stop := b.start(relay.Config{Hook: &b.hook})
		defer stop()
		b.untilDelivered(b.enqueueKeys("warm-up")[0])
		b.fake.set(func(f *orbitFake) {
			f.answer = func(s send) reply {
				if s.key == "slow" {
					return reply{delay: 20 * time.Second}
				}
				return reply{}
			}
		})
		b.enqueueKeys("slow")
		b.hook.Notify()
		for i := range 300 {
			time.Sleep(100 * time.Millisecond)
			b.enqueueKeys(fmt.Sprintf("k%d", i))
			b.hook.Notify()
		}
		if n := len(b.fake.sendsOf("slow")); n < 2 {
			t.Fatalf("the slow row was sent %d times", n)
		}
		if s := r.Stats().Targets[0]; s.LastError != "" {
			t.Errorf("target was closed: %+v", s)
		}
		time.Sleep(time.Second)
		if n := b.count(outbox.Delivered); n != 301 {
			t.Errorf("%d rows are delivered, want 301", n)
		}
	})
}

// REL-019: a row that never gets an answer takes its neighbours along less and less, and
// stops nobody.
func TestAPoisonRowStopsNoOther(t *testing.T) {
	poisons := map[string]reply{
		"cut":       {cut: true},
		"timeout":   {delay: time.Second},
		"stranger":  {status: 404, raw: "waf"},
		"redirect":  {status: 302, header: map[string]string{"Location": "/x"}},
		"forbidden": {status: 403, code: orbit.CodePermissionDenied},
	}
	for name, poison := range poisons {
		t.Run(name, func(t *testing.T) {
			run := onSQLite
			if name == "cut" {
				run = everywhere
			}
			run(t, func(t *testing.T, w *world) {
				met := false
				w.fake.answer = func(s send) reply {
					if s.key == "poison" {
						met = true
						return poison
					}
					return reply{}
				}
				w.fake.whole = func(rows []send) *reply {
					for _, s := range rows {
						if s.key == "poison" && poison.status == 302 { // an item cannot say so
							return &poison
						}
					}
					return nil
				}
				cfg := quick()
				cfg.SendTimeout = 300 * time.Millisecond
				w.enqueueKeys("poison")
				w.start(w.relay(cfg))
				for i := range 5 {
					keys := make([]string, 40)
					for k := range keys {
						keys[k] = fmt.Sprintf("%d-%d", i, k)
					}
					w.enqueueKeys(keys...)
					w.hook.Notify()
				}
				w.eventually("all others are delivered", func() bool { return w.count(outbox.Delivered) >= 200 })
				w.fake.set(func(*orbitFake) {
					if !met {
						t.Error("the poison was never sent")
					}
				})
				if n := w.fake.taskCount(); n != 200 && n != 201 {
					t.Errorf("%d tasks, want 200 and perhaps the poison's", n)
				}
			})
		})
	}
}

// Batches stay within the bounds of the contract, whatever the sizes of rows.
func TestBatchesAreBoundedByBytes(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		large := make([]byte, 200<<10)
		for i := range large {
			large[i] = 'x'
		}
		var messages []outbox.Message
		for i := range 20 {
			m := message(fmt.Sprintf("k%d", i))
			if i%3 == 0 {
				m.Request.Payload = []byte(`"` + string(large) + `"`)
			}
			messages = append(messages, m)
		}
		w.enqueue(messages...)
		w.start(w.relay(quick()))
		w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == 20 })
		w.fake.checkIdentity(t, w.stored())
		w.fake.mu.Lock()
		defer w.fake.mu.Unlock()
		largest := 0
		for _, s := range w.fake.sends {
			largest = max(largest, s.batch)
		}
		if n := len(w.fake.sends); n != 20 || largest < 2 {
			t.Errorf("%d sends of 20 rows, at most %d of them together: a batch was refused", n, largest)
		}
	})
}

// Lanes are read in turn, and rows of many queues share requests and statements.
func TestRowsOfManyQueuesShareBatches(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		const queues = 300
		var messages []outbox.Message
		for i := range 2 * queues {
			m := message(fmt.Sprintf("k%d", i))
			m.Request.QueueID = fmt.Sprintf("%032x", 1+i%queues)
			messages = append(messages, m)
		}
		w.enqueue(messages...)
		r := w.relay(quick())
		if left, err := r.Drain(t.Context()); err != nil || len(left) > 0 {
			t.Fatalf("Drain = %v, %v", left, err)
		}
		if n := w.count(outbox.Delivered); n != 2*queues {
			t.Errorf("%d rows are delivered, want %d", n, 2*queues)
		}
		if n := r.Stats().Requests; n > 2*queues/100+5 {
			t.Errorf("%d requests for %d rows", n, 2*queues)
		}
	})
}

func TestAServerThatTakesSmallerBatchesGetsThem(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		w.fake.caps = func() reply {
			return reply{raw: `{"contract":"orbit.task.v1","batch":{"max_items":7,"max_bytes":3000},"application_id":"` + namespace + `","namespace_id":"` + namespace + `"}`}
		}
		keys := make([]string, 100)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		w.enqueueKeys(keys...)
		w.start(w.relay(quick()))
		w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == 100 })
		w.fake.mu.Lock()
		defer w.fake.mu.Unlock()
		for _, s := range w.fake.sends {
			if s.batch > 7 {
				t.Fatalf("a batch of %d rows, want at most 7", s.batch)
			}
		}
	})
}

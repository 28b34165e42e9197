package relay_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

var operator = outbox.Act{Operator: "anna", Reason: "test"}

// An operators is people who act on rows while relays send them.
type operators struct {
	*world
	mu        sync.Mutex
	sent      map[string]int // of discarded rows: sends by then
	requeued  int
	failures  []error
	discarded int
}

// act requeues or discards a row that needs a person, or holds the queue for a moment. An
// act that comes too late is refused; any other error is a failure.
func (o *operators) act() error {
	ctx := o.t.Context()
	if rand.IntN(10) == 0 {
		if err := o.store.Hold(ctx, "main", queueA, operator); err != nil {
			return err
		}
		if err := o.store.Unhold(ctx, "main", queueA, operator); err != nil && !errors.Is(err, outbox.ErrNoHold) {
			return err
		}
	}
	rows, err := o.store.List(ctx, outbox.Filter{States: []outbox.State{outbox.Blocked, outbox.Rejected}}, 0, 50)
	if err != nil || len(rows) == 0 {
		return err
	}
	row := rows[rand.IntN(len(rows))]
	if rand.IntN(3) == 0 {
		if err = o.store.Discard(ctx, row.Seq, operator); err == nil {
			o.note(row.Key)
		}
	} else if err = o.store.Requeue(ctx, row.Seq, operator, 0); err == nil {
		o.mu.Lock()
		o.requeued++
		o.mu.Unlock()
	}
	if errors.Is(err, outbox.ErrState) || errors.Is(err, outbox.ErrUnknownOutcome) {
		return nil
	}
	return err
}

func (o *operators) note(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent[key] = len(o.fake.sendsOf(key))
	o.discarded++
}

// moody answers in every way there is.
func moody(send) reply {
	switch rand.IntN(7) {
	case 0:
		return reply{status: 404, code: orbit.CodeNotFound}
	case 1:
		return reply{status: 400, code: orbit.CodeInvalidArgument}
	case 2:
		return reply{status: 503, code: orbit.CodeUnavailable, accept: true}
	case 3:
		return reply{status: 429, code: orbit.CodeQueueFull, retryAfter: "0"}
	}
	return reply{}
}

// OUT-003, OUT-012, OUT-013, REL-016: operators requeue, discard and hold while two
// relays send and lose their leases. Nothing is lost, each send is of the frozen identity,
// no discarded row is sent again, and no row is discarded of which a task exists.
func TestOperatorsActWhileRelaysSend(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.fake.answer = moody
		cfg := quick()
		cfg.RetryFirst, cfg.RetryMost = time.Millisecond, 20*time.Millisecond
		cfg.PauseFirst, cfg.PauseMost = time.Millisecond, 10*time.Millisecond
		w.start(w.relay(cfg))
		w.start(w.relay(cfg))
		o := &operators{world: w, sent: map[string]int{}}
		done := make(chan struct{})
		var people sync.WaitGroup
		for range 3 {
			people.Go(func() {
				for ; !closed(done); time.Sleep(2 * time.Millisecond) { // people leave the relays some of the machine
					if err := o.act(); err != nil {
						o.mu.Lock()
						o.failures = append(o.failures, err)
						o.mu.Unlock()
						return
					}
				}
			})
		}
		var seqs []int64
		w.eventually("operators have done something of everything", func() bool {
			if w.count(outbox.Pending) == 0 { // as long as it takes: what all answers were good for is no work for operators
				keys := make([]string, 40)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", len(seqs)+i)
				}
				seqs = append(seqs, w.enqueueKeys(keys...)...)
				w.hook.Notify()
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.failures) > 0 || o.requeued >= 20 && o.discarded >= 5
		})
		w.exec("UPDATE orbit_outbox_lease SET expires_at = 1") // somebody may take over
		close(done)
		people.Wait()
		if len(o.failures) > 0 {
			t.Fatalf("an act failed: %v", o.failures[0])
		}
		w.fake.set(func(f *orbitFake) { f.answer = nil })
		w.eventually("what is open has its answer", func() bool { o.requeueAll(); return w.count(outbox.Pending)+w.count(outbox.Blocked) == 0 })
		w.checkSettled(t, seqs, o)
	})
}

func (o *operators) requeueAll() {
	o.t.Helper()
	rows, err := o.store.List(o.t.Context(), outbox.Filter{States: []outbox.State{outbox.Blocked}}, 0, outbox.MaxRows)
	for _, r := range rows {
		if err = o.store.Requeue(o.t.Context(), r.Seq, operator, 0); err != nil && !errors.Is(err, outbox.ErrState) {
			break
		}
	}
	if err != nil && !errors.Is(err, outbox.ErrState) {
		o.t.Fatal(err)
	}
}

func (w *world) checkSettled(t *testing.T, seqs []int64, o *operators) {
	t.Helper()
	w.fake.checkIdentity(t, w.stored())
	delivered := 0
	for _, seq := range seqs {
		r := w.row(seq)
		w.fake.mu.Lock()
		task, exists := w.fake.tasks[r.Key]
		w.fake.mu.Unlock()
		if r.State == outbox.Delivered {
			delivered++
		}
		if exists != (r.State == outbox.Delivered) || exists && r.TaskID != task.id {
			t.Errorf("row %d is %v as task %q, the server has task %q", seq, r.State, r.TaskID, task.id)
		}
		if before, is := o.sent[r.Key]; is && (r.State != outbox.Discarded || len(w.fake.sendsOf(r.Key)) != before) {
			t.Errorf("row %d, discarded after %d sends, is %v after %d", seq, before, r.State, len(w.fake.sendsOf(r.Key)))
		}
	}
	if n := w.fake.taskCount(); n != delivered {
		t.Errorf("%d tasks of %d delivered rows", n, delivered)
	}
	v, err := w.store.Verify(t.Context(), 0, outbox.MaxRows)
	if err != nil || v.Rows != len(seqs) || len(v.Faults) != 0 {
		t.Errorf("Verify = %d rows, %v, %v; want %d without a fault", v.Rows, v.Faults, err, len(seqs))
	}
}

// OUT-012: what is read ahead for a slow server is held too, whatever the poll.
func TestAHoldIsObeyedWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		b.fake.answer = func(send) reply { return reply{delay: 100 * time.Millisecond} }
		b.fake.caps = func() reply { // room for many rows before the senders, each of which travels alone
			return reply{raw: strings.Replace(capabilities(orbit.IdempotencyRetention, namespace), `"max_items":100`, `"max_items":1`, 1)}
		}
		_, stop := b.start(relay.Config{Poll: time.Hour, Senders: 1, Hook: &b.hook})
		defer stop()
		keys := make([]string, 180)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		seqs := b.enqueueKeys(keys...)
		b.hook.Notify()
		for len(b.sends()) < 150 { // the reader has nothing to read and sleeps longer and longer
			time.Sleep(10 * time.Millisecond)
		}
		if err := b.store.Hold(t.Context(), "main", "", operator); err != nil {
			t.Fatal(err)
		}
		held := time.Now()
		time.Sleep(10 * time.Second)
		sends := b.sends()
		if late := sends[len(sends)-1].at.Sub(held); late > time.Second || len(sends) == len(keys) {
			t.Fatalf("%d rows were sent, the last one %v after the hold", len(sends), late)
		}
		if err := b.store.Unhold(t.Context(), "main", "", operator); err != nil {
			t.Fatal(err)
		}
		lifted := time.Now()
		b.untilDelivered(seqs[len(seqs)-1])
		if sends = b.sends()[len(sends):]; sends[0].at.Sub(lifted) > time.Second+100*time.Millisecond {
			t.Errorf("the first send came %v after the release", sends[0].at.Sub(lifted))
		}
	})
}

func (b *timelapse) sends() []send {
	b.fake.mu.Lock()
	defer b.fake.mu.Unlock()
	return append([]send(nil), b.fake.sends...)
}

// OUT-018: in the relay, and nothing but what is delivered and old.
func TestDeliveredRowsGoWhenTheyAreOld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		b.fake.answer = func(s send) reply {
			if s.key == "refused" {
				return reply{status: 400, code: orbit.CodeInvalidArgument}
			}
			return reply{}
		}
		r, stop := b.start(relay.Config{Retain: 10 * time.Minute})
		defer stop()
		later := message("later")
		later.NotBefore = time.Now().Add(1000 * time.Hour)
		seqs := b.enqueue(message("refused"), later, message("old"), message("older"))
		b.untilDelivered(seqs[3])
		time.Sleep(6 * time.Minute)
		young := b.enqueueKeys("young")[0]
		b.untilDelivered(young)
		for _, seq := range seqs {
			b.row(seq) // none is gone before its time
		}
		time.Sleep(6 * time.Minute)
		for i, gone := range []bool{false, false, true, true} {
			if _, err := b.store.Get(t.Context(), seqs[i]); errors.Is(err, outbox.ErrNotFound) != gone {
				t.Errorf("row %d: %v, want it gone: %v", i, err, gone)
			}
		}
		if b.row(young); r.Stats().Purged != 2 {
			t.Errorf("%d rows purged, want 2", r.Stats().Purged)
		}
	})
}

// OUT-016: a row whose latest time has passed is blocked; only an operator who takes the
// risk has it sent, and its answer is then known.
func TestALateRowIsSentOnceAnOperatorAllowsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		m := message("a")
		m.NotAfter = time.Now().Add(10 * time.Second)
		seq := b.enqueue(m)[0]
		time.Sleep(time.Minute)
		_, stop := b.start(relay.Config{})
		defer stop()
		for b.row(seq).State != outbox.Blocked {
			time.Sleep(time.Second)
		}
		if err := b.store.Requeue(t.Context(), seq, operator, 0); !errors.Is(err, outbox.ErrTooLate) {
			t.Fatalf("Requeue = %v, want ErrTooLate", err)
		}
		if n := len(b.sends()); n != 0 {
			t.Fatalf("an expired row was sent %d times", n)
		}
		if err := b.store.Requeue(t.Context(), seq, operator, outbox.LateRisk); err != nil {
			t.Fatal(err)
		}
		b.untilDelivered(seq)
	})
}

// REL-021: a status that has only the database at hand tells a dead relay from a server
// that is down, from rows that need a person.
func TestStatusTellsWhatIsWrong(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		verdict := func() string {
			t.Helper()
			st, err := b.store.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(st.Findings) == 0 {
				return "ok"
			}
			return string(st.Findings[0].Trouble)
		}
		want := func(want outbox.Trouble) {
			t.Helper()
			for range 120 {
				if verdict() == string(want) {
					return
				}
				time.Sleep(time.Second)
			}
			t.Errorf("verdict is %q, want %q", verdict(), want)
		}
		seqs := b.enqueueKeys("a", "b", "c")
		want(outbox.RelayDead)
		b.fake.set(func(f *orbitFake) {
			f.answer = func(send) reply { return reply{status: 503, code: orbit.CodeUnavailable} }
			f.caps = func() reply { return reply{status: 503} }
		})
		_, stop := b.start(relay.Config{})
		want(outbox.ServerDown)
		b.fake.set(func(f *orbitFake) {
			f.answer = func(s send) reply {
				if s.key == "b" {
					return reply{status: 404, code: orbit.CodeNotFound}
				}
				return reply{}
			}
			f.caps = nil
		})
		b.untilDelivered(seqs[2])
		want(outbox.Poison)
		if err := b.store.Discard(t.Context(), seqs[1], operator); err != nil && !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		stop()
		b.enqueueKeys("d")
		want(outbox.RelayDead)
	})
}

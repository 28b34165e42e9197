package relay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// crash leaves the shard as a relay does that dies: led, with a lease that has ended.
func (w *world) crash() {
	w.t.Helper()
	if _, err := w.store.Lead(w.t.Context(), 0, "dead", time.Hour); err != nil {
		w.t.Fatal(err)
	}
	w.exec("UPDATE orbit_outbox_lease SET expires_at = 1")
}

// REL-015: two relays at once, each row sent once.
func TestOnlyOneOfSeveralRelaysSends(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first, second := w.relay(quick()), w.relay(quick())
		w.start(first)
		w.start(second)
		for i := range 20 {
			keys := make([]string, 10)
			for k := range keys {
				keys[k] = fmt.Sprintf("%d-%d", i, k)
			}
			w.enqueueKeys(keys...)
			w.hook.Notify()
		}
		w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == 200 })
		a, b := first.Stats(), second.Stats()
		if a.Sent+b.Sent != 200 || a.Sent != 0 && b.Sent != 0 {
			t.Errorf("the relays sent %d and %d rows, want 200 by one of them", a.Sent, b.Sent)
		}
	})
}

// REL-018.
func TestACleanStopHandsTheShardOverAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		cfg := quick()
		cfg.Lease, cfg.SendTimeout = time.Hour, time.Second // nobody waits for the end of this
		first, second := w.relay(cfg), w.relay(cfg)
		stop := w.start(first)
		w.eventually("the first leads", func() bool { return len(first.Stats().Shards) == 1 })
		w.start(second)
		stop()
		seq := w.enqueueKeys("subject")[0]
		w.untilState(seq, outbox.Delivered)
		if n := second.Stats().Sent; n != 1 {
			t.Errorf("the second relay sent %d rows, want 1", n)
		}
	})
}

// REL-017: a lead that is lost between send and settle writes nothing, and the next
// leader sends the same identity again.
func TestADeposedLeaderSettlesNothing(t *testing.T) {
	verdicts := map[string]reply{
		"accepted":     {},
		"refused":      {status: 400, code: orbit.CodeInvalidArgument},
		"blocked":      {status: 404, code: orbit.CodeNotFound},
		"unknown":      {status: 503, code: orbit.CodeUnavailable},
		"not accepted": {status: 429, code: orbit.CodeQueueFull},
	}
	for name, first := range verdicts {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				seq := w.enqueueKeys("subject")[0]
				var usurper outbox.Lease
				deposed := make(chan error, 1)
				w.fake.answer = func(s send) reply {
					if len(w.fake.sends) > 1 {
						return reply{}
					}
					deposed <- func() (err error) {
						if _, err = w.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox_lease SET expires_at = 1"); err == nil {
							usurper, err = w.store.Lead(t.Context(), 0, "usurper", time.Minute)
						}
						return err
					}()
					return first
				}
				r := w.relay(quick())
				w.start(r)
				if err := <-deposed; err != nil {
					t.Fatalf("take the lease away: %v", err)
				}
				w.eventually("the relay has noticed", func() bool { return len(r.Stats().Shards) == 0 })
				if row := w.row(seq); row.State != outbox.Pending || row.Attempts != 0 || row.Last.Outcome != outbox.OutcomeNone {
					t.Fatalf("a deposed leader made the row %v, %d attempts, %v", row.State, row.Attempts, row.Last.Outcome)
				}
				if err := w.store.Release(t.Context(), usurper); err != nil {
					t.Fatal(err)
				}
				if row := w.untilState(seq, outbox.Delivered); name == "accepted" && !row.Deduplicated {
					t.Error("the second send was not answered with the first receipt")
				}
				if n := w.fake.taskCount(); n != 1 {
					t.Errorf("%d tasks, want 1", n)
				}
				w.fake.checkIdentity(t, w.stored())
			})
		})
	}
}

// After a take-over any row may be the one that killed the relay before.
func TestAfterATakeOverTheFirstBatchesAreSmallAndMarked(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		keys := make([]string, 300)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		w.enqueueKeys(keys...)
		w.crash()
		// Rows that come later cannot have killed anybody.
		fresh := w.enqueueKeys("fresh-1", "fresh-2")
		var unmarked []string
		w.fake.answer = func(s send) reply {
			if len(w.fake.sends) <= 5 {
				var marked bool
				err := w.db.Read().QueryRowContext(t.Context(), "SELECT outcome_unknown FROM orbit_outbox WHERE idempotency_key = ?", []byte(s.key)).Scan(&marked)
				if err != nil || !marked {
					unmarked = append(unmarked, s.key)
				}
			}
			return reply{}
		}
		cfg := quick()
		cfg.Senders = 1
		w.start(w.relay(cfg))
		w.eventually("all is delivered", func() bool { return w.count(outbox.Delivered) == 302 })
		w.fake.mu.Lock()
		defer w.fake.mu.Unlock()
		for i, limit := range []int{1, 2, 2, 4, 4, 4, 4} {
			if n := w.fake.sends[i].batch; n > limit {
				t.Errorf("send %d was one of %d rows, want at most %d", i, n, limit)
			}
		}
		if len(unmarked) > 0 {
			t.Errorf("keys %v were sent before the mark", unmarked)
		}
		largest := 0
		for _, s := range w.fake.sends {
			largest = max(largest, s.batch)
		}
		if largest < 64 {
			t.Errorf("the largest batch has %d rows: batches did not grow", largest)
		}
		_ = fresh
	})
}

// OUT-013: what the dead leader has sent left no trace.
func TestARefusalAfterATakeOverBlocks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first := w.enqueueKeys("first")[0]
		keys := make([]string, 300) // enough for the batches to have grown
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		w.enqueueKeys(keys...)
		last := w.enqueueKeys("last")[0]
		w.crash()
		time.Sleep(2 * time.Millisecond) // SQLite's clock has such steps
		w.fake.answer = func(s send) reply {
			if s.key[:1] == "k" {
				return reply{}
			}
			return reply{status: 400, code: orbit.CodeInvalidArgument}
		}
		r := w.relay(quick())
		w.start(r)
		w.eventually("the relay leads", func() bool { return len(r.Stats().Shards) == 1 })
		fresh := w.enqueueKeys("fresh")[0]
		w.hook.Notify()
		for _, seq := range []int64{first, last} {
			if row := w.untilState(seq, outbox.Blocked); !row.Last.Unknown {
				t.Errorf("row %d lacks the mark of an unknown send", seq)
			}
		}
		w.untilState(fresh, outbox.Rejected)
	})
}

// A row that was committed late has a lower seq and due time than others that are done.
func TestARowThatIsCommittedLateIsNotLost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if w.db.Engine == "sqlite" { // one writer at a time: rows become visible in order
			early := w.enqueueKeys("early")[0]
			w.exec("UPDATE orbit_outbox SET state = 5, due_at = 0")
			w.start(w.relay(quick()))
			w.untilState(w.enqueueKeys("later")[0], outbox.Delivered)
			w.exec("UPDATE orbit_outbox SET state = 1, due_at = 1 WHERE seq = ?", early)
			w.untilState(early, outbox.Delivered)
			return
		}
		tx, err := w.db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		early, err := w.box.Enqueue(t.Context(), tx, message("early"))
		if err != nil {
			t.Fatal(err)
		}
		w.start(w.relay(quick()))
		for i := range 600 {
			later := w.enqueueKeys(fmt.Sprintf("later-%d", i))
			if later[0] < early.Seq {
				t.Fatal("the early row is not early")
			}
		}
		w.eventually("the later rows are delivered", func() bool { return w.count(outbox.Delivered) == 600 })
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		w.untilState(early.Seq, outbox.Delivered)
	})
}

// A stop finishes and settles what is under way, and reports what it cannot settle.
// REL-018.
func TestAStopFinishesRequestsUnderWay(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		seqs := w.enqueueKeys("under-way", "waiting")
		arrived := make(chan struct{})
		w.fake.answer = func(s send) reply {
			if !closed(arrived) {
				close(arrived)
			}
			return reply{delay: 300 * time.Millisecond}
		}
		stop := w.start(w.relay(quick()))
		<-arrived
		stop()
		sent := 0
		for _, seq := range seqs {
			if w.row(seq).State == outbox.Delivered {
				sent++
			}
		}
		if n := w.fake.taskCount(); sent != n || n == 0 {
			t.Errorf("%d rows are delivered and %d tasks exist after the stop", sent, n)
		}
		st, err := w.store.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(st.Leaders) != 1 || st.Leaders[0].Left > 0 {
			t.Errorf("the shard was not given back: %+v", st.Leaders)
		}
	})
}

// REL-018.
func TestAStopThatCannotSettleLeavesTheRestToTheLeaseAndSaysSo(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		seq := w.enqueueKeys("subject")[0]
		blocker := w.db.Reopen(t)
		locked := make(chan func(), 1)
		w.fake.answer = func(send) reply {
			tx, err := blocker.Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Errorf("begin: %v", err)
				locked <- func() {}
				return reply{}
			}
			if _, err := tx.ExecContext(t.Context(), "UPDATE orbit_outbox SET attempts = attempts WHERE seq = ?", seq); err != nil {
				t.Errorf("lock the row: %v", err)
			}
			locked <- func() { tx.Rollback() }
			return reply{}
		}
		cfg := quick()
		cfg.Lease, cfg.SendTimeout, cfg.StopTimeout = 2*time.Second, time.Second, time.Second
		ctx, cancel := contextWithCancel(t)
		r := w.relay(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		unlock := <-locked
		cancel()
		err := <-done
		unlock()
		if !errors.Is(err, relay.ErrLeftToLease) {
			t.Fatalf("Run = %v, want ErrLeftToLease", err)
		}
		w.fake.set(func(f *orbitFake) { f.answer = nil })
		second := w.relay(quick())
		w.start(second)
		row := w.untilState(seq, outbox.Delivered)
		// A statement whose caller has gone may still find its lock, on MySQL.
		if n := len(w.fake.sendsOf("subject")); n > 1 != row.Deduplicated || w.fake.taskCount() != 1 {
			t.Errorf("%d sends, deduplicated %t, %d tasks", n, row.Deduplicated, w.fake.taskCount())
		}
		w.fake.checkIdentity(t, w.stored())
	})
}

// A shard with an answer that is not written is not given back: the next leader has to
// know that rows may have been sent.
func TestAShardWithUnwrittenAnswersIsLeftToItsLease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueueKeys("subject")
		fault := tap{fails: func(query string) bool { return strings.Contains(query, "SET state = 2") }}
		cfg := quick()
		cfg.Lease, cfg.SendTimeout, cfg.StopTimeout = 2*time.Second, time.Second, time.Second
		r, err := relay.New(fault.open(t, w.db), []relay.Target{w.target()}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := contextWithCancel(t)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		w.eventually("the answer cannot be written", fault.fired.Load)
		cancel()
		if err := <-done; !errors.Is(err, relay.ErrLeftToLease) {
			t.Errorf("Run = %v, want ErrLeftToLease", err)
		}
		w.exec("UPDATE orbit_outbox_lease SET expires_at = 1 WHERE expires_at > 0")
		lease, err := w.store.Lead(t.Context(), 0, "next", time.Minute)
		if err != nil || !lease.TookOver {
			t.Errorf("the next leader's lease = %+v, %v, want one that took over", lease, err)
		}
	})
}

// OUT-002: while a request is under way the relay has no transaction open. On SQLite it
// would keep everybody else from writing.
func TestNoTransactionIsOpenDuringASend(t *testing.T) {
	onSQLite(t, func(t *testing.T, w *world) {
		wrote := make(chan error, 10)
		w.fake.answer = func(send) reply {
			tx, err := w.db.Write().BeginTx(t.Context(), nil) // begins IMMEDIATE
			if err == nil {
				_, err = w.box.Enqueue(t.Context(), tx, message("another"))
				tx.Rollback()
			}
			wrote <- err
			return reply{status: 404, code: orbit.CodeNotFound}
		}
		seq := w.enqueueKeys("subject")[0]
		w.start(w.relay(quick()))
		w.untilState(seq, outbox.Blocked)
		if err := <-wrote; err != nil {
			t.Errorf("a business transaction during the send: %v", err)
		}
	})
}

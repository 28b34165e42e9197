package quota_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/quota"
	"github.com/orbitkit/orbit/server/internal/task"
)

// tally is what became of many submits.
type tally struct{ accepted, queueFull, applicationFull, late atomic.Int64 }

func (c *tally) add(s *scene, outcomes []accept.Outcome) {
	for _, o := range outcomes {
		var late *orbit.InvalidArgumentError
		switch {
		case o.Err == nil:
			c.accepted.Add(1)
		case errors.Is(o.Err, quota.ErrQueueFull):
			c.queueFull.Add(1)
		case errors.Is(o.Err, quota.ErrApplicationFull):
			c.applicationFull.Add(1)
		case errors.As(o.Err, &late):
			c.late.Add(1)
		default:
			s.Errorf("outcome %v, want accepted or a full quota", o.Err)
		}
	}
}

// flood has 32 submitters on both nodes submit to queues, every other one in batches.
func (s *scene) flood(rounds int, queues ...sqldb.ID) *tally {
	var (
		c          tally
		submitting sync.WaitGroup
		ready      = make(chan struct{})
	)
	for i := range 32 {
		submitting.Go(func() {
			<-ready
			for round := range rounds {
				items := s.items(queues[(i+round)%len(queues)], 1+i%2*4)
				if i%4 == 3 { // a batch over several queues
					items[1] = s.item(queues[(i+round+1)%len(queues)])
				}
				c.add(s, s.nodes[i/2%2].Submit(context.Background(), items))
			}
		})
	}
	close(ready)
	submitting.Wait()
	return &c
}

func TestAQueueTakesExactlyAsManyTasksAsItsLimit(t *testing.T) { // REF-QUOTA-001, LIC-013, LIMIT-016, TEST-044
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.limitQueue(q, 100)
		c := s.flood(3, q)
		if got := s.unfinished(q); c.accepted.Load() != 100 || got != 100 || c.queueFull.Load() != 32*3*3-100 {
			s.Errorf("%d accepted, %d refused, %d tasks; want 100, %d and 100", c.accepted.Load(), c.queueFull.Load(), got, 32*3*3-100)
		}
		if got := s.w.Int("SELECT unfinished FROM queue WHERE id = ?", q); got != 100 {
			s.Errorf("counter = %d, want 100", got)
		}
	})
}

func TestAnApplicationTakesExactlyAsManyTasksAsItsLimit(t *testing.T) { // REF-QUOTA-001, LIC-013
	run(t, func(s *scene) {
		other := s.w.NewNamespace("other")
		queues := []sqldb.ID{s.w.NewQueue("a"), s.w.NewQueue("b"), s.w.NewQueueIn(other, "c")}
		s.limitQueue(queues[0], 30)
		s.limitApplication(100)
		c := s.flood(3, queues...)
		var sum int64
		for _, q := range queues {
			sum += s.unfinished(q)
		}
		if first := s.unfinished(queues[0]); c.accepted.Load() != 100 || sum != 100 || first > 30 {
			s.Errorf("%d accepted, %d tasks, %d in the limited queue; want 100, 100 and at most 30", c.accepted.Load(), sum, first)
		}
		if c.applicationFull.Load() == 0 {
			s.Error("nothing was refused for the application")
		}
		// Another application is not concerned.
		apart, namespace := sqldb.NewID(), sqldb.NewID()
		s.w.Exec("INSERT INTO application (id, name, state, created_at, updated_at) VALUES (?, ?, 1, 0, 0)", apart, []byte("apart"))
		s.w.Exec("INSERT INTO namespace (id, application_id, name, environment, state, created_at, updated_at) VALUES (?, ?, ?, ?, 1, 0, 0)",
			namespace, apart, []byte("n"), []byte("test"))
		s.accept(s.item(s.w.NewQueueIn(namespace, "q")))
	})
}

func TestTheLastPlacesGoToTheFirstOfABatch(t *testing.T) { // REF-QUOTA-001, IDEM-021, ERR-009, ERR-010
	run(t, func(s *scene) {
		a, b := s.w.NewQueue("a"), s.w.NewQueue("b")
		s.limitQueue(a, 3)
		s.limitApplication(5)
		late := func(r *orbit.SubmitTaskRequest) {
			at := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
			r.StartDeadlineAt = &at
		}
		items := []accept.Item{
			s.item(a), s.item(a, late), s.item(a), s.item(a), s.item(a), // one is late and takes no place, the last is over
			s.item(b), s.item(b), s.item(b), s.item(a), // the third is over, and of two full quotas the application's is told
		}
		errs := s.submit(items...)
		var invalid *orbit.InvalidArgumentError
		if !errors.As(errs[1], &invalid) {
			s.Errorf("item 1: %v, want an invalid argument", errs[1])
		}
		want := []error{nil, errs[1], nil, nil, quota.ErrQueueFull, nil, nil, quota.ErrApplicationFull, quota.ErrApplicationFull}
		for i := range want {
			if !errors.Is(errs[i], want[i]) {
				s.Errorf("item %d: %v, want %v", i, errs[i], want[i])
			}
		}
		for _, table := range []string{"task", "task_event", "audit", "idempotency"} {
			if got := s.w.Int("SELECT COUNT(*) FROM " + table); got != 5 {
				s.Errorf("%d rows of %s, want those of the 5 accepted tasks", got, table)
			}
		}
		s.limitApplication(0)
		s.limitQueue(a, 0)
		for i, err := range s.submit(items[4], items[7], items[8]) { // their keys are as new
			if err != nil {
				s.Errorf("refused item %d, sent again: %v", i, err)
			}
		}
	})
}

func TestARepeatGetsItsReceiptWhateverIsFull(t *testing.T) { // IDEM-018, TEST-044
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.limitApplication(2)
		items := s.items(q, 2)
		first := s.nodes[0].Submit(s.Context(), items)
		s.limitQueue(q, 1)
		for i, n := range s.nodes {
			again := n.Submit(s.Context(), append(slices.Clone(items), s.item(q)))
			for k := range items {
				if o := again[k]; o.Err != nil || !o.Deduplicated || string(o.Receipt.AppendTask(nil)) != string(first[k].Receipt.AppendTask(nil)) {
					s.Errorf("node %d, repeat %d: deduplicated %v, %v; want the first receipt", i, k, o.Deduplicated, o.Err)
				}
			}
			if !errors.Is(again[2].Err, quota.ErrApplicationFull) {
				s.Errorf("node %d, new item: %v, want ErrApplicationFull", i, again[2].Err)
			}
		}
	})
}

// SUB-060: a task that waits for its key counts like any other.
func TestEachEndOfATaskFreesExactlyOnePlace(t *testing.T) { // REF-QUOTA-001, REF-QUOTA-002, LIC-018, SUB-060
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.limitQueue(q, 3)
		s.limitApplication(4)
		keyed := func(r *orbit.SubmitTaskRequest) { r.ConcurrencyKey = "k" }
		s.accept(s.item(q), s.item(q, keyed), s.item(q, keyed))
		s.full(q, "three tasks wait, two of them for one key")

		ref := s.lease(q, true)
		s.full(q, "a task runs")
		s.finish(ref, task.OutcomeSucceeded)
		s.onePlace(q, "a success")

		ref = s.lease(q, true)
		s.finish(ref, task.OutcomeFailed)
		s.onePlace(q, "a failure")

		ref = s.lease(q, false)
		if got, err := s.nodes[1].dispatcher.Return(s.Context(), []dispatch.Ref{ref}); err != nil || got[0].Refusal != nil {
			s.Fatalf("Return = %+v, %v", got, err)
		}
		s.full(q, "a lease was handed back")

		ref = s.lease(q, false)
		s.w.Exec("UPDATE attempt SET lease_until = 1 WHERE id = ?", ref.Attempt)
		s.expireLeases()
		s.full(q, "a lease has expired")

		s.w.Exec("UPDATE task SET deadline_at = 1, expire_at = 1 WHERE state = 1 AND concurrency_key_digest = ? AND queue_id = ?", []byte{}, q)
		if n, err := s.nodes[0].recovery.ExpireWaiting(s.Context()); err != nil || n != 1 {
			s.Fatalf("ExpireWaiting = %d, %v; want 1", n, err)
		}
		s.onePlace(q, "an expired deadline")
	})
}

// STATE-016: what nobody knows the outcome of is not finished.
func TestATaskInReviewStillCounts(t *testing.T) { // STATE-016, REF-QUOTA-001
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.limitQueue(q, 1)
		s.accept(s.item(q))
		ref := s.lease(q, true)
		s.w.Exec("UPDATE attempt SET lease_until = 1 WHERE id = ?", ref.Attempt)
		s.expireLeases()
		if n := s.w.Int("SELECT COUNT(*) FROM task WHERE state = 4"); n != 1 {
			s.Fatalf("%d tasks in review, want 1", n)
		}
		s.full(q, "a task is in review")
		s.limitQueue(q, 0)
		s.limitQueue(q, 1)
		s.full(q, "the limit was set anew")
	})
}

func (s *scene) expireLeases() {
	s.Helper()
	if n, err := s.nodes[0].recovery.ExpireLeases(s.Context()); err != nil || n != 1 {
		s.Fatalf("ExpireLeases = %d, %v; want 1", n, err)
	}
}

// full fails unless the queue takes nothing more.
func (s *scene) full(q sqldb.ID, when string) {
	s.Helper()
	if err := s.submit(s.item(q))[0]; !errors.Is(err, quota.ErrQueueFull) {
		s.Errorf("submit when %s: %v, want ErrQueueFull", when, err)
	}
	s.w.Verify()
}

// onePlace fails unless the queue takes exactly one task more.
func (s *scene) onePlace(q sqldb.ID, after string) {
	s.Helper()
	if err := s.submit(s.item(q))[0]; err != nil {
		s.Errorf("submit after %s: %v, want it accepted", after, err)
	}
	s.full(q, "the place of "+after+" is taken")
}

func TestAManualRetryObeysTheQuota(t *testing.T) { // AMB-072, REF-QUOTA-001, STATE-019
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.limitQueue(q, 1)
		s.accept(s.item(q))
		ref := s.lease(q, true)
		s.finish(ref, task.OutcomeFailed)
		var failed sqldb.ID
		if err := s.w.DB.Read().QueryRowContext(s.Context(), "SELECT task_id FROM attempt").Scan(&failed); err != nil {
			s.Fatal(err)
		}
		s.accept(s.item(q))
		retry := s.item(q)
		retry.Retry = &accept.Retry{Of: failed, Root: failed, Digest: orbit.Digest{1}, Reason: "the disk was full"}
		if err := s.submit(retry)[0]; !errors.Is(err, quota.ErrQueueFull) {
			s.Errorf("retry into a full queue: %v, want ErrQueueFull", err)
		}
		s.limitQueue(q, 2)
		s.accept(retry)
		s.full(q, "the retry counts")
		if n := s.w.Int("SELECT COUNT(*) FROM task WHERE retry_of = ? AND operation_root = ?", failed, failed); n != 1 {
			s.Errorf("%d tasks are linked to the failed one, want 1", n)
		}
	})
}

func TestALimitBelowWhatIsThereRefusesUntilEnoughHaveEnded(t *testing.T) { // REF-QUOTA-002
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.accept(s.items(q, 4)...)
		s.limitQueue(q, 2)
		for range 2 {
			s.full(q, "more is there than the limit")
			s.finish(s.lease(q, true), task.OutcomeSucceeded)
		}
		s.full(q, "as much is there as the limit")
		s.finish(s.lease(q, true), task.OutcomeSucceeded)
		s.onePlace(q, "the third end")
		s.limitQueue(q, 0)
		s.accept(s.items(q, 10)...)
		if err := s.w.DB.Tx(s.Context(), func(tx *sqldb.Tx) error { return quota.LimitQueue(s.Context(), tx, q, -1) }); err == nil {
			s.Error("a negative limit was set")
		}
		if err := s.w.DB.Tx(s.Context(), func(tx *sqldb.Tx) error {
			return quota.LimitQueue(s.Context(), tx, sqldb.NewID(), 1)
		}); err == nil {
			s.Error("a limit was set for a queue that does not exist")
		}
	})
}

// An application without its row has no limit; the row is made before anything depends on
// its lock.
func TestAnApplicationWithoutItsRowHasNoLimit(t *testing.T) { // REF-QUOTA-002
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.w.Exec("DELETE FROM application_quota")
		s.accept(s.items(q, 3)...)
		if n := s.w.Int("SELECT COUNT(*) FROM application_quota WHERE max_unfinished = 0"); n != 1 {
			s.Errorf("%d rows of quotas, want 1", n)
		}
		s.w.Exec("DELETE FROM application_quota")
		s.limitApplication(4)
		s.accept(s.item(q))
		if err := s.submit(s.item(q))[0]; !errors.Is(err, quota.ErrApplicationFull) {
			s.Errorf("fifth task: %v, want ErrApplicationFull", err)
		}
	})
}

// LIC-013: where there is no limit a transaction reads once more than it did, in share
// mode, and writes nothing; where there is one it writes once for each kind of row.
func TestOnlyALimitIsWritten(t *testing.T) { // LIC-013, REF-QUOTA-002
	runOnServers(t, func(s *scene) {
		q, r := s.w.NewQueue("q"), s.w.NewQueue("r")
		// BEGIN, clock, identities, quotas, tasks, events, audit, COMMIT.
		const submit = 8
		batch := func() []accept.Item { return append(s.items(q, 20), s.items(r, 20)...) }
		for _, c := range []struct {
			name  string
			limit func()
			want  int64
		}{
			{"no limit", func() {}, submit},
			{"one queue", func() { s.limitQueue(q, 1000) }, submit + 1},
			{"two queues", func() { s.limitQueue(r, 1000) }, submit + 1},
			{"two queues and the application", func() { s.limitApplication(1000) }, submit + 2},
			{"none again", func() { s.limitQueue(q, 0); s.limitQueue(r, 0); s.limitApplication(0) }, submit},
		} {
			c.limit()
			s.accept(batch()...) // the node learns the modes
			before := s.watch.statements.Load()
			s.accept(batch()...)
			if got := s.watch.statements.Load() - before; got != c.want {
				s.Errorf("%s: a submit took %d statements, want %d", c.name, got, c.want)
			}
		}
	})
}

// Rows without a limit are only shared: who holds them holds nobody up.
func TestWhatHasNoLimitIsOnlyShared(t *testing.T) { // LIC-013, REF-QUOTA-002
	runOnServers(t, func(s *scene) {
		limited, free := s.w.NewQueue("limited"), s.w.NewQueue("free")
		s.limitQueue(limited, 1000)
		s.w.Exec("UPDATE queue SET max_concurrency = 1000 WHERE id = ?", limited)
		s.accept(append(s.items(limited, 2), s.items(free, 2)...)...)
		s.lease(limited, false)
		ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second) // ends what hangs
		defer cancel()
		err := s.w.DB.Tx(ctx, func(tx *sqldb.Tx) error {
			if _, err := quota.Open(ctx, tx, &quota.Modes{}, []sqldb.ID{free}); err != nil {
				return err
			}
			for _, o := range s.nodes[0].Submit(ctx, []accept.Item{s.item(free), s.item(limited)}) {
				if o.Err != nil {
					s.Errorf("submit beside a transaction without limits: %v", o.Err)
				}
			}
			lane := dispatchtest.Task{Queue: limited}.Lane()
			c, err := s.nodes[1].dispatcher.Claim(ctx, []dispatch.Lane{lane}, []dispatch.Taker{s.w.Taker(1, lane)})
			if err != nil || len(c.Grants) != 1 {
				s.Errorf("claim of a limited queue beside it: %d grants, %v", len(c.Grants), err)
			}
			return nil
		})
		if err != nil {
			s.Error(err)
		}
	})
}

// Who sets a limit waits for all who accept or end tasks without counting them, and these
// for each other where there is a limit.
func TestRowsAreLockedUntilTheTransactionEnds(t *testing.T) { // LIC-013, REF-QUOTA-002
	runOnServers(t, func(s *scene) {
		free, limited := s.w.NewQueue("free"), s.w.NewQueue("limited")
		s.limitQueue(limited, 5)
		tries := []struct {
			row, lock string
			held      bool
		}{
			{"application_quota WHERE application_id", " FOR UPDATE NOWAIT", true},
			{"application_quota WHERE application_id", share(s), false},
			{"queue WHERE id", " FOR UPDATE NOWAIT", true},
			{"queue WHERE id", share(s), false},
			{"queue WHERE id", share(s), true},
		}
		ids := []sqldb.ID{s.w.Application, s.w.Application, free, free, limited}
		ctx := s.Context()
		var modes quota.Modes
		err := s.w.DB.Tx(ctx, func(tx *sqldb.Tx) error {
			if _, err := quota.Open(ctx, tx, &modes, []sqldb.ID{free, limited}); err != nil {
				return err
			}
			for i, try := range tries {
				var one int
				err := s.w.DB.Read().QueryRowContext(ctx, "SELECT 1 FROM "+try.row+" = ?"+try.lock, ids[i]).Scan(&one)
				if held := err != nil; held != try.held {
					s.Errorf("lock %d of %s%s = %v, want it refused: %v", i, try.row, try.lock, err, try.held)
				}
			}
			return nil
		})
		if err != nil {
			s.Error(err)
		}
	})
}

// share is the lock that is only refused by one for a change.
func share(s *scene) string {
	if s.db.Engine == dbtest.MariaDB {
		return " LOCK IN SHARE MODE NOWAIT"
	}
	return " FOR SHARE NOWAIT"
}

// Submits, ends, expiries, claims and changes of limits on two nodes at once: everything
// completes, and in the end every counter is the truth.
func TestCountersAreTheTruthAfterEverythingAtOnce(t *testing.T) { // LIC-013, LIC-014, LIC-018, REF-QUOTA-002
	run(t, func(s *scene) {
		queues := []sqldb.ID{s.w.NewQueue("a"), s.w.NewQueue("b"), s.w.NewQueueIn(s.w.NewNamespace("other"), "c")}
		if s.db.Engine == dbtest.SQLite {
			// Who waits for the file is not served in turn, who waits for a pool is.
			s.startNodes(func() *sqldb.DB { return s.w.DB })
		}
		ctx, stop := context.WithCancel(context.Background())
		var around, submitting sync.WaitGroup
		for i := range 4 {
			around.Go(func() { s.work(ctx, s.nodes[i%2], queues) })
		}
		around.Go(func() { s.changeLimits(ctx, queues) })
		var c tally
		const rounds = 8
		for i := range 16 {
			submitting.Go(func() {
				for round := range rounds {
					q := queues[(i+round)%3]
					items := s.items(q, 1+i%3*3)
					items = append(items, s.item(q, func(r *orbit.SubmitTaskRequest) {
						at := time.Now().Add(100 * time.Millisecond).UTC().Truncate(time.Millisecond)
						r.StartDeadlineAt = &at
					}))
					items[0] = s.item(queues[(i+1)%3], func(r *orbit.SubmitTaskRequest) { r.ConcurrencyKey = fmt.Sprint("k", i%2) })
					c.add(s, s.nodes[i%2].Submit(context.Background(), items))
				}
			})
		}
		submitting.Wait()
		stop()
		around.Wait()
		s.w.Verify()
		s.limitApplication(1_000_000)
		for _, q := range queues {
			s.limitQueue(q, 1_000_000)
		}
		s.w.Verify() // what a fresh count gives
		s.Logf("%d accepted, %d and %d refused by queue and application, %d ended, %d deadlocks", c.accepted.Load(), c.queueFull.Load(),
			c.applicationFull.Load(), s.w.Int("SELECT COUNT(*) FROM task WHERE state > 4"), s.watch.deadlocks.Load())
		if c.queueFull.Load() == 0 || c.applicationFull.Load() == 0 || s.w.Int("SELECT COUNT(*) FROM task WHERE state > 4") == 0 {
			s.Error("the limits, or the ends of tasks, were never met")
		}
	})
}

// work claims, starts and ends tasks of queues, and ends those that wait too long.
func (s *scene) work(ctx context.Context, n *node, queues []sqldb.ID) {
	var lanes []dispatch.Lane
	for _, q := range queues {
		lanes = append(lanes, dispatchtest.Task{Queue: q}.Lane(), dispatchtest.Task{Queue: q, Key: "k"}.Lane())
	}
	for round := 0; ctx.Err() == nil; round++ {
		taker := s.w.Taker(5, lanes...)
		c, err := n.dispatcher.Claim(context.Background(), lanes, []dispatch.Taker{taker})
		if err != nil {
			s.Errorf("Claim = %v", err)
			return
		}
		var refs []dispatch.Ref
		var ends []dispatch.Finish
		for i, g := range c.Grants {
			ref := dispatch.Ref{Attempt: g.Attempt, Epoch: g.Epoch, Process: taker.Process, Namespace: taker.Namespace}
			refs = append(refs, ref)
			ends = append(ends, dispatch.Finish{Ref: ref, Receipt: []byte("r"), Outcome: task.Outcome(1 + i%3)})
		}
		if _, err := n.dispatcher.Start(context.Background(), refs); err != nil {
			s.Errorf("Start = %v", err)
		}
		if _, err := n.dispatcher.Finish(context.Background(), ends); err != nil {
			s.Errorf("Finish = %v", err)
		}
		if _, err := n.recovery.ExpireWaiting(context.Background()); err != nil {
			s.Errorf("ExpireWaiting = %v", err)
		}
	}
}

// changeLimits sets and lifts limits.
func (s *scene) changeLimits(ctx context.Context, queues []sqldb.ID) {
	tx := func(f func(context.Context, *sqldb.Tx) error) {
		if err := s.w.DB.Tx(context.Background(), func(tx *sqldb.Tx) error { return f(context.Background(), tx) }); err != nil {
			s.Errorf("change of a limit = %v", err)
		}
	}
	for round := int64(0); ctx.Err() == nil; round++ {
		q := queues[round%3]
		tx(func(ctx context.Context, tx *sqldb.Tx) error { return quota.LimitQueue(ctx, tx, q, round%4*10) })
		tx(func(ctx context.Context, tx *sqldb.Tx) error {
			return quota.LimitApplication(ctx, tx, s.w.Application, (round+1)%3*60)
		})
		tx(func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE queue SET max_concurrency = ?, updated_at = "+tx.Dialect().Clock+" WHERE id = ?", round%5, q)
			return err
		})
	}
}

func TestAWrongModeRunsTheTransactionAgainWithTheRightOne(t *testing.T) { // REF-QUOTA-002
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		modes := &quota.Modes{}
		opened := func() (failures int) {
			ctx := s.Context()
			err := s.w.DB.Tx(ctx, func(tx *sqldb.Tx) error {
				_, err := quota.Open(ctx, tx, modes, []sqldb.ID{q, q, sqldb.NewID()})
				if err != nil && errors.Is(err, sqldb.ErrAgain) && strings.Contains(err.Error(), "a limit was set") {
					failures++
				}
				return err
			})
			if err != nil {
				s.Errorf("Open = %v", err)
			}
			return failures
		}
		for i, step := range []struct {
			limit int64
			want  int
		}{{0, 0}, {5, 1}, {7, 0}, {0, 0}, {0, 0}, {1, 1}} {
			s.limitQueue(q, step.limit)
			if got := opened(); got != step.want {
				s.Errorf("step %d: the transaction ran anew %d times, want %d", i, got, step.want)
			}
		}
	})
}

// Other transactions see the limit come and go and each time tell the memory that all of
// them share.
func TestChangingModesDoNotHoldUpATransaction(t *testing.T) { // REF-QUOTA-002
	run(t, func(s *scene) {
		q := s.w.NewQueue("q")
		s.limitQueue(q, 5)
		ctx, runs, modes := s.Context(), 0, &quota.Modes{}
		err := s.w.DB.Tx(ctx, func(tx *sqldb.Tx) error {
			runs++
			modes.SetLimited(q, false)
			_, err := quota.Open(ctx, tx, modes, []sqldb.ID{q})
			return err
		})
		if err != nil || runs != 3 {
			s.Errorf("Open = %v after %d runs, want it to succeed in the third", err, runs)
		}
	})
}

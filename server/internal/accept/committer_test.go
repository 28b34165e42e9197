package accept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/task"
)

// A desk is a running committer on a database with faults.
type desk struct {
	*Committer
	t      *testing.T
	db     *dbtest.DB
	faults *dbfault.Faults
	stop   func() // stops the committer and waits for it

	namespace, queue sqldb.ID

	mu    sync.Mutex
	woken []int64
}

func onEachEngine(t *testing.T, f func(t *testing.T, d *desk)) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) { f(t, newDesk(t, db)) }, migrations.Server)
}

func newDesk(t *testing.T, db *dbtest.DB) *desk {
	d := &desk{t: t, db: db, faults: dbfault.Open(t, db), namespace: sqldb.NewID(), queue: sqldb.NewID()}
	d.Committer = New(d.faults.DB, Config{Wake: d.wake})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	d.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(d.stop)
	return d
}

func (d *desk) wake(lanes []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.woken = append(d.woken, lanes...)
}

func (d *desk) item(key, handler string, payload any) Item {
	d.t.Helper()
	text, err := json.Marshal(payload)
	if err != nil {
		d.t.Fatal(err)
	}
	_, s, err := orbit.SubmitTaskRequest{
		QueueID: d.queue.String(), Handler: handler, HandlerVersion: "v1", PayloadVersion: "v1", Payload: text,
	}.Freeze()
	if err != nil {
		d.t.Fatal(err)
	}
	return Item{Namespace: d.namespace, Queue: d.queue, Credential: sqldb.NewID(), Request: sqldb.NewID(), Key: key, Submission: s}
}

// each submits items at the same time, each by a call of its own.
func (d *desk) each(items []Item) (outcomes []Outcome, wait func()) {
	outcomes = make([]Outcome, len(items))
	var submitting sync.WaitGroup
	for i, item := range items {
		submitting.Go(func() { outcomes[i] = d.Submit(context.Background(), []Item{item})[0] })
	}
	return outcomes, submitting.Wait
}

// until polls a condition that another goroutine will bring about.
func (d *desk) until(what string, done func() bool) {
	d.t.Helper()
	for range 10_000 {
		if done() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	d.t.Fatalf("waited in vain until %s", what)
}

func (d *desk) waitingItems() int {
	d.Committer.mu.Lock()
	defer d.Committer.mu.Unlock()
	return len(d.waiting)
}

// holdFirstCommit holds the first COMMIT until open is called, and has one item waiting
// in it when it returns.
func (d *desk) holdFirstCommit() (first chan Outcome, open func()) {
	d.t.Helper()
	gate := make(chan struct{})
	d.faults.OnCommit(func(n int) dbfault.Verdict {
		if n == 1 {
			<-gate
		}
		return dbfault.Pass
	})
	first = make(chan Outcome, 1)
	item := d.item("first", "h", 0)
	go func() { first <- d.Submit(context.Background(), []Item{item})[0] }()
	d.until("the first commit is sent", func() bool { return d.faults.Commits() == 1 })
	return first, sync.OnceFunc(func() { close(gate) })
}

func (d *desk) count(query string, args ...any) int {
	d.t.Helper()
	var n int
	if err := d.db.Write().QueryRowContext(d.t.Context(), "SELECT COUNT(*) FROM "+query, args...).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

func wantAccepted(t *testing.T, outcomes []Outcome) {
	t.Helper()
	for i, o := range outcomes {
		if o.Err != nil || o.Deduplicated {
			t.Fatalf("item %d: deduplicated %v, %v; want accepted", i, o.Deduplicated, o.Err)
		}
	}
}

// Cost law 1: what arrives while a transaction commits is written by the next one.
func TestSubmitsThatArriveDuringACommitShareTheNext(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		first, open := d.holdFirstCommit()
		defer open()
		var items []Item
		for i := range 63 {
			items = append(items, d.item(fmt.Sprint("key-", i), "h", i))
		}
		outcomes, wait := d.each(items)
		d.until("63 items wait", func() bool { return d.waitingItems() == 63 })
		if got := len(first); got != 0 {
			t.Fatal("the first submit was answered before its commit")
		}
		open()
		wait()
		wantAccepted(t, append(outcomes, <-first))
		if got := d.faults.Commits(); got != 2 {
			t.Errorf("64 submits took %d commits, want 2", got)
		}
		if got := d.count("task"); got != 64 {
			t.Errorf("%d tasks, want 64", got)
		}
	})
}

// LIC-014: a transaction has at most 100 members and about 4 MiB. One that is full does not
// wait for another, where the engine has more than one writer; what is left over does.
func TestTransactionsAreBounded(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		for name, c := range map[string]struct{ items, size, full, left int }{
			"by members": {201, 1, 2, 1},
			"by bytes":   {20, 250 << 10, 2, 4},
		} {
			t.Run(name, func(t *testing.T) {
				d.t = t
				first, open := d.holdFirstCommit()
				defer open()
				var items []Item
				for i := range c.items {
					items = append(items, d.item(fmt.Sprint(name[3:], i), "h", string(bytes.Repeat([]byte("p"), c.size))))
				}
				outcomes, wait := d.each(items)
				begun, left := 1+c.full, c.left
				if d.db.Engine == dbtest.SQLite {
					begun, left = 1, c.items
				}
				d.until("the items wait", func() bool { return d.waitingItems() == left && d.faults.Commits() == begun })
				if len(first) != 0 {
					t.Fatal("the first submit was answered before its commit")
				}
				open()
				wait()
				<-first
				wantAccepted(t, outcomes)
				if got := d.faults.Commits(); got != 1+c.full+1 {
					t.Errorf("%d commits, want %d", got, 1+c.full+1)
				}
				if _, err := d.db.Write().Exec("DELETE FROM idempotency"); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// IDEM-020: a repeat waits for the running transaction that has its key, whatever else may
// go on beside it.
func TestARepeatWaitsForTheTransactionOfItsKey(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		first, open := d.holdFirstCommit()
		defer open()
		items := []Item{d.item("first", "h", 0)}
		for i := range maxMembers {
			items = append(items, d.item(fmt.Sprint("key-", i), "h", i))
		}
		outcomes, wait := d.each(items)
		begun, left := 2, 1
		if d.db.Engine == dbtest.SQLite {
			begun, left = 1, len(items)
		}
		d.until("the repeat waits", func() bool { return d.waitingItems() == left && d.faults.Commits() == begun })
		open()
		wait()
		wantAccepted(t, append(outcomes[1:], <-first))
		if o := outcomes[0]; o.Err != nil || !o.Deduplicated {
			t.Errorf("repeat: deduplicated %v, %v; want the receipt of the first", o.Deduplicated, o.Err)
		}
	})
}

// Cost law 1: a member that the database refuses fails alone.
func TestAPoisonedMemberFailsAlone(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		d.poison("task")
		first, open := d.holdFirstCommit()
		defer open()
		items := []Item{d.item("a", "h", 1), d.item("b", "poison", 2), d.item("c", "h", 3)}
		outcomes, wait := d.each(items)
		d.until("the items wait", func() bool { return d.waitingItems() == 3 })
		open()
		wait()
		wantAccepted(t, []Outcome{<-first, outcomes[0], outcomes[2]})
		if !errors.Is(outcomes[1].Err, ErrUnavailable) {
			t.Errorf("poisoned member: %v, want ErrUnavailable", outcomes[1].Err)
		}
		if tasks, identities := d.count("task"), d.count("idempotency"); tasks != 3 || identities != 3 {
			t.Errorf("%d tasks and %d identities, want 3 and 3", tasks, identities)
		}
	})
}

// A panic takes neither the node down nor an answer away: what was committed before it is
// found and answered.
func TestAPanicTakesNoAnswerAway(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		var panicked atomic.Bool
		d.cfg.Wake = func([]int64) {
			if panicked.CompareAndSwap(false, true) {
				panic("canary")
			}
		}
		wantAccepted(t, d.Submit(t.Context(), []Item{d.item("a", "h", 1), d.item("b", "h", 2)}))
		if !panicked.Load() {
			t.Fatal("nothing panicked")
		}
		wantAccepted(t, d.Submit(t.Context(), []Item{d.item("c", "h", 3)}))
		if got := d.count("task"); got != 3 {
			t.Errorf("%d tasks, want 3", got)
		}
	})
}

// What waits is bounded, and what is over the bound is refused before it takes memory.
func TestWaitingIsBounded(t *testing.T) {
	d := newDesk(t, dbtest.Open(t, dbtest.SQLite, migrations.Server))
	first, open := d.holdFirstCommit()
	defer open()
	large := d.item("large", "h", string(bytes.Repeat([]byte("p"), 250<<10)))
	fit := maxWaiting / (&member{Item: large}).size()
	items := make([]Item, fit)
	for i := range items {
		items[i] = large
	}
	ctx, cancel := context.WithCancel(context.Background())
	given := make(chan []Outcome, 1)
	go func() { given <- d.Submit(ctx, items) }()
	d.until("they wait", func() bool { return d.waitingItems() == fit })
	if o := d.Submit(t.Context(), []Item{large})[0]; !errors.Is(o.Err, errTooMuch) || !errors.Is(o.Err, ErrUnavailable) {
		t.Errorf("one too many: %v", o.Err)
	}
	cancel()
	<-given
	open()
	<-first
	d.until("those of the sender that gave up are dropped", func() bool { return d.waitingItems() == 0 })
	wantAccepted(t, d.Submit(t.Context(), []Item{large}))
	if d.bytes != 0 {
		t.Errorf("%d bytes are counted as waiting, want 0", d.bytes)
	}
}

// poison makes the database refuse rows of table with the handler "poison", or any row if
// it has no handler.
func (d *desk) poison(table string) {
	d.t.Helper()
	sqlite := map[string]string{
		"task": "WHEN NEW.handler = CAST('poison' AS BLOB)", "audit": "WHEN NEW.handler = CAST('poison' AS BLOB)",
	}
	mysql := map[string]string{"task": "NEW.handler = 'poison'", "audit": "NEW.handler = 'poison'", "task_event": "TRUE"}
	statement := fmt.Sprintf("CREATE TRIGGER poison BEFORE INSERT ON %s %s BEGIN SELECT RAISE(ABORT, 'canary'); END", table, sqlite[table])
	if d.db.Engine != dbtest.SQLite {
		statement = fmt.Sprintf("CREATE TRIGGER poison BEFORE INSERT ON %s FOR EACH ROW BEGIN IF %s THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'canary'; END IF; END", table, mysql[table])
	}
	if _, err := d.db.Write().ExecContext(d.t.Context(), statement); err != nil {
		d.t.Fatal(err)
	}
}

// SUB-062: if any of its writes fails, an acceptance leaves nothing.
func TestAFailedWriteRollsBackAll(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		for _, table := range []string{"task_event", "audit"} {
			d.poison(table)
			if o := d.Submit(t.Context(), []Item{d.item("key", "poison", 1)})[0]; !errors.Is(o.Err, ErrUnavailable) {
				t.Errorf("%s: outcome %v, want ErrUnavailable", table, o.Err)
			}
			for _, rows := range []string{"task", "task_event", "audit", "idempotency"} {
				if got := d.count(rows); got != 0 {
					t.Errorf("a failed write of %s left %d rows of %s", table, got, rows)
				}
			}
			if _, err := d.db.Write().Exec("DROP TRIGGER poison"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// ERR-017, TEST-021: the answer to COMMIT is lost. Each member is resolved by its
// identity: accepted, once, and its lane is woken.
func TestALostCommitAnswerIsResolved(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		d.faults.OnCommit(func(n int) dbfault.Verdict {
			if n == 1 {
				return dbfault.LoseAnswer
			}
			return dbfault.Pass
		})
		items := []Item{d.item("a", "h", 1), d.item("b", "h", 2), d.item("c", "h2", 3)}
		wantAccepted(t, d.Submit(t.Context(), items))
		if commits, tasks := d.faults.Commits(), d.count("task"); commits != 1 || tasks != 3 {
			t.Errorf("%d commits and %d tasks, want 1 and 3", commits, tasks)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.woken) != 2 {
			t.Errorf("woken %v, want two lanes", d.woken)
		}
	})
}

// A COMMIT that never arrived is found absent and done again.
func TestACommitThatNeverArrivedIsDoneAgain(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		d.faults.OnCommit(func(n int) dbfault.Verdict {
			if n == 1 {
				return dbfault.CutBefore
			}
			return dbfault.Pass
		})
		wantAccepted(t, d.Submit(t.Context(), []Item{d.item("a", "h", 1), d.item("b", "h", 2)}))
		if commits, tasks := d.faults.Commits(), d.count("task"); commits != 2 || tasks != 2 {
			t.Errorf("%d commits and %d tasks, want 2 and 2", commits, tasks)
		}
	})
}

// A commit that stays unknown is reported so, and the repeat tells the truth: never two
// tasks.
func TestACommitThatStaysUnknownIsReportedAsUnknown(t *testing.T) {
	for _, verdict := range []dbfault.Verdict{dbfault.LoseAnswer, dbfault.CutBefore} {
		t.Run(map[dbfault.Verdict]string{dbfault.LoseAnswer: "in force", dbfault.CutBefore: "not in force"}[verdict], func(t *testing.T) {
			onEachEngine(t, func(t *testing.T, d *desk) {
				d.faults.OnCommit(func(int) dbfault.Verdict {
					d.faults.Break() // nothing can be looked up from here on
					return verdict
				})
				items := []Item{d.item("a", "h", 1), d.item("b", "h", 2)}
				for _, o := range d.Submit(t.Context(), items) {
					if !errors.Is(o.Err, ErrUnavailable) {
						t.Errorf("outcome %v, want ErrUnavailable", o.Err)
					}
				}
				if d.faults.Commits() != 1 {
					t.Fatalf("%d commits, want 1", d.faults.Commits())
				}
				d.faults.OnCommit(func(int) dbfault.Verdict { return dbfault.Pass })
				d.faults.Mend()
				for _, o := range d.Submit(t.Context(), items) {
					if o.Err != nil {
						t.Errorf("repeat: %v", o.Err)
					}
				}
				if got := d.count("task"); got != 2 {
					t.Errorf("%d tasks, want 2", got)
				}
			})
		})
	}
}

// A sender that gives up while it waits is not written.
func TestASenderThatGaveUpIsDropped(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		first, open := d.holdFirstCommit()
		defer open()
		ctx, cancel := context.WithCancel(context.Background())
		given := make(chan Outcome, 1)
		item := d.item("given-up", "h", 1)
		go func() { given <- d.Submit(ctx, []Item{item})[0] }()
		d.until("it waits", func() bool { return d.waitingItems() == 1 })
		cancel()
		if o := <-given; !errors.Is(o.Err, ErrUnavailable) || !errors.Is(o.Err, context.Canceled) {
			t.Errorf("outcome %v, want ErrUnavailable for a cancelled context", o.Err)
		}
		open()
		<-first
		wantAccepted(t, d.Submit(t.Context(), []Item{d.item("later", "h", 1)}))
		if got := d.count("idempotency WHERE idempotency_key = ?", []byte("given-up")); got != 0 {
			t.Error("the submit of a sender that gave up was written")
		}
	})
}

// Run finishes what waits, and later submits are not taken.
func TestRunFinishesWhatWaits(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		first, open := d.holdFirstCommit()
		defer open()
		outcomes, wait := d.each([]Item{d.item("a", "h", 1), d.item("b", "h", 2)})
		d.until("they wait", func() bool { return d.waitingItems() == 2 })
		stopped := make(chan struct{})
		go func() { d.stop(); close(stopped) }()
		open()
		<-stopped
		wait()
		wantAccepted(t, append(outcomes, <-first))
		if o := d.Submit(t.Context(), []Item{d.item("late", "h", 1)})[0]; !errors.Is(o.Err, ErrUnavailable) {
			t.Errorf("after Run ended: %v, want ErrUnavailable", o.Err)
		}
	})
}

// No lock waits against the order: nodes that accept the same keys and resources at the
// same time neither deadlock for good nor double a task.
func TestNodesThatAcceptTheSameItems(t *testing.T) {
	onEachEngine(t, func(t *testing.T, d *desk) {
		nodes := []*desk{d, newDesk(t, d.db), newDesk(t, d.db), newDesk(t, d.db)}
		var items []Item
		for i := range 60 {
			item := d.item(fmt.Sprint("key-", i), "h", i)
			item.Submission.Request.ConcurrencyKey = fmt.Sprint("object/", i%7)
			items = append(items, item)
		}
		var submitting sync.WaitGroup
		results := make([][]Outcome, len(nodes))
		for i, n := range nodes {
			submitting.Go(func() { results[i] = n.Submit(context.Background(), items) })
		}
		submitting.Wait()
		for k := range items {
			created := 0
			for i := range nodes {
				if err := results[i][k].Err; err != nil {
					t.Fatalf("node %d, item %d: %v", i, k, err)
				}
				if !results[i][k].Deduplicated {
					created++
				}
				if got, want := results[i][k].Receipt.AppendTask(nil), results[0][k].Receipt.AppendTask(nil); !bytes.Equal(got, want) {
					t.Fatalf("item %d has two receipts:\n%s\n%s", k, got, want)
				}
			}
			if created != 1 {
				t.Fatalf("item %d was created %d times", k, created)
			}
		}
		if tasks, keys := d.count("task"), d.count("resource"); tasks != 60 || keys != 7 {
			t.Errorf("%d tasks and %d resource rows, want 60 and 7", tasks, keys)
		}
		d.noStranded()
	})
}

// noStranded fails if a free key has parked tasks in a lane without a READY one.
func (d *desk) noStranded() {
	d.t.Helper()
	stranded := d.count(`task p JOIN resource k ON k.digest = p.concurrency_key_digest
		WHERE p.dispatch_state = ? AND k.holder_task_id IS NULL
		  AND NOT EXISTS (SELECT 1 FROM task r WHERE r.concurrency_key_digest = p.concurrency_key_digest
			AND r.lane = p.lane AND r.dispatch_state = ?)`, task.DispatchKeyBlocked, task.DispatchReady)
	if stranded != 0 {
		d.t.Errorf("%d parked tasks behind a free key with nothing READY", stranded)
	}
}

package outboxtest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
)

const someTask = "abababababababababababababababab"

const someQueue = "0123456789abcdef0123456789abcdef"

func message(key, payload string) outbox.Message {
	return outbox.Message{Key: key, Target: "shop", Request: orbit.SubmitTaskRequest{
		QueueID: someQueue, Handler: "h", HandlerVersion: "1", PayloadVersion: "1", Payload: json.RawMessage(payload),
	}}
}

// A transaction is what a *sql.Tx and a FakeTx have in common.
type transaction interface {
	outbox.Tx
	Commit() error
	Rollback() error
}

// Cancelling is an outbox that takes cancels too.
type cancelling interface {
	outboxtest.Outbox
	EnqueueCancel(context.Context, outbox.Tx, outbox.Cancel) (outbox.Receipt, error)
}

// A bench is an outbox and how to use it.
type bench struct {
	cancelling
	begin func() transaction
	seen  func(transaction) outboxtest.Reader // by a transaction, or committed for nil
}

func realBench(t *testing.T) bench {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Outbox)
	box, err := outbox.New(outbox.SQLite, outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	begin := func() transaction {
		tx, err := db.Write().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	return bench{box, begin, func(tx transaction) outboxtest.Reader {
		if tx == nil {
			return outboxtest.In(db.Read())
		}
		return outboxtest.In(tx.(*sql.Tx))
	}}
}

func fakeBench(*testing.T) bench {
	fake := &outboxtest.Fake{}
	return bench{fake, func() transaction { return fake.Begin() }, func(tx transaction) outboxtest.Reader {
		if tx == nil {
			return fake
		}
		return tx.(*outboxtest.FakeTx)
	}}
}

// A Fake answers what an outbox in a database answers, and shows the same messages.
func TestAFakeAnswersAsTheRealOutbox(t *testing.T) { // OUT-005, OUT-006, OUT-007, OUT-015, OUT-022
	want, got := play(t, realBench(t)), play(t, fakeBench(t))
	if got != want {
		t.Errorf("a fake said\n%s\nthe real one\n%s", got, want)
	}
	if lines := strings.Count(want, "\n"); lines < 40 {
		t.Errorf("only %d lines were compared", lines)
	}
}

// play does the same with any outbox and tells what came of it.
func play(t *testing.T, b bench) string {
	var said strings.Builder
	show := func(in outboxtest.Reader) {
		messages, err := in.Messages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			fmt.Fprintf(&said, "  %s %s %v %v %v %q %s\n", m.Target, m.Key, m.Digest, m.NotBefore, m.Request.Retry, m.Traceparent, m.Request.Payload)
		}
		cancels, err := in.Cancels(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cancels {
			fmt.Fprintf(&said, "  cancel %+v %v\n", c.Cancel, c.Digest)
		}
	}
	tell := func(err error) {
		var invalid *orbit.InvalidArgumentError
		errors.As(err, &invalid)
		fmt.Fprintf(&said, "invalid=%v conflict=%v no_transaction=%v\n", invalid, errors.Is(err, outbox.ErrConflict), errors.Is(err, outbox.ErrNoTransaction))
	}
	enqueue := func(tx transaction, messages ...outbox.Message) {
		var receipts []outbox.Receipt
		var err error
		if len(messages) == 1 {
			receipts = make([]outbox.Receipt, 1)
			receipts[0], err = b.Enqueue(t.Context(), tx, messages[0])
		} else {
			receipts, err = b.EnqueueBatch(t.Context(), tx, messages)
		}
		if err != nil {
			receipts = nil
		}
		for _, r := range receipts {
			fmt.Fprintf(&said, "%v %v\n", r.Digest, r.Existing)
		}
		tell(err)
	}
	withdraw := func(tx transaction, key, task string, revision uint64) {
		r, err := b.EnqueueCancel(t.Context(), tx, outbox.Cancel{
			Key: key, Target: "shop", TaskID: task, Request: orbit.CancelTaskRequest{ExpectedRevision: revision, Reason: "withdrawn"},
			NotAfter: time.Date(2130, 1, 2, 3, 4, 5, 0, time.UTC),
		})
		fmt.Fprintf(&said, "cancel %v %v\n", r.Digest, r.Existing)
		tell(err)
	}
	end := func(err error) { fmt.Fprintf(&said, "end=%v\n", err) }

	later := message("later", `{"n":1}`)
	later.NotBefore = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	later.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	absolute := message("absolute", `{}`)
	absolute.Request.AvailableAt = &later.NotBefore

	tx := b.begin()
	enqueue(tx, message("a", `{"n":1, "m":2}`))
	enqueue(tx, message("a", `{"m":2,"n":1.0}`))
	show(b.seen(tx))
	end(tx.Rollback())
	show(b.seen(nil))
	tx = b.begin()
	enqueue(tx, message("a", `{"n":2}`))
	enqueue(tx, later)
	enqueue(tx, absolute)
	enqueue(tx, message("", `{}`))
	enqueue(tx, message("bad", `{"n":1,"n":1}`))
	end(tx.Commit())
	end(tx.Rollback())
	show(b.seen(nil))
	tx = b.begin()
	enqueue(tx, message("a", `{"n":3}`))
	enqueue(tx, message("b", `{}`), message("a", `{"n":3}`))
	enqueue(tx, message("b", `{}`), message("b", `{"n":1}`))
	enqueue(tx, message("c", `{}`), message("a", `{"n":2}`), message("c", `{}`))
	show(b.seen(tx))
	end(tx.Commit())
	show(b.seen(nil))
	tx = b.begin()
	withdraw(tx, "a", someTask, 1) // its key stands for a submit too
	end(tx.Rollback())
	tx = b.begin()
	withdraw(tx, "a", someTask, 1)
	withdraw(tx, "a", someTask, 1)
	withdraw(tx, "a", someTask, 2)
	withdraw(tx, "a", someQueue, 2)
	withdraw(tx, "b", "task", 1)
	show(b.seen(tx))
	end(tx.Commit())
	show(b.seen(nil))
	withdraw(nil, "late", someTask, 1)
	_, err := b.Enqueue(t.Context(), tx, message("late", `{}`))
	fmt.Fprintf(&said, "after the end: %v\n", errors.Is(err, sql.ErrTxDone))
	_, err = b.Enqueue(t.Context(), nil, message("late", `{}`))
	fmt.Fprintf(&said, "without a transaction: %v\n", errors.Is(err, outbox.ErrNoTransaction))
	return said.String()
}

func TestAFakeRefusesTransactionsThatAreNotItsOwn(t *testing.T) {
	var fake, other outboxtest.Fake
	if _, err := fake.Enqueue(t.Context(), other.Begin(), message("a", `{}`)); !errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("Enqueue in another fake's transaction = %v", err)
	}
	if _, err := fake.Enqueue(t.Context(), &sql.DB{}, message("a", `{}`)); !errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("Enqueue on a pool = %v", err)
	}
	first, second := fake.Begin(), fake.Begin()
	if _, err := fake.Enqueue(t.Context(), first, message("a", `{}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := fake.Enqueue(t.Context(), second, message("a", `{}`)); !errors.Is(err, outbox.ErrRetry) {
		t.Errorf("Enqueue of a key of an open transaction = %v, want ErrRetry", err)
	}
}

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure returns what f fails its test with, or "".
func failure(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); f(r) }()
	<-done
	return r.failure
}

func TestAssertionsFailForWhatIsNotSo(t *testing.T) {
	for name, b := range map[string]bench{"fake": fakeBench(t), "real": realBench(t)} {
		tx := b.begin()
		for _, m := range []outbox.Message{message("a", `{"n":1}`), message("b", `{"secret":2}`)} {
			if _, err := b.Enqueue(t.Context(), tx, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		in := b.seen(nil)
		if e := outboxtest.RequireEnqueued(t, in, outboxtest.Match{Target: "shop", QueueID: someQueue, Handler: "h", Payload: json.RawMessage(` {"n":1.0} `)}); e.Key != "a" {
			t.Errorf("%s: found %q", name, e.Key)
		}
		outboxtest.RequireNothingEnqueued(t, in, outboxtest.Match{Key: "c"})
		for what, f := range map[string]func(testing.TB){
			"nothing there": func(t testing.TB) { outboxtest.RequireEnqueued(t, in, outboxtest.Match{Key: "c"}) },
			"two there":     func(t testing.TB) { outboxtest.RequireEnqueued(t, in, outboxtest.Match{Handler: "h"}) },
			"other payload": func(t testing.TB) {
				outboxtest.RequireEnqueued(t, in, outboxtest.Match{Key: "a", Payload: json.RawMessage(`{}`)})
			},
			"other target":  func(t testing.TB) { outboxtest.RequireEnqueued(t, in, outboxtest.Match{Key: "a", Target: "x"}) },
			"other queue":   func(t testing.TB) { outboxtest.RequireEnqueued(t, in, outboxtest.Match{Key: "a", QueueID: "x"}) },
			"other handler": func(t testing.TB) { outboxtest.RequireEnqueued(t, in, outboxtest.Match{Key: "a", Handler: "x"}) },
			"something":     func(t testing.TB) { outboxtest.RequireNothingEnqueued(t, in, outboxtest.Match{}) },
			"bad payload": func(t testing.TB) {
				outboxtest.RequireNothingEnqueued(t, in, outboxtest.Match{Payload: json.RawMessage(`{`)})
			},
		} {
			said := failure(t, f)
			if said == "" || strings.Contains(said, "secret") || what != "bad payload" && !strings.Contains(said, `key "a"`) {
				t.Errorf("%s, %s: failed with %q; want the enqueued keys and no payload", name, what, said)
			}
		}
	}
}

// Cancels and messages are told apart, in a Fake and in a table.
func TestAssertionsAboutCancelsFailForWhatIsNotSo(t *testing.T) { // OUT-022
	for name, b := range map[string]bench{"fake": fakeBench(t), "real": realBench(t)} {
		tx := b.begin()
		for _, key := range []string{"a", "b"} {
			if _, err := b.EnqueueCancel(t.Context(), tx, outbox.Cancel{
				Key: key, Target: "shop", TaskID: someTask, Request: orbit.CancelTaskRequest{ExpectedRevision: 1, Reason: "secret " + key},
			}); err != nil {
				t.Fatal(err)
			}
		}
		in := b.seen(tx)
		outboxtest.RequireNothingEnqueued(t, in, outboxtest.Match{})
		if c := outboxtest.RequireCancelEnqueued(t, in, outboxtest.CancelMatch{Target: "shop", TaskID: someTask, Reason: "secret b"}); c.Key != "b" || c.Request.ExpectedRevision != 1 {
			t.Errorf("%s: found %+v", name, c)
		}
		outboxtest.RequireNoCancelEnqueued(t, in, outboxtest.CancelMatch{Key: "c"})
		for what, f := range map[string]func(testing.TB){
			"nothing there": func(t testing.TB) { outboxtest.RequireCancelEnqueued(t, in, outboxtest.CancelMatch{Key: "c"}) },
			"two there":     func(t testing.TB) { outboxtest.RequireCancelEnqueued(t, in, outboxtest.CancelMatch{TaskID: someTask}) },
			"other target": func(t testing.TB) {
				outboxtest.RequireCancelEnqueued(t, in, outboxtest.CancelMatch{Key: "a", Target: "x"})
			},
			"other reason": func(t testing.TB) {
				outboxtest.RequireCancelEnqueued(t, in, outboxtest.CancelMatch{Key: "a", Reason: "secret b"})
			},
			"something": func(t testing.TB) { outboxtest.RequireNoCancelEnqueued(t, in, outboxtest.CancelMatch{}) },
		} {
			if said := failure(t, f); said == "" || strings.Contains(said, "secret") || !strings.Contains(said, `key "a"`) {
				t.Errorf("%s, %s: failed with %q; want the enqueued keys and no reason", name, what, said)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		outboxtest.RequireNoCancelEnqueued(t, b.seen(nil), outboxtest.CancelMatch{})
	}
}

// A service declares what it needs, and its test gives it a Fake.
type orders struct {
	box interface {
		Enqueue(context.Context, outbox.Tx, outbox.Message) (outbox.Receipt, error)
	}
}

func (o orders) place(ctx context.Context, tx outbox.Tx, id string) error {
	_, err := o.box.Enqueue(ctx, tx, message("ship-"+id, `{"order":`+id+`}`))
	return err
}

func ExampleFake() {
	var t testing.TB = example{} // the test's own
	var fake outboxtest.Fake
	tx := fake.Begin()
	if err := (orders{&fake}).place(t.Context(), tx, "17"); err != nil {
		t.Fatal(err)
	}
	outboxtest.RequireNothingEnqueued(t, &fake, outboxtest.Match{})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	m := outboxtest.RequireEnqueued(t, &fake, outboxtest.Match{Handler: "h", Payload: json.RawMessage(`{"order": 17}`)})
	fmt.Println(m.Key)
	// Output: ship-17
}

type example struct{ testing.TB }

func (example) Helper()                  {}
func (example) Context() context.Context { return context.Background() }

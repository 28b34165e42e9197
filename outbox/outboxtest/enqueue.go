package outboxtest

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

var enqueueCases = []testCase{
	{name: "RollbackLeavesNoRow", run: rollbackLeavesNoRow},
	{name: "CommitLeavesExactlyOneRow", run: commitLeavesExactlyOneRow},
	{name: "RequestIsKeptByteForByte", run: requestIsKeptByteForByte},
	{name: "SameContentIsNotInsertedTwice", run: sameContentIsNotInsertedTwice},
	{name: "OtherContentIsAConflict", run: otherContentIsAConflict},
	{name: "KeysAreBytes", run: keysAreBytes},
	{name: "TargetsAreApart", run: targetsAreApart},
	{name: "PoolsAreRefused", run: poolsAreRefused},
	{name: "RefusedMessageLeavesTheTransactionUsable", run: refusedMessageLeavesTheTransactionUsable},
	{name: "ConnectionInATransactionOfItsOwn", run: connectionInATransactionOfItsOwn},
	{name: "OldSnapshotSeesTheFirstRow", twoWriters: true, run: oldSnapshotSeesTheFirstRow},
	{name: "OneKeyFromManyTransactionsIsOneRow", run: oneKeyFromManyTransactionsIsOneRow},
	{name: "OneKeyWithRollbacksIsOneRow", run: oneKeyWithRollbacksIsOneRow},
	{name: "RepeatInAnOpenTransactionHoldsUpNoSettle", twoWriters: true, run: repeatHoldsUpNoSettle},
}

// OUT-001, OUT-004, OUT-005.
func rollbackLeavesNoRow(s *suite) {
	tx := s.begin()
	s.enqueueIn(tx, message("a"))
	if err := tx.Rollback(); err != nil {
		s.Fatal(err)
	}
	if n := s.rows(); n != 0 {
		s.Fatalf("%d rows after a rollback, want none", n)
	}
	s.enqueue(message("a")) // and the key is free
}

// OUT-001, OUT-003, OUT-005.
func commitLeavesExactlyOneRow(s *suite) {
	m := message("order:1")
	m.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m.NotAfter = time.Date(2030, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", 7200))
	before, err := s.Store.Status(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	receipt := s.enqueue(m)
	if n := s.rows(); n != 1 {
		s.Fatalf("%d rows after one commit, want 1", n)
	}
	r := s.get(receipt.Seq)
	body, submission, err := m.Request.Freeze()
	if err != nil {
		s.Fatal(err)
	}
	want := outbox.Row{
		Seq: receipt.Seq, Operation: outbox.OperationSubmit, Lane: outbox.LaneOf(target, queue), Size: len(body),
		Target: target, Key: "order:1", QueueID: queue, Handler: "stock.reserve",
		Request: body, RequestSHA256: sha256.Sum256(body), Algorithm: orbit.DigestAlgorithm, Digest: submission.Digest,
		Traceparent: m.Traceparent, CreatedAt: r.CreatedAt, NotAfter: m.NotAfter.UTC(),
		State: outbox.Pending, DueAt: r.CreatedAt, WindowFrom: r.CreatedAt, ReadAt: r.ReadAt,
	}
	if got, want := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", want); got != want {
		s.Fatalf("row is\n%s\nwant\n%s", got, want)
	}
	if receipt.Digest != submission.Digest || receipt.Existing {
		s.Fatalf("receipt is %+v", receipt)
	}
	// Whatever zone the business's connection is in, the clock is UTC.
	if r.CreatedAt.Before(before.At) || r.CreatedAt.After(r.ReadAt) {
		s.Fatalf("created at %v, want between %v and %v", r.CreatedAt, before.At, r.ReadAt)
	}
	if d := time.Since(r.CreatedAt).Abs(); d > 10*time.Minute {
		s.Fatalf("the database's clock is %v away from this machine's", d)
	}
}

// OUT-003, OUT-011.
func requestIsKeptByteForByte(s *suite) {
	payload := `{"big":9007199254740993, "exp":1.50e+2,"s":"\u00e9é\\\"'\u0000;--", "deep":[[1.0]]}`
	m := withPayload(message("a"), " \n"+payload+"\t")
	r := s.get(s.enqueue(m).Seq)
	if !bytes.Contains(r.Request, []byte(payload)) {
		s.Fatalf("request is %s, want the payload %s in it", r.Request, payload)
	}
	if !r.Intact() {
		s.Fatal("a fresh row is damaged")
	}
	again, err := orbit.ParseSubmission(r.Request)
	if err != nil || again.Digest != r.Digest {
		s.Fatalf("the server would read digest %v, %v; frozen is %v", again.Digest, err, r.Digest)
	}
}

// OUT-007.
func sameContentIsNotInsertedTwice(s *suite) {
	first := s.enqueue(withPayload(message("a"), `{"n":1,"m":2}`))
	tx := s.begin()
	again := s.enqueueIn(tx, withPayload(message("a"), `{"m":2.0, "n":10e-1}`))
	if again.Seq != first.Seq || !again.Existing || again.Digest != first.Digest {
		s.Fatalf("repeat = %+v, want the first row of %+v", again, first)
	}
	own := s.enqueueIn(tx, message("b"))
	if twice := s.enqueueIn(tx, message("b")); twice.Seq != own.Seq || !twice.Existing {
		s.Fatalf("repeat in one transaction = %+v, want row %d", twice, own.Seq)
	}
	s.placeOrder(tx, 1)
	s.commit(tx)
	s.wantOrders(1)
	if n := s.rows(); n != 2 {
		s.Fatalf("%d rows, want 2", n)
	}
}

// OUT-007.
func otherContentIsAConflict(s *suite) {
	first := s.enqueue(message("a"))
	before := s.get(first.Seq)
	tx := s.begin()
	_, err := s.Outbox.Enqueue(s.ctx, tx, withPayload(message("a"), `{"n":2}`))
	s.wantError("Enqueue with other content", err, outbox.ErrConflict)
	var conflict *outbox.ConflictError
	if !errors.As(err, &conflict) || conflict.Seq != first.Seq || conflict.Stored != first.Digest || conflict.Presented == first.Digest {
		s.Fatalf("conflict is %+v, want row %d and both digests", conflict, first.Seq)
	}
	s.placeOrder(tx, 1) // the transaction can go on
	s.commit(tx)
	s.wantOrders(1)
	after := s.get(first.Seq)
	after.ReadAt = before.ReadAt
	if got, want := fmt.Sprintf("%+v", after), fmt.Sprintf("%+v", before); got != want {
		s.Fatalf("a conflict changed the row from\n%s\nto\n%s", want, got)
	}
}

func keysAreBytes(s *suite) {
	keys := []string{"EventA", "eventa", "EVENTA", "event-a", "event_a", "eventa.", "event%41"}
	s.enqueueKeys(keys...)
	if n := s.rows(); n != int64(len(keys)) {
		s.Fatalf("%d rows for %d keys", n, len(keys))
	}
}

func targetsAreApart(s *suite) {
	a, b := message("a"), message("a")
	b.Target = "Main"
	tx := s.begin()
	if s.enqueueIn(tx, a).Seq == s.enqueueIn(tx, b).Seq {
		s.Fatal("two targets share a row")
	}
	s.commit(tx)
}

// OUT-004.
func poolsAreRefused(s *suite) {
	conn, err := s.Business.Conn(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	for _, tx := range []outbox.Tx{nil, s.Business, conn, (*sql.Tx)(nil)} {
		_, err := s.Outbox.Enqueue(s.ctx, tx, message("a"))
		s.wantError(fmt.Sprintf("Enqueue on a %T", tx), err, outbox.ErrNoTransaction)
	}
	if n := s.rows(); n != 0 {
		s.Fatalf("%d rows, want none", n)
	}
}

func refusedMessageLeavesTheTransactionUsable(s *suite) {
	tx := s.begin()
	_, err := s.Outbox.Enqueue(s.ctx, tx, withPayload(message("a"), `{"n":1,"n":2}`))
	var invalid *orbit.InvalidArgumentError
	if !errors.As(err, &invalid) {
		s.Fatalf("Enqueue of a payload with a member twice = %v, want an InvalidArgumentError", err)
	}
	s.placeOrder(tx, 1)
	s.enqueueIn(tx, message("a"))
	s.commit(tx)
	s.wantOrders(1)
}

func connectionInATransactionOfItsOwn(s *suite) {
	conn, err := s.Business.Conn(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		if _, err := conn.ExecContext(s.ctx, "BEGIN"); err != nil {
			s.Fatal(err)
		}
		first := s.enqueueIn(outbox.InTransaction(conn), message("a"))
		if again := s.enqueueIn(outbox.InTransaction(conn), message("a")); again.Seq != first.Seq {
			s.Fatalf("repeat = %+v, want row %d", again, first.Seq)
		}
		if _, err := conn.ExecContext(s.ctx, end); err != nil {
			s.Fatal(err)
		}
		want := map[string]int64{"ROLLBACK": 0, "COMMIT": 1}[end]
		if n := s.rows(); n != want {
			s.Fatalf("%d rows after %s, want %d", n, end, want)
		}
	}
}

// oldSnapshotSeesTheFirstRow is the trap of REPEATABLE READ: what the transaction has
// read fixes what it sees, yet the key is taken.
func oldSnapshotSeesTheFirstRow(s *suite) {
	old := s.begin()
	var n int
	if err := old.QueryRowContext(s.ctx, "SELECT COUNT(*) FROM outboxtest_order").Scan(&n); err != nil {
		s.Fatal(err)
	}
	first := s.enqueue(message("a"))
	again := s.enqueueIn(old, message("a"))
	if again.Seq != first.Seq || !again.Existing {
		s.Fatalf("repeat = %+v, want row %d", again, first.Seq)
	}
	_, err := s.Outbox.Enqueue(s.ctx, old, withPayload(message("a"), `{"n":2}`))
	s.wantError("Enqueue with other content", err, outbox.ErrConflict)
	s.placeOrder(old, 1)
	s.commit(old)
	s.wantOrders(1)
}

func oneKeyFromManyTransactionsIsOneRow(s *suite) {
	s.race("commits", func(int) bool { return true })
}

// oneKeyWithRollbacksIsOneRow is the case in which engines let waiters deadlock: each
// gets a shared lock when the first inserter rolls back.
func oneKeyWithRollbacksIsOneRow(s *suite) {
	s.race("every second transaction rolls back once", func(i int) bool { return i%2 == 0 })
}

// race enqueues one key from many transactions at once, round after round. Transactions
// for which keep is false roll back the first time.
func (s *suite) race(what string, keep func(i int) bool) {
	const writers, rounds = 8, 5
	var retries atomic.Int64
	for round := range rounds {
		m := message(fmt.Sprintf("race:%d", round))
		seqs := make([]int64, writers)
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range writers {
			group.Go(func() {
				<-start
				seqs[i] = s.raceOne(m, keep(i), &retries)
			})
		}
		close(start)
		group.Wait()
		for _, seq := range seqs {
			if seq == 0 || seq != seqs[0] {
				s.Fatalf("receipts name rows %v, want one and the same", seqs)
			}
		}
	}
	if n := s.rows(); n != rounds {
		s.Fatalf("%d rows for %d keys", n, rounds)
	}
	s.Logf("%s: %d transactions, %d run again after ErrRetry", what, writers*rounds, retries.Load())
}

// raceOne runs a business transaction until it commits, and returns the row that its
// receipt names.
func (s *suite) raceOne(m outbox.Message, keep bool, retries *atomic.Int64) int64 {
	for range 200 {
		tx, err := s.beginInRace()
		if err != nil {
			s.Errorf("begin: %v", err)
			return 0
		}
		r, err := s.Outbox.Enqueue(s.ctx, tx, m)
		if errors.Is(err, outbox.ErrRetry) {
			retries.Add(1)
			tx.Rollback()
			continue
		}
		if err == nil && keep {
			err = tx.Commit()
		}
		tx.Rollback()
		switch {
		case err != nil:
			s.Errorf("Enqueue and commit: %v", err)
			return 0
		case keep:
			return r.Seq
		}
		keep = true
	}
	s.Error("200 tries were not enough")
	return 0
}

// repeatHoldsUpNoSettle: a business transaction that stays open after a repeat must not
// make the relay wait that delivers the row.
func repeatHoldsUpNoSettle(s *suite) {
	if s.TxOptions != nil && s.TxOptions.Isolation == sql.LevelSerializable {
		s.Skip("a SERIALIZABLE transaction locks all that it reads")
	}
	seq := s.enqueue(message("a")).Seq
	l := s.lead()
	open := s.begin()
	s.enqueueIn(open, message("a"))
	_, err := s.Outbox.Enqueue(s.ctx, open, withPayload(message("a"), `{"n":2}`))
	s.wantError("Enqueue with other content", err, outbox.ErrConflict)
	// If this waits for the transaction, it waits for ever: nothing ends it.
	n, err := s.Store.Deliver(s.ctx, l, deliveries([]int64{seq}))
	s.want("Deliver", 1, n, err)
	s.commit(open)
}

func (s *suite) placeOrder(tx *sql.Tx, id int) {
	s.Helper()
	if _, err := tx.ExecContext(s.ctx, "INSERT INTO outboxtest_order (id) VALUES (?)", id); err != nil {
		s.Fatalf("business statement after Enqueue: %v", err)
	}
}

func (s *suite) wantOrders(want int) {
	s.Helper()
	var n int
	if err := s.Business.QueryRowContext(s.ctx, "SELECT COUNT(*) FROM outboxtest_order").Scan(&n); err != nil || n != want {
		s.Fatalf("%d orders, %v; want %d", n, err, want)
	}
}

package outboxtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

var batchCases = []testCase{
	{name: "BatchIsAllOrNothing", run: batchIsAllOrNothing},
	{name: "BatchFindsWhatIsThere", run: batchFindsWhatIsThere},
	{name: "BatchHasALimit", run: batchHasALimit},
	{name: "SavepointsTakeTheirRowsBack", run: savepointsTakeTheirRowsBack},
}

func (s *suite) batch(tx outbox.Tx, messages ...outbox.Message) []outbox.Receipt {
	s.Helper()
	receipts, err := s.Outbox.EnqueueBatch(s.ctx, tx, messages)
	if err != nil || len(receipts) != len(messages) {
		s.Fatalf("EnqueueBatch = %d receipts, %v; want %d", len(receipts), err, len(messages))
	}
	for i, r := range receipts {
		if row := s.inTx(tx, messages[i]); row.Seq != r.Seq || row.Digest != r.Digest {
			s.Fatalf("receipt %d is %+v, the row is %d %v", i, r, row.Seq, row.Digest)
		}
	}
	return receipts
}

// inTx reads the row of m as tx sees it.
func (s *suite) inTx(tx outbox.Tx, m outbox.Message) Enqueued {
	s.Helper()
	return RequireEnqueued(s, In(tx.(Querier)), Match{Key: m.Key, Target: m.Target})
}

// OUT-001, OUT-005, OUT-006, OUT-007: all of a batch or nothing, and the transaction goes on.
func batchIsAllOrNothing(s *suite) {
	tx := s.begin()
	s.batch(tx, message("a"), message("b"))
	if err := tx.Rollback(); err != nil {
		s.Fatal(err)
	}
	if n := s.rows(); n != 0 {
		s.Fatalf("%d rows after a rollback, want none", n)
	}
	s.enqueueKeys("taken")

	tx = s.begin()
	bad := withPayload(message("d"), `{"n":1,"n":2}`)
	_, err := s.Outbox.EnqueueBatch(s.ctx, tx, []outbox.Message{message("c"), bad})
	var invalid *orbit.InvalidArgumentError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "message 1") {
		s.Fatalf("EnqueueBatch with a bad message = %v, want an InvalidArgumentError that names message 1", err)
	}
	other := []outbox.Message{withPayload(message("taken"), `{"n":2}`)}
	for i := range 16 { // whatever the order in which they are inserted, some come before it
		other = append(other, message(fmt.Sprintf("c:%d", i)))
	}
	_, err = s.Outbox.EnqueueBatch(s.ctx, tx, other)
	s.wantError("EnqueueBatch with a key that stands for other content", err, outbox.ErrConflict)
	_, err = s.Outbox.EnqueueBatch(s.ctx, tx, []outbox.Message{message("c"), withPayload(message("c"), `{"n":2}`)})
	s.wantError("EnqueueBatch with two contents for one key", err, outbox.ErrConflict)
	s.placeOrder(tx, 1)
	s.commit(tx)
	s.wantOrders(1)
	if n := s.rows(); n != 1 {
		s.Fatalf("%d rows after refused batches, want the one that was there", n)
	}
}

// OUT-003, OUT-007, OUT-009: receipts are in the order of messages, and a repeat is found.
func batchFindsWhatIsThere(s *suite) {
	elsewhere := message("a")
	elsewhere.Target = "elsewhere"
	tx := s.begin()
	first := s.batch(tx, message("c"), message("a"), elsewhere, message("c"))
	for i, existing := range []bool{false, false, false, true} {
		if first[i].Existing != existing {
			s.Fatalf("receipts are %+v, want only the last to be of what is there", first)
		}
	}
	if first[0].Seq != first[3].Seq || first[1].Seq == first[2].Seq {
		s.Fatalf("receipts are %+v, want one row for the twins and two for two targets", first)
	}
	s.commit(tx)

	tx = s.begin()
	again := s.batch(tx, message("b"), message("a"), message("c"))
	if again[0].Existing || !again[1].Existing || !again[2].Existing || again[1].Seq != first[1].Seq || again[2].Seq != first[0].Seq {
		s.Fatalf("receipts are %+v, want the first rows of %+v", again, first)
	}
	if none := s.batch(tx); none != nil {
		s.Fatalf("receipts of no message are %+v", none)
	}
	s.commit(tx)
	if n := s.rows(); n != 4 {
		s.Fatalf("%d rows, want 4", n)
	}
}

func batchHasALimit(s *suite) {
	var many []outbox.Message
	for i := range outbox.MaxBatch {
		many = append(many, message(fmt.Sprintf("k:%d", i)))
	}
	large := withPayload(message("a"), `"`+strings.Repeat("x", orbit.MaxPayloadBytes-2)+`"`)
	var heavy []outbox.Message
	for i := range outbox.MaxBatchBytes / orbit.MaxPayloadBytes {
		large.Key = fmt.Sprintf("large:%d", i)
		heavy = append(heavy, large)
	}
	tx := s.begin()
	for _, tooMany := range [][]outbox.Message{append(many[:len(many):len(many)], message("more")), heavy} {
		_, err := s.Outbox.EnqueueBatch(s.ctx, tx, tooMany)
		var invalid *orbit.InvalidArgumentError
		if !errors.As(err, &invalid) || invalid.Field != "messages" {
			s.Fatalf("EnqueueBatch of %d messages = %v, want an InvalidArgumentError", len(tooMany), err)
		}
	}
	s.batch(tx, heavy[1:]...) // what fits, fits into a packet too
	s.commit(tx)
	tx = s.begin()
	if receipts, err := s.Outbox.EnqueueBatch(s.ctx, tx, many); err != nil || len(receipts) != outbox.MaxBatch {
		s.Fatalf("EnqueueBatch of the most messages = %d receipts, %v", len(receipts), err)
	}
	s.commit(tx)
	if n := s.rows(); n != int64(len(many)+len(heavy)-1) {
		s.Fatalf("%d rows, want %d", n, len(many)+len(heavy)-1)
	}
}

// OUT-004, OUT-005: a savepoint that is rolled back takes its rows with it and no others, also
// those of a batch that uses a savepoint of its own.
func savepointsTakeTheirRowsBack(s *suite) {
	s.enqueueKeys("before")
	tx := s.begin()
	do := func(statement string) {
		s.Helper()
		if _, err := tx.ExecContext(s.ctx, statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
	s.enqueueIn(tx, message("kept"))
	do("SAVEPOINT step")
	s.enqueueIn(tx, message("undone"))
	s.batch(tx, message("undone-too"), message("before"))
	_, err := s.Outbox.Enqueue(s.ctx, tx, withPayload(message("before"), `{"n":2}`))
	s.wantError("Enqueue with other content", err, outbox.ErrConflict)
	do("ROLLBACK TO SAVEPOINT step")
	if r := s.enqueueIn(tx, message("undone")); r.Existing {
		s.Fatalf("receipt is %+v: the row had been taken back", r)
	}
	do("SAVEPOINT step")
	if r := s.enqueueIn(tx, message("kept")); !r.Existing {
		s.Fatalf("receipt is %+v, want the row from before the savepoint", r)
	}
	do("RELEASE SAVEPOINT step")
	s.commit(tx)
	all := In(s.Business)
	for _, key := range []string{"before", "kept", "undone"} {
		RequireEnqueued(s, all, Match{Key: key})
	}
	RequireNothingEnqueued(s, all, Match{Key: "undone-too"})
}

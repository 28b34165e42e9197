package outboxtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitkit/orbit/outbox"
)

var dueCases = []testCase{
	{name: "LanesListWhatWaits", run: lanesListWhatWaits},
	{name: "NotBeforeDelays", run: notBeforeDelays},
	{name: "CursorReadsEachDueRowOnce", run: cursorReadsEachDueRowOnce},
	{name: "FirstReadFindsWhatBecameDueBehind", run: firstReadFindsWhatBecameDueBehind},
	{name: "LateCommitIsFound", twoWriters: true, run: lateCommitIsFound},
	{name: "NoRowOfManyWritersIsLost", run: noRowOfManyWritersIsLost},
	{name: "FetchReturnsPendingRowsOnly", run: fetchReturnsPendingRowsOnly},
	{name: "ReadyRowsAreWhatFetchReads", run: readyRowsAreWhatFetchReads},
	{name: "DamageIsSeen", run: damageIsSeen},
	{name: "ShardsListWhatOccurs", run: shardsListWhatOccurs},
}

func lanesListWhatWaits(s *suite) {
	if lanes := s.lanes(); len(lanes) != 0 {
		s.Fatalf("lanes of an empty outbox: %v", lanes)
	}
	a, b := message("a"), message("b")
	b.Request.QueueID = otherQueue
	tx := s.begin()
	seq := s.enqueueIn(tx, a).Seq
	s.enqueueIn(tx, b)
	s.commit(tx)
	lanes := s.lanes()
	if len(lanes) != 2 {
		s.Fatalf("lanes are %v, want two", lanes)
	}
	for _, l := range lanes {
		if l.Target != target || l.ID != outbox.LaneOf(target, l.QueueID) || l.Wait > 0 {
			s.Fatalf("lane is %+v", l)
		}
	}
	n, err := s.Store.Deliver(s.ctx, s.lead(), deliveries([]int64{seq}))
	s.want("Deliver", 1, n, err)
	if lanes := s.lanes(); len(lanes) != 1 || lanes[0].QueueID != otherQueue {
		s.Fatalf("lanes are %v, want that of the other queue", lanes)
	}
}

func notBeforeDelays(s *suite) {
	later := message("later")
	later.NotBefore = time.Now().Add(time.Hour)
	past := message("past")
	past.NotBefore = time.Now().Add(-time.Hour)
	tx := s.begin()
	laterSeq := s.enqueueIn(tx, later).Seq
	pastSeq := s.enqueueIn(tx, past).Seq
	s.commit(tx)
	if got := s.dueSeqs(outbox.Cursor{}, 10); !slices.Equal(got, []int64{pastSeq}) {
		s.Fatalf("due rows are %v, want %d", got, pastSeq)
	}
	if r := s.get(pastSeq); !r.DueAt.Equal(r.CreatedAt) {
		s.Fatalf("row is due at %v, want when it was made, %v", r.DueAt, r.CreatedAt)
	}
	if r := s.get(laterSeq); r.DueAt.Before(later.NotBefore) || !r.DueAt.Equal(r.NotBefore) {
		s.Fatalf("row is due at %v with not-before %v, want %v", r.DueAt, r.NotBefore, later.NotBefore)
	}
	n, err := s.Store.Deliver(s.ctx, s.lead(), deliveries([]int64{pastSeq}))
	s.want("Deliver", 1, n, err)
	if lanes := s.lanes(); len(lanes) != 1 || lanes[0].Wait < 55*time.Minute || lanes[0].Wait > 65*time.Minute {
		s.Fatalf("lanes are %+v, want one to wait for an hour", lanes)
	}
}

func cursorReadsEachDueRowOnce(s *suite) {
	const rows = 60
	var keys []string
	for i := range rows {
		keys = append(keys, fmt.Sprintf("k:%d", i))
	}
	seqs := s.enqueueKeys(keys...)
	// Half of them become due at one and the same moment.
	n, err := s.Store.Postpone(s.ctx, s.lead(), seqs[:rows/2], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", rows/2, n, err)
	s.eventually("all rows are due", func() bool { return len(s.dueSeqs(outbox.Cursor{}, rows)) == rows })
	seen := map[int64]bool{}
	var at outbox.Cursor
	var last time.Time
	for {
		page := s.due(at, 7)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			if seen[d.Seq] || d.DueAt().Before(last) || d.Size == 0 {
				s.Fatalf("row %d at %v of size %d: read before %v, last was %v", d.Seq, d.DueAt(), d.Size, seen[d.Seq], last)
			}
			seen[d.Seq], last, at = true, d.DueAt(), d.Cursor()
		}
	}
	if len(seen) != rows {
		s.Fatalf("%d rows read, want %d", len(seen), rows)
	}
}

func firstReadFindsWhatBecameDueBehind(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c")
	if due := s.due(outbox.Cursor{}, 10); len(due) != 3 {
		s.Fatalf("due rows are %v, want %v", due, seqs)
	}
	n, err := s.Store.Postpone(s.ctx, s.lead(), seqs[:1], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)
	s.eventually("the row with the lowest number is due again", func() bool {
		r := s.get(seqs[0])
		return !r.DueAt.After(r.ReadAt)
	})
	if due := s.dueSeqs(outbox.Cursor{}, 10); !slices.Contains(due, seqs[0]) {
		s.Fatalf("due rows are %v: row %d, due again, is not found", due, seqs[0])
	}
}

func lateCommitIsFound(s *suite) {
	late := s.begin()
	low := s.enqueueIn(late, message("late")).Seq
	high := s.enqueue(message("early")).Seq
	if low > high {
		s.Fatalf("rows %d and %d: the case needs the late one to be lower", low, high)
	}
	page := s.due(outbox.Cursor{}, 10)
	if len(page) != 1 || page[0].Seq != high {
		s.Fatalf("due rows are %v, want %d", page, high)
	}
	s.commit(late)
	if got := s.dueSeqs(page[0].Cursor(), 10); len(got) != 0 {
		s.Logf("row %v is found by cursor too", got)
	}
	if got := s.dueSeqs(outbox.Cursor{}, 10); !slices.Contains(got, low) {
		s.Fatalf("due rows are %v: the late commit of %d is lost", got, low)
	}
}

// noRowOfManyWritersIsLost reads as a relay does while transactions of all lengths
// commit and roll back: by cursor, and from the beginning again at the end.
func noRowOfManyWritersIsLost(s *suite) {
	const writers, each = 4, 40
	var committed sync.Map
	done := make(chan struct{})
	s.Cleanup(func() { <-done }) // if this fails, the writers end with it, and not after it
	go func() {
		defer close(done)
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() { s.write(w, each, &committed) })
		}
		group.Wait()
	}()
	l := s.lead()
	delivered := map[int64]bool{}
	var at outbox.Cursor
	for finished := false; ; {
		page := s.due(at, 10)
		var ds []outbox.Delivery
		for _, d := range page {
			at = d.Cursor()
			if !delivered[d.Seq] {
				delivered[d.Seq] = true
				ds = append(ds, delivery(d.Seq))
			}
		}
		n, err := s.Store.Deliver(s.ctx, l, ds)
		for errors.Is(err, outbox.ErrRetry) {
			n, err = s.Store.Deliver(s.ctx, l, ds)
		}
		s.want("Deliver", len(ds), n, err)
		if len(page) > 0 {
			continue
		}
		if finished && at == (outbox.Cursor{}) {
			break
		}
		at = outbox.Cursor{}
		select {
		case <-done:
			finished = true
		case <-time.After(time.Millisecond): // leave the writers some of the machine
		}
	}
	count := 0
	committed.Range(func(seq, _ any) bool {
		if count++; !delivered[seq.(int64)] {
			s.Errorf("row %d was committed and never read", seq)
		}
		return true
	})
	if count != len(delivered) {
		s.Errorf("%d rows committed, %d read", count, len(delivered))
	}
}

func (s *suite) write(w, rows int, committed *sync.Map) {
	for i := 0; i < rows; {
		tx, err := s.beginInRace()
		if err != nil {
			s.Errorf("begin: %v", err)
			return
		}
		r, err := s.Outbox.Enqueue(s.ctx, tx, message(fmt.Sprintf("w:%d:%d", w, i)))
		if err != nil {
			s.Errorf("Enqueue: %v", err)
			tx.Rollback()
			return
		}
		time.Sleep(rand.N(4 * time.Millisecond)) // the business goes on
		if rand.N(5) == 0 {
			tx.Rollback()
			continue
		}
		if err := tx.Commit(); err != nil {
			s.Errorf("commit: %v", err)
			return
		}
		committed.Store(r.Seq, true)
		i++
	}
}

func fetchReturnsPendingRowsOnly(s *suite) {
	seqs := s.enqueueKeys("a", "b", "c", "d")
	l := s.lead()
	n, err := s.Store.Deliver(s.ctx, l, deliveries(seqs[:1]))
	s.want("Deliver", 1, n, err)
	n, err = s.Store.Block(s.ctx, l, seqs[1:2], refusal(outbox.OutcomeNeedsPerson))
	s.want("Block", 1, n, err)
	rows, err := s.Store.Fetch(s.ctx, []int64{seqs[3], seqs[2], seqs[1], seqs[0], seqs[3] + 1000})
	if err != nil || len(rows) != 2 || rows[0].Seq != seqs[2] || rows[1].Seq != seqs[3] {
		s.Fatalf("Fetch = %v, %v; want rows %v in order", rows, err, seqs[2:])
	}
	for _, r := range rows {
		if !r.Intact() || r.Size != len(r.Request) {
			s.Fatalf("row %d has %d bytes, size %d", r.Seq, len(r.Request), r.Size)
		}
	}
	if rows, err := s.Store.Fetch(s.ctx, nil); err != nil || len(rows) != 0 {
		s.Fatalf("Fetch of nothing = %v, %v", rows, err)
	}
	_, err = s.Store.Get(s.ctx, seqs[3]+1000)
	s.wantError("Get of a missing row", err, outbox.ErrNotFound)
}

// What is read together with the index is what the row has, as far as a send needs it.
func readyRowsAreWhatFetchReads(s *suite) {
	large, bounded := message("large"), message("bounded")
	large.Request.Payload = []byte(`"` + strings.Repeat("x", 5000) + `"`)
	bounded.NotBefore, bounded.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	bounded.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	other := message("other")
	other.Request.QueueID = otherQueue
	var seqs []int64
	tx := s.begin()
	for _, m := range []outbox.Message{message("a"), large, bounded, other, message("cancel")} {
		seqs = append(seqs, s.enqueueIn(tx, m).Seq)
	}
	s.commit(tx)
	const task = "0123456789abcdef"
	identity := sha256.Sum256([]byte(string(rune(len(target))) + target + "\x02\x10" + task + "cancel"))
	s.exec("UPDATE orbit_outbox SET identity = ?, operation = 2, operation_task_id = ?, lane = ?, queue_id = NULL, handler = ? WHERE seq = ?",
		identity[:], []byte(task), outbox.LaneOf(target, ""), []byte{}, seqs[4])
	n, err := s.Store.Postpone(s.ctx, s.lead(), seqs[:1], 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	s.want("Postpone", 1, n, err)

	var lanes []int64
	for _, l := range s.lanes() {
		lanes = append(lanes, l.ID)
	}
	ready, err := s.Store.ReadFirst(s.ctx, 0, lanes, 10, 2000)
	if err != nil || len(ready) != len(seqs) {
		s.Fatalf("ReadFirst = %d rows, %v; want %d", len(ready), err, len(seqs))
	}
	for i, d := range ready {
		want := s.get(d.Seq)
		if d.Size != want.Size || d.Lane != want.Lane || !d.DueAt().Equal(want.DueAt) || i > 0 && d.Lane < ready[i-1].Lane {
			s.Fatalf("row %d is read as %+v, and has %+v", d.Seq, d, want)
		}
		if d.Seq == seqs[1] {
			if d.Row != nil {
				s.Fatalf("a row of %d bytes was read", d.Size)
			}
			continue
		}
		want.Last = outbox.Answer{Unknown: want.Last.Unknown}
		want.ReadAt = d.Row.ReadAt
		if !reflect.DeepEqual(*d.Row, want) || d.Row.ReadAt.Before(d.Row.CreatedAt) || !d.Row.Intact() {
			s.Fatalf("row is read as\n%+v, and is\n%+v", *d.Row, want)
		}
	}
	for _, d := range s.due(outbox.Cursor{}, 10) {
		after, err := s.Store.ReadReady(s.ctx, 0, outbox.LaneOf(target, queue), d.Cursor(), 10, 0)
		if rest := s.due(d.Cursor(), 10); err != nil || len(after) != len(rest) {
			s.Fatalf("ReadReady after row %d = %d rows, %v; want %d", d.Seq, len(after), err, len(rest))
		}
	}
	if first, err := s.Store.ReadFirst(s.ctx, 0, lanes, 2, 2000); err != nil || len(first) != 2 || first[1].Seq != ready[1].Seq {
		s.Fatalf("ReadFirst with a limit of 2 = %v, %v", first, err)
	}
}

func damageIsSeen(s *suite) {
	seq := s.enqueue(message("a")).Seq
	r := s.get(seq)
	damaged := append([]byte(nil), r.Request...)
	damaged[len(damaged)/2] ^= 1
	s.exec("UPDATE orbit_outbox SET request = ? WHERE seq = ?", damaged, seq)
	rows, err := s.Store.Fetch(s.ctx, []int64{seq})
	if err != nil || len(rows) != 1 || rows[0].Intact() {
		s.Fatalf("Fetch of a damaged row = %v, %v; want one that is not intact", rows, err)
	}
}

func shardsListWhatOccurs(s *suite) {
	if shards := s.shards(); len(shards) != 0 {
		s.Fatalf("shards of an empty outbox: %v", shards)
	}
	seqs := s.enqueueKeys("a", "b", "c")
	s.exec("UPDATE orbit_outbox SET shard = 3 WHERE seq = ?", seqs[1])
	s.exec("UPDATE orbit_outbox SET shard = 7 WHERE seq = ?", seqs[2])
	if _, err := s.Store.Lead(s.ctx, 5, "first", time.Hour); err != nil {
		s.Fatal(err)
	}
	if shards := s.shards(); !slices.Equal(shards, []int{0, 3, 5, 7}) {
		s.Fatalf("shards are %v, want those with rows and the led one", shards)
	}
	s.exec("UPDATE orbit_outbox SET state = 2, due_at = 0 WHERE seq = ?", seqs[0])
	if shards := s.shards(); !slices.Equal(shards, []int{3, 5, 7}) {
		s.Fatalf("shards are %v, want the one with nothing left to be gone", shards)
	}
}

func (s *suite) shards() []int {
	s.Helper()
	shards, err := s.Store.Shards(s.ctx)
	if err != nil {
		s.Fatalf("Shards: %v", err)
	}
	return shards
}

func (s *suite) lanes() []outbox.Lane {
	s.Helper()
	lanes, err := s.Store.Lanes(s.ctx, 0)
	if err != nil {
		s.Fatalf("Lanes: %v", err)
	}
	return lanes
}

// due reads the lane that every message of the suite is in by default.
func (s *suite) due(after outbox.Cursor, limit int) []outbox.Due {
	s.Helper()
	page, err := s.Store.ReadDue(s.ctx, 0, outbox.LaneOf(target, queue), after, limit)
	if err != nil {
		s.Fatalf("ReadDue: %v", err)
	}
	return page
}

func (s *suite) dueSeqs(after outbox.Cursor, limit int) (seqs []int64) {
	s.Helper()
	for _, d := range s.due(after, limit) {
		seqs = append(seqs, d.Seq)
	}
	return seqs
}

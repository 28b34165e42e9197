package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/relay"
)

// Ways to damage a row so that it cannot be what was frozen, and what is said of it.
var damages = []struct{ set, says string }{
	{"size = -1", "size is out of range"},
	{"size = 1099511627776", "size is out of range"},
	{"size = size + 1", "SHA-256"},
	{"size = NULL", "size is NULL"},
	{"size = 'text'", "size is no number"},
	{"request_sha256 = zeroblob(31)", "request_sha256 has 31 bytes"},
	{"request_sha256 = NULL", "request_sha256 is NULL"},
	{"request_sha256 = 'text'", "request_sha256 has no bytes"},
	{"request_sha256 = 7", "request_sha256 has no bytes"},
	{"content_digest = zeroblob(33)", "content_digest has 33 bytes"},
	{"content_digest = NULL", "content_digest is NULL"},
	{"identity = randomblob(31)", "identity has 31 bytes"},
	{"identity = randomblob(32)", "identity is not that of"},
	{"identity = NULL", "identity is NULL"},
	{"operation = 2", "identity is not that of"},
	{"operation = 300", "operation is out of range"},
	{"operation = NULL", "operation is NULL"},
	{"operation_task_id = zeroblob(15)", "operation_task_id has 15 bytes"},
	{"operation_task_id = NULL", "operation_task_id is NULL"},
	{"operation_task_id = 'text'", "operation_task_id has no bytes"},
	{"lane = lane + 1", "lane is not that of"},
	{"target = CAST('elsewhere' AS BLOB)", ""}, // by its identity, or by its lane
	{"target = NULL", "target is NULL"},
	{"target = 5", "target is no text"},
	{"idempotency_key = CAST('another' AS BLOB)", "identity is not that of"},
	{"idempotency_key = NULL", "idempotency_key is NULL"},
	{"queue_id = zeroblob(15)", "queue_id has 15 bytes"},
	{"queue_id = randomblob(16)", "lane is not that of"},
	{"queue_id = NULL", "lane is not that of"},
	{"queue_id = 'text'", "queue_id has no bytes"},
	{"handler = NULL", "handler is NULL"},
	{"handler = 1.5", "handler is no text"},
	{"request = NULL", "request is NULL"},
	{"request = 9", "request has no bytes"},
	{"request = 'text'", "SHA-256"},
	{"content_algorithm = NULL", "content_algorithm is NULL"},
	{"traceparent = NULL", "traceparent is NULL"},
	{"created_at = NULL", "created_at is NULL"},
	{"created_at = 9223372036854775807", "created_at is out of range"},
	{"not_before = 'text'", "not_before is no number"},
	{"not_after = 1.5", "not_after is no number"},
	{"window_from = 'text'", "window_from is no number"},
	{"attempts = -1, outcome_unknown = 1", "attempts is out of range"},
	{"attempts = NULL", "attempts is NULL"},
	{"outcome_unknown = 2", "outcome_unknown is out of range"},
	{"outcome_unknown = NULL", "outcome_unknown is NULL"},
	{"late_allowed = 2", "late_allowed is out of range"},
	{"late_allowed = 'text'", "late_allowed is no number"},
}

// What a send does not rest on keeps no row from being sent.
var flaws = []string{
	"outcome = 300", "outcome = NULL", "answer_status = -1", "answer_status = 'text'", "answer_code = NULL", "answer_message = 7",
	"answer_request_id = zeroblob(3)", "answer_request_id = NULL", "task_id = zeroblob(15)", "task_id = 'text'", "deduplicated = 2",
	"accepted_at = NULL", "settled_at = 'text'",
}

// OUT-008: a damaged row is BLOCKED and never sent, whatever of it is damaged and wherever in
// its lane it is; the others are sent, and operators can look at all of them meanwhile.
func TestADamagedRowIsBlockedAndHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *timelapse) {
		b.loosen()
		says, good := map[int64]string{}, map[int64]bool{}
		for i, d := range damages {
			key := func(k string) string { return fmt.Sprintf("%s-%d", k, i) }
			seqs := b.inQueue(i, key("bad-first"), key("good"), key("bad"), key("good-last"))
			b.exec("UPDATE orbit_outbox SET "+d.set+" WHERE seq IN (?, ?)", seqs[0], seqs[2])
			says[seqs[0]], says[seqs[2]] = d.says, d.says
			good[seqs[1]], good[seqs[3]] = true, true
		}
		for i, set := range flaws {
			seq := b.inQueue(len(damages), fmt.Sprintf("flaw-%d", i))[0]
			b.exec("UPDATE orbit_outbox SET "+set+" WHERE seq = ?", seq)
			good[seq] = true
		}
		never := b.inQueue(len(damages)+1, "never-due", "behind-it")
		b.exec("UPDATE orbit_outbox SET due_at = NULL WHERE seq = ?", never[0])
		says[never[0]], good[never[1]] = "due_at is NULL", true
		// The index of due rows does not have these.
		lost := b.inQueue(len(damages)+2, "no-state", "no-shard", "far-shard", "strange-shard", "no-lane", "strange-lane")
		for i, set := range []string{"state = 300, due_at = 0", "shard = -1", "shard = 5000", "shard = 'text'", "lane = NULL", "lane = 'text'"} {
			b.exec("UPDATE orbit_outbox SET "+set+" WHERE seq = ?", lost[i])
		}

		named := b.faults()
		for _, seq := range append(lost, keysOf(says)...) {
			if !strings.Contains(named[seq], says[seq]) {
				t.Errorf("row %d: Verify says %q, want %q", seq, named[seq], says[seq])
			}
		}
		b.look(append(lost, keysOf(says)...))

		_, stop := b.start(relay.Config{Retain: -1})
		defer stop()
		for seq := range good {
			b.untilState(seq, outbox.Delivered)
		}
		for seq, why := range says {
			r := b.untilState(seq, outbox.Blocked)
			if r.Last.Outcome != outbox.OutcomeDamaged || !strings.Contains(r.Last.Message, why) {
				t.Errorf("row %d is blocked with %v %q, want %q", seq, r.Last.Outcome, r.Last.Message, why)
			}
			if marked := strings.Contains(why, "outcome_unknown") || strings.Contains(why, "attempts is out"); r.Last.Unknown != marked {
				t.Errorf("row %d (%s): mark of an unknown send is %t", seq, why, r.Last.Unknown)
			}
		}
		b.fake.mu.Lock()
		n := len(b.fake.sends)
		b.fake.mu.Unlock()
		if n != len(good) {
			t.Errorf("%d sends of %d sound rows", n, len(good))
		}
		b.look(append(lost, keysOf(says)...))
		if p, err := b.store.Purge(t.Context(), 0, 0, outbox.MaxRows); err != nil || p.Rows != len(good) {
			t.Errorf("Purge beside damaged rows = %+v, %v; want %d rows", p, err, len(good))
		}
	})
}

// Rows behind damaged ones do not wait for a poll, not even if those cannot be settled for a
// while.
func TestRowsBehindDamagedOnesWaitForNoPoll(t *testing.T) { // OUT-008
	inBubble(t, func(t *testing.T, b *timelapse) {
		var down atomic.Bool
		b.tap.fails = func(query string) bool { return down.Load() && strings.Contains(query, "orbit_outbox_answer") }
		_, stop := b.start(relay.Config{Poll: time.Hour, Lease: 24 * time.Hour, Hook: &b.hook})
		defer stop()
		enqueue := func(n int) (good int64) {
			seqs := b.inQueue(n, fmt.Sprintf("a-%d", n), fmt.Sprintf("b-%d", n), fmt.Sprintf("c-%d", n), fmt.Sprintf("good-%d", n))
			b.exec("UPDATE orbit_outbox SET queue_id = zeroblob(15) WHERE seq IN (?, ?, ?)", seqs[0], seqs[1], seqs[2])
			b.hook.Notify()
			return seqs[3]
		}
		time.Sleep(10 * time.Minute)
		began := time.Now()
		b.untilDelivered(enqueue(1))
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("a row behind three damaged ones waited for %v", took)
		}
		down.Store(true)
		good := enqueue(2)
		time.Sleep(10 * time.Minute)
		down.Store(false)
		began = time.Now()
		b.untilDelivered(good)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a row behind damaged ones waited for %v after they could be settled", took)
		}
	})
}

// A drain does not end while rows are hidden behind damaged ones.
func TestADrainSendsWhatIsBehindDamagedRows(t *testing.T) { // OUT-008, REL-023
	onSQLite(t, func(t *testing.T, w *world) {
		seqs := w.enqueueKeys("first", "second", "third", "good")
		for _, seq := range seqs[:3] {
			w.exec("UPDATE orbit_outbox SET queue_id = zeroblob(15) WHERE seq = ?", seq)
		}
		if left, err := w.relay(quick()).Drain(t.Context()); err != nil || len(left) != 0 {
			t.Errorf("Drain = %v, %v", left, err)
		}
		for i, seq := range seqs {
			if r, want := w.row(seq), []outbox.State{outbox.Blocked, outbox.Delivered}[i/3]; r.State != want {
				t.Errorf("row %d is %v after a drain, want %v", seq, r.State, want)
			}
		}
	})
}

// loosen makes the table take any value: a damaged file knows no types.
func (b *timelapse) loosen() {
	b.t.Helper()
	rows, err := b.db.Read().QueryContext(b.t.Context(), "SELECT sql FROM sqlite_schema WHERE tbl_name = 'orbit_outbox' AND sql <> '' ORDER BY type DESC")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	statements := []string{"DROP TABLE orbit_outbox"}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			b.t.Fatal(err)
		}
		statements = append(statements, strings.NewReplacer(" NOT NULL", "", "STRICT", "").Replace(text))
	}
	if err := rows.Err(); err != nil || len(statements) != 4 {
		b.t.Fatalf("schema is %q, %v", statements, err)
	}
	rows.Close()
	for _, statement := range statements {
		b.exec(statement)
	}
}

// inQueue enqueues rows for a queue of its own.
func (b *timelapse) inQueue(n int, keys ...string) []int64 {
	b.t.Helper()
	var messages []outbox.Message
	for _, key := range keys {
		m := message(key)
		m.Request.QueueID = fmt.Sprintf("%032x", n+1)
		messages = append(messages, m)
	}
	return b.enqueue(messages...)
}

// faults returns what Verify says of each row.
func (b *timelapse) faults() map[int64]string {
	b.t.Helper()
	all := map[int64]string{}
	for next := int64(0); ; {
		v, err := b.store.Verify(b.t.Context(), next, outbox.MaxRows)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, f := range v.Faults {
			all[f.Seq] += f.Rule + "; "
		}
		if next = v.Next; next == 0 {
			return all
		}
	}
}

// look does what operators do to see the rows.
func (b *timelapse) look(seqs []int64) {
	b.t.Helper()
	for _, seq := range seqs {
		if _, err := b.store.Show(b.t.Context(), seq); err != nil {
			b.t.Errorf("show row %d: %v", seq, err)
		}
	}
	for _, look := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := b.store.List(ctx, outbox.Filter{}, 0, outbox.MaxRows)
			return err
		},
		func(ctx context.Context) error {
			_, err := b.store.List(ctx, outbox.Filter{Target: "main"}, 0, outbox.MaxRows)
			return err
		},
		func(ctx context.Context) error { _, err := b.store.Status(ctx); return err },
		func(ctx context.Context) error { _, err := b.store.Depth(ctx); return err },
	} {
		if err := look(b.t.Context()); err != nil {
			b.t.Error(err)
		}
	}
}

func keysOf(m map[int64]string) (keys []int64) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

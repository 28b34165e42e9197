package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/outbox/outboxtest"
)

// everyFlavour returns all combinations of isolation level and driver flags, each with a
// session time zone and a location of the driver that disagree.
func everyFlavour() (all []flavour) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for bits := range 16 {
			f := flavour{level, bits&1 != 0, bits&2 != 0, bits&4 != 0, nil, "-03:30"}
			if bits&8 != 0 {
				f.loc, f.zone = far, "+12:45"
			}
			all = append(all, f)
		}
	}
	return all
}

// OUT-004, OUT-005, OUT-007: on every combination of settings the promise of Enqueue holds, inside
// savepoints too, and rows are settled.
func TestEnqueueOnAnyConnection(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			db := dbtest.Open(t, engine, migrations.Outbox)
			for i, f := range everyFlavour() {
				t.Run(f.String(), func(t *testing.T) { enqueueOn(t, openMySQL(t, db, f), f, fmt.Sprintf("flavour:%d", i)) })
			}
		})
	}
}

func enqueueOn(t *testing.T, pool *sql.DB, f flavour, key string) {
	ctx := t.Context()
	o := newOutbox(t, outbox.MySQL, outbox.Config{})
	s := openStore(t, outbox.MySQL, pool, pool)
	begin := func() *sql.Tx {
		tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: f.isolation})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		return tx
	}
	must := func(tx *sql.Tx, m outbox.Message) outbox.Receipt {
		t.Helper()
		r, err := o.Enqueue(ctx, tx, m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old, gone, first, again := begin(), begin(), begin(), begin()
	// The snapshot of a transaction begins with its first read. A SERIALIZABLE one
	// locks what it reads, so it reads something else.
	if _, err := old.ExecContext(ctx, "SELECT COUNT(*) FROM orbit_outbox_hold"); err != nil {
		t.Fatal(err)
	}
	must(gone, message(key))
	if err := gone.Rollback(); err != nil {
		t.Fatal(err)
	}
	receipt := must(first, message(key))
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	for name, tx := range map[string]*sql.Tx{"repeat": again, "repeat with an old snapshot": old} {
		if r := must(tx, message(key)); r.Seq != receipt.Seq || !r.Existing {
			t.Errorf("%s = %+v, want row %d", name, r, receipt.Seq)
		}
		other := message(key)
		other.Request.Handler = "another"
		if _, err := o.Enqueue(ctx, tx, other); !errors.Is(err, outbox.ErrConflict) {
			t.Errorf("%s with other content = %v, want ErrConflict", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	nestedOn(t, pool, o, begin(), key)
	timesOn(t, s, o, begin(), key)
	settleOn(t, s, receipt.Seq)
}

// nestedOn enqueues inside savepoints, one by one and in batches, and takes a part back.
func nestedOn(t *testing.T, pool *sql.DB, o *outbox.Outbox, tx *sql.Tx, key string) {
	t.Helper()
	gone, kept := message(key+":gone"), message(key+":kept")
	for _, step := range []struct {
		end      string
		messages []outbox.Message
	}{
		{"ROLLBACK TO SAVEPOINT step", []outbox.Message{gone}},
		{"RELEASE SAVEPOINT step", []outbox.Message{message(key), kept}}, // the first is there: goes one by one
		{"ROLLBACK TO SAVEPOINT step", []outbox.Message{kept, gone}},
	} {
		if _, err := tx.ExecContext(t.Context(), "SAVEPOINT step"); err != nil {
			t.Fatal(err)
		}
		if receipts, err := o.EnqueueBatch(t.Context(), tx, step.messages); err != nil || len(receipts) != len(step.messages) {
			t.Fatalf("EnqueueBatch in a savepoint = %+v, %v", receipts, err)
		}
		if _, err := tx.ExecContext(t.Context(), step.end); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	outboxtest.RequireEnqueued(t, outboxtest.In(pool), outboxtest.Match{Key: kept.Key})
	outboxtest.RequireNothingEnqueued(t, outboxtest.In(pool), outboxtest.Match{Key: gone.Key})
}

// timesOn enqueues with times of another zone, and finds the same instants.
func timesOn(t *testing.T, s *outbox.Store, o *outbox.Outbox, tx *sql.Tx, key string) {
	t.Helper()
	m := message(key + ":times")
	m.NotBefore = time.Now().Add(time.Hour).Round(time.Microsecond).In(time.FixedZone("", 9*60*60))
	m.NotAfter = m.NotBefore.Add(24 * time.Hour)
	receipt, err := o.Enqueue(t.Context(), tx, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(t.Context(), receipt.Seq)
	if err != nil || !r.NotBefore.Equal(m.NotBefore) || !r.DueAt.Equal(m.NotBefore) || !r.NotAfter.Equal(m.NotAfter) {
		t.Fatalf("row is due at %v, not before %v, not after %v (%v); want %v and %v", r.DueAt, r.NotBefore, r.NotAfter, err, m.NotBefore, m.NotAfter)
	}
}

// settleOn leads, postpones, delivers and releases.
func settleOn(t *testing.T, s *outbox.Store, seq int64) {
	ctx := t.Context()
	l, err := s.Lead(ctx, 0, "relay", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Postpone(ctx, l, []int64{seq}, 0, outbox.Answer{Outcome: outbox.OutcomeUnknown, Unknown: true})
	if n != 1 || err != nil {
		t.Fatalf("Postpone = %d, %v", n, err)
	}
	d := outbox.Delivery{Seq: seq, TaskID: strings.Repeat("1", 32), RequestID: strings.Repeat("2", 32), Status: 201, AcceptedAt: time.Now()}
	for range 2 {
		if n, err := s.Deliver(ctx, l, []outbox.Delivery{d}); n != 1 || err != nil {
			t.Fatalf("Deliver = %d, %v", n, err)
		}
	}
	if err := s.Release(ctx, l); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(ctx, seq)
	if err != nil || r.State != outbox.Delivered || r.Attempts != 2 || time.Since(r.CreatedAt).Abs() > 10*time.Minute {
		t.Fatalf("row is %+v, %v; want it DELIVERED, made now", r, err)
	}
}

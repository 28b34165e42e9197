package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// The engines on which two transactions can write at once. On SQLite a settle and a
// change of leader come one after the other by nature.
var concurrentEngines = []string{dbtest.MySQL, dbtest.MariaDB}

// A fenced is a shard that is led, with rows to settle, and a connection to meddle with.
type fenced struct {
	*testing.T
	db    *dbtest.DB
	store *outbox.Store
	lease outbox.Lease
	rows  []outbox.Delivery
}

func newFenced(t *testing.T, engine string) *fenced {
	db := dbtest.Borrow(t, engine, migrations.Outbox)
	f := &fenced{T: t, db: db, store: openStore(t, db.Dialect(), db.Write(), db.Read())}
	for _, key := range []string{"a", "b", "c"} {
		r := enqueue(t, db, outbox.Config{}, message(key))
		f.rows = append(f.rows, outbox.Delivery{
			Seq: r.Seq, TaskID: strings.Repeat("1", 32), RequestID: strings.Repeat("2", 32), Status: 201, AcceptedAt: time.Now(),
		})
	}
	var err error
	if f.lease, err = f.store.Lead(t.Context(), 0, "first", time.Hour); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fenced) begin() *sql.Tx {
	tx, err := f.db.Reopen(f).Write().BeginTx(f.Context(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { tx.Rollback() })
	return tx
}

func (f *fenced) exec(tx *sql.Tx, query string) {
	f.Helper()
	if _, err := tx.ExecContext(f.Context(), query); err != nil {
		f.Fatalf("%s: %v", query, err)
	}
}

const raiseEpoch = "UPDATE orbit_outbox_lease SET epoch = epoch + 1, leader = 'second' WHERE shard = 0"

// REL-017: a settle that meets a change of leader under way waits for it and then
// matches nothing.
func TestSettleWaitsForAChangeOfLeaderAndChangesNothing(t *testing.T) {
	for _, engine := range concurrentEngines {
		t.Run(engine, func(t *testing.T) {
			f := newFenced(t, engine)
			change := f.begin()
			f.exec(change, raiseEpoch)
			n, err := f.deliverDuring(func() { f.end(change.Commit()) })
			if n != 0 || !errors.Is(err, outbox.ErrLeaseLost) {
				t.Fatalf("Deliver = %d, %v; want none and ErrLeaseLost", n, err)
			}
			for _, d := range f.rows {
				if r, err := f.store.Get(t.Context(), d.Seq); err != nil || r.State != outbox.Pending {
					t.Fatalf("row %d is %v, %v; want it PENDING", d.Seq, r.State, err)
				}
			}
		})
	}
}

func TestSettleGoesOnAfterAChangeOfLeaderThatFailed(t *testing.T) {
	for _, engine := range concurrentEngines {
		t.Run(engine, func(t *testing.T) {
			f := newFenced(t, engine)
			change := f.begin()
			f.exec(change, raiseEpoch)
			n, err := f.deliverDuring(func() { f.end(change.Rollback()) })
			if n != len(f.rows) || err != nil {
				t.Fatalf("Deliver = %d, %v; want %d", n, err, len(f.rows))
			}
		})
	}
}

// deliverDuring starts a settle, lets end run when it waits, and returns its result.
func (f *fenced) deliverDuring(end func()) (n int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err = f.store.Deliver(f.Context(), f.lease, f.rows)
	}()
	f.db.AwaitStatement(f, "UPDATE orbit_outbox FORCE INDEX", "")
	select {
	case <-done:
		f.Errorf("Deliver = %d, %v while a change of leader is under way; want it to wait", n, err)
	default:
	}
	end()
	<-done
	return n, err
}

func (f *fenced) end(err error) {
	f.Helper()
	if err != nil {
		f.Error(err)
	}
}

// A change of leader waits for the settle that came first, so that the new leader reads
// what the old one has written.
func TestChangeOfLeaderWaitsForASettle(t *testing.T) {
	for _, engine := range concurrentEngines {
		t.Run(engine, func(t *testing.T) {
			f := newFenced(t, engine)
			expire := f.begin()
			f.exec(expire, "UPDATE orbit_outbox_lease SET expires_at = 1")
			f.end(expire.Commit())
			settle := f.begin()
			f.exec(settle, "UPDATE orbit_outbox SET state = 2, due_at = 0 WHERE seq = 1 AND (SELECT epoch FROM orbit_outbox_lease WHERE shard = 0 LOCK IN SHARE MODE) = 1")
			other := openStore(t, f.db.Dialect(), f.db.Write(), f.db.Read())
			done := make(chan error, 1)
			go func() {
				_, err := other.Lead(t.Context(), 0, "second", time.Hour)
				done <- err
			}()
			f.db.AwaitStatement(f, "UPDATE orbit_outbox_lease", "")
			select {
			case err := <-done:
				t.Fatalf("Lead = %v while a settle is under way; want it to wait", err)
			default:
			}
			f.end(settle.Commit())
			if err := <-done; err != nil {
				t.Fatalf("Lead after the settle: %v", err)
			}
		})
	}
}

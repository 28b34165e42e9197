package idempotency_test

import (
	"errors"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/idempotency"
)

// IDEM-002: namespace, operation, subject and key, each alone, make another command.
func TestIdentitiesDifferInEachPart(t *testing.T) {
	namespace, subject := sqldb.NewID(), sqldb.NewID()
	base := idempotency.NewIdentity(namespace, idempotency.Cancel, subject, "k")
	for i, other := range []idempotency.Identity{
		idempotency.NewIdentity(sqldb.NewID(), idempotency.Cancel, subject, "k"),
		idempotency.NewIdentity(namespace, idempotency.Review, subject, "k"),
		idempotency.NewIdentity(namespace, idempotency.Cancel, sqldb.NewID(), "k"),
		idempotency.NewIdentity(namespace, idempotency.Cancel, subject, "K"),
	} {
		if other == base {
			t.Errorf("identity %d is that of the base", i)
		}
	}
	if again := idempotency.NewIdentity(namespace, idempotency.Cancel, subject, "k"); again != base {
		t.Error("the same command has two identities")
	}
}

func newCommand() idempotency.Command {
	task := sqldb.NewID()
	return idempotency.Command{
		Namespace: sqldb.NewID(), Operation: idempotency.Cancel, Subject: task, Task: task, Key: "k", Digest: orbit.Digest{1},
	}
}

// IDEM-010, IDEM-011, IDEM-015, IDEM-021: a record tells a repeat from a conflict, keeps its
// receipt to the byte, and is gone with a transaction that is rolled back.
func TestRecordsOfCommands(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		c := newCommand()
		receipt := idempotency.Receipt{Status: 202, Body: []byte(`{"payload":,"é":1}`), PayloadAt: 11}
		store := func(tx *sqldb.Tx) error {
			if err := c.Insert(t.Context(), tx); err != nil {
				return err
			}
			return c.Complete(t.Context(), tx, receipt)
		}
		boom := errors.New("boom")
		err := db.Tx(t.Context(), func(tx *sqldb.Tx) error { return errors.Join(store(tx), boom) })
		if !errors.Is(err, boom) {
			t.Fatalf("Tx = %v", err)
		}
		if found, err := c.Find(t.Context(), db.Read()); found != nil || err != nil {
			t.Fatalf("after a rollback Find = %v, %v, want nothing", found, err)
		}
		if err := db.Tx(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		found, err := c.Find(t.Context(), db.Read())
		if err != nil || found == nil || found.Status != 202 || string(found.Append(nil, []byte(`{ "n" : 1.0 }`))) != `{"payload":{ "n" : 1.0 },"é":1}` {
			t.Fatalf("Find = %+v, %v", found, err)
		}
		if err := db.Tx(t.Context(), store); !db.Dialect().Duplicate(err) {
			t.Errorf("a second record = %v, want a duplicate", err)
		}
		other := c
		other.Digest[31] = 1
		if _, err := other.Find(t.Context(), db.Read()); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("other content = %v, want ErrConflict", err)
		}
		exec(t, db, "UPDATE idempotency SET algorithm = ?", []byte("other-v2")) // IDEM-006: not to be compared
		if _, err := c.Find(t.Context(), db.Read()); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("another algorithm = %v, want ErrConflict", err)
		}
	}, migrations.Server)
}

func exec(t *testing.T, db *dbtest.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// A record of the moment between insert and completion is never seen; one that is damaged
// is not given as if it were whole, nor stored.
func TestDamagedReceiptsAreNotGiven(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		c := newCommand()
		if err := db.Tx(t.Context(), func(tx *sqldb.Tx) error { return c.Insert(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
		if found, err := c.Find(t.Context(), db.Read()); found != nil || err == nil || errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("Find of a record without receipt = %+v, %v, want an error", found, err)
		}
		for _, r := range []idempotency.Receipt{
			{Status: 404, Body: []byte(`{}`)}, {Status: 200}, {Status: 200, Body: []byte(`{}`), PayloadAt: 2}, {Status: 200, Body: []byte(`{}`), PayloadAt: -1},
		} {
			if err := db.Tx(t.Context(), func(tx *sqldb.Tx) error { return c.Complete(t.Context(), tx, r) }); err == nil {
				t.Errorf("Complete took %+v", r)
			}
		}
	}, migrations.Server)
}

package admin_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/admin"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// accepted reports whether a token is good now, and what for.
func accepted(t *testing.T, db *dbtest.DB, token string) (auth.Principal, bool) {
	t.Helper()
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	p, err := auth.New(db.DB).Authenticate(t.Context(), r)
	var refused *auth.Error
	if err != nil && !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return p, err == nil
}

func idOf(t *testing.T, c orbit.Credentials) sqldb.ID {
	t.Helper()
	id, err := sqldb.ParseID(strings.Split(c.Token, "_")[1])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// REF-AUTH-001: during the overlap both tokens are good, for the same things; without one
// the old token is refused at once.
func TestBothTokensAreGoodDuringTheOverlap(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		if _, err := first("default").Run(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		old, err := admin.CredentialRequest{
			Application: "app", Namespace: "default", Permissions: []string{"tasks:submit", "tasks:read"}, Queues: []string{"initial"}, Actor: "who",
		}.Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		o := admin.NewOperator(db.DB, "who")
		young, err := o.Rotate(t.Context(), idOf(t, old), time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		before, ok := accepted(t, db, old.Token)
		after, okay := accepted(t, db, young.Token)
		if !ok || !okay {
			t.Fatalf("old token good: %v, new token good: %v; want both", ok, okay)
		}
		if after.AllQueues || len(after.Queues) != 1 || strings.Join(after.Permissions, ",") != strings.Join(before.Permissions, ",") || after.Namespace != before.Namespace {
			t.Errorf("new credential = %+v, want what the old one may: %+v", after, before)
		}
		if young.QueueID != old.QueueID || young.Environment != old.Environment || young.NamespaceID != old.NamespaceID || young.ApplicationID != old.ApplicationID {
			t.Errorf("new file = %v, want the places of the old one: %v", young, old)
		}
		last, err := o.Rotate(t.Context(), idOf(t, young), 0, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := accepted(t, db, young.Token); ok {
			t.Error("without an overlap the old token is still good")
		}
		if _, ok := accepted(t, db, last.Token); !ok {
			t.Error("the newest token is refused")
		}
	})
}

// An overlap never makes the life of a credential longer.
func TestAnOverlapDoesNotLengthenALife(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	c, err := first("default").Run(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	now, err := db.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	soon := now + time.Minute.Microseconds()
	if _, err := db.Write().ExecContext(t.Context(), "UPDATE credential SET expires_at = ?", soon); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.NewOperator(db.DB, "who").Rotate(t.Context(), idOf(t, c), time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	if count(t, db, "credential WHERE id = ? AND expires_at = ?", idOf(t, c), soon) != 1 {
		t.Error("the overlap moved the end of the old credential")
	}
}

// REF-AUTH-001: one that is being replaced has the end of the overlap for its own; who rotates
// it again would give that to the new one. It is refused, and its heir is named.
func TestACredentialThatIsBeingReplacedIsNotRotatedAgain(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		old, err := first("default").Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		o := admin.NewOperator(db.DB, "who")
		heir, err := o.Rotate(t.Context(), idOf(t, old), time.Hour, "replaced by nobody")
		if err != nil {
			t.Fatal(err)
		}
		var conflict *admin.ConflictError
		_, err = o.Rotate(t.Context(), idOf(t, old), time.Hour, "")
		if !errors.As(err, &conflict) || !strings.Contains(err.Error(), "rotate "+idOf(t, heir).String()+" instead") {
			t.Errorf("second rotation = %v, want a conflict that names %s", err, idOf(t, heir))
		}
		if _, err := o.Rotate(t.Context(), idOf(t, heir), time.Hour, ""); err != nil {
			t.Errorf("rotation of the heir: %v", err)
		}
		if n := count(t, db, "credential WHERE expires_at IS NULL"); n != 1 {
			t.Errorf("%d credentials without an end, want 1, the newest", n)
		}
		// Who revoked the heir has no successor to go on with.
		last, err := admin.CredentialRequest{Application: "app", Namespace: "default", Permissions: []string{"tasks:read"}, Actor: "who"}.Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		lost, err := o.Rotate(t.Context(), idOf(t, last), time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Revoke(t.Context(), idOf(t, lost), ""); err != nil {
			t.Fatal(err)
		}
		_, err = o.Rotate(t.Context(), idOf(t, last), time.Hour, "")
		if !errors.As(err, &conflict) || !strings.Contains(err.Error(), "make a new one with create") {
			t.Errorf("rotation after the heir was revoked = %v, want a conflict that says create", err)
		}
	})
}

// Of rotations of one credential at one moment without an overlap exactly one makes a new
// one.
func TestACredentialIsReplacedOnce(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		c, err := first("default").Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, 6)
		var running sync.WaitGroup
		for i := range errs {
			running.Go(func() { _, errs[i] = admin.NewOperator(db.DB, "who").Rotate(t.Context(), idOf(t, c), 0, "") })
		}
		running.Wait()
		made := 0
		for _, err := range errs {
			var conflict *admin.ConflictError
			switch {
			case err == nil:
				made++
			case !errors.As(err, &conflict):
				t.Errorf("Rotate = %v, want nil or a ConflictError", err)
			}
		}
		if made != 1 || count(t, db, "credential") != 2 {
			t.Errorf("%d rotations succeeded, %d credentials; want 1 and 2", made, count(t, db, "credential"))
		}
	})
}

package admin_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/admin"
)

func onEachEngine(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	dbtest.Run(t, f, migrations.Server)
}

func first(namespace string) admin.Bootstrap {
	return admin.Bootstrap{Application: "app", Namespace: namespace, Environment: "test", Queue: "initial", WorkerAccess: true, Actor: "who"}
}

func count(t *testing.T, db *dbtest.DB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := db.Write().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// CLI-002, CLI-008, MIG-010: what a bootstrap makes.
func TestBootstrapMakesAllThatIsNeeded(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		c, err := first("default").Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"applications:read", "queues:manage", "reviews:decide", "tasks:cancel", "tasks:read", "tasks:submit", "workers:connect", "workers:consume"}
		if !slices.Equal(c.Permissions, want) || c.Environment != "test" {
			t.Errorf("credential = %v, %v", c.Permissions, c.Environment)
		}
		ids := []string{c.ApplicationID, c.NamespaceID, c.QueueID}
		for i, table := range []string{"application", "namespace", "queue"} {
			id, err := sqldb.ParseID(ids[i])
			if err != nil || count(t, db, table+" WHERE id = ?", id) != 1 {
				t.Errorf("no row of %s %s", table, ids[i])
			}
		}
		if count(t, db, "application_quota") != 1 {
			t.Error("the application has no row of quotas")
		}
		if got := count(t, db, "audit WHERE actor = ?", []byte("who")); got != 4 {
			t.Errorf("%d audit rows, want 4", got)
		}
		plain, err := admin.Bootstrap{Application: "app", Namespace: "plain", Environment: "test", Queue: "q", Actor: "who"}.Run(t.Context(), db.DB)
		if err != nil || slices.ContainsFunc(plain.Permissions, func(p string) bool { return strings.HasPrefix(p, "workers:") }) {
			t.Errorf("without worker access: %v, %v", plain.Permissions, err)
		}
	})
}

// CLI-020: names are made once.
func TestBootstrapRefusesWhatExists(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		made, err := first("default").Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first("default").Run(t.Context(), db.DB); !errors.Is(err, admin.ErrExists) {
			t.Errorf("second bootstrap = %v, want ErrExists", err)
		}
		if _, err := first("other").Run(t.Context(), db.DB); err != nil {
			t.Errorf("another namespace: %v", err)
		}
		more := first("default")
		more.NewCredential, more.Environment = true, ""
		added, err := more.Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		if added.Token == made.Token || added.NamespaceID != made.NamespaceID || added.QueueID != made.QueueID || added.Environment != "test" {
			t.Errorf("new credential = %v of queue %s", added, added.QueueID)
		}
		for table, want := range map[string]int{"application": 1, "namespace": 2, "queue": 2, "credential": 3} {
			if got := count(t, db, table); got != want {
				t.Errorf("%d rows of %s, want %d", got, table, want)
			}
		}
		for name, spoil := range map[string]func(*admin.Bootstrap){
			"application": func(b *admin.Bootstrap) { b.Application = "none" },
			"namespace":   func(b *admin.Bootstrap) { b.Namespace = "none" },
			"queue":       func(b *admin.Bootstrap) { b.Queue = "none" },
		} {
			b := more
			spoil(&b)
			if _, err := b.Run(t.Context(), db.DB); !errors.Is(err, admin.ErrMissing) || !strings.Contains(err.Error(), name) {
				t.Errorf("missing %s: %v", name, err)
			}
		}
		more.Environment = "live"
		var invalid *admin.InvalidError
		if _, err := more.Run(t.Context(), db.DB); !errors.As(err, &invalid) || invalid.Field != "environment" {
			t.Errorf("other environment: %v", err)
		}
	})
}

// Two bootstraps at one moment: one makes, the other is refused.
func TestConcurrentBootstraps(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		errs := make([]error, 8)
		var running sync.WaitGroup
		for i := range errs {
			running.Go(func() {
				_, errs[i] = first([]string{"a", "b"}[i%2]).Run(t.Context(), db.DB)
			})
		}
		running.Wait()
		made := 0
		for _, err := range errs {
			switch {
			case err == nil:
				made++
			case !errors.Is(err, admin.ErrExists):
				t.Errorf("bootstrap = %v, want nil or ErrExists", err)
			}
		}
		if made != 2 || count(t, db, "application") != 1 || count(t, db, "namespace") != 2 || count(t, db, "credential") != 2 {
			t.Errorf("%d bootstraps succeeded, with %d applications and %d namespaces", made, count(t, db, "application"), count(t, db, "namespace"))
		}
	})
}

func TestBadNames(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite, migrations.Server)
	for field, spoil := range map[string]func(*admin.Bootstrap){
		"application": func(b *admin.Bootstrap) { b.Application = "" },
		"namespace":   func(b *admin.Bootstrap) { b.Namespace = " x" },
		"queue":       func(b *admin.Bootstrap) { b.Queue = "a\nb" },
		"environment": func(b *admin.Bootstrap) { b.Environment = strings.Repeat("e", 65) },
	} {
		b := first("default")
		spoil(&b)
		var invalid *admin.InvalidError
		if _, err := b.Run(t.Context(), db.DB); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("bad %s: %v", field, err)
		}
	}
	if count(t, db, "application") != 0 {
		t.Error("a refused bootstrap wrote")
	}
}

// CLI-008: a restricted credential.
func TestCreateCredential(t *testing.T) {
	onEachEngine(t, func(t *testing.T, db *dbtest.DB) {
		made, err := first("default").Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		request := admin.CredentialRequest{
			Application: "app", Namespace: "default", Permissions: []string{"tasks:submit"}, Queues: []string{"initial", "initial"},
			ExpiresIn: time.Hour, Actor: "who",
		}
		c, err := request.Run(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		if c.QueueID != made.QueueID || count(t, db, "credential WHERE all_queues = 0 AND expires_at > created_at") != 1 || count(t, db, "credential_queue") != 1 {
			t.Errorf("restricted credential = %+v", c.Permissions)
		}
		all := request
		all.Queues, all.ExpiresIn = nil, 0
		if c, err := all.Run(t.Context(), db.DB); err != nil || c.QueueID != made.QueueID {
			t.Errorf("credential over all queues: %v", err)
		}
		bad := request
		bad.Queues = []string{"none"}
		if _, err := bad.Run(t.Context(), db.DB); !errors.Is(err, admin.ErrMissing) {
			t.Errorf("missing queue: %v", err)
		}
		bad = request
		bad.Permissions = []string{"everything"}
		var invalid *admin.InvalidError
		if _, err := bad.Run(t.Context(), db.DB); !errors.As(err, &invalid) || invalid.Field != "permission" {
			t.Errorf("unknown permission: %v", err)
		}
		if err := admin.NewOperator(db.DB, "who").Revoke(t.Context(), sqldb.NewID(), ""); !errors.Is(err, admin.ErrMissing) {
			t.Errorf("revoke of an unknown credential: %v", err)
		}
		if strings.Contains((orbit.Credentials{Token: c.Token}).String(), c.Token) {
			t.Error("a credential prints its token")
		}
	})
}

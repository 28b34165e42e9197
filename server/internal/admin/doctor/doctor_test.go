package doctor

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
)

// The table of indexes is what the migrations make, on every engine.
func TestExpectedIndexesAreThoseOfTheMigrations(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		e := &examiner{db: db.DB}
		present, err := e.present(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(present, func(name, _ string) bool { return strings.HasPrefix(name, "orbit_") }) // the books
		if !maps.Equal(present, expected) {
			t.Errorf("indexes = %v, want %v", present, expected)
		}
	}, migrations.Server)
}

// level returns what an examination says of one check.
func level(t *testing.T, db *sqldb.DB, name string) Finding {
	t.Helper()
	latest, err := migrations.Latest(migrations.Server, db.Dialect())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Examine(t.Context(), db, Options{Deep: true, MinSchema: latest, MaxSchema: latest}) {
		if f.Check == name && f.Level != OK {
			return f
		}
	}
	return Finding{Check: name, Level: OK}
}

// What waits in the data for somebody is found.
func TestFaultsInTheDataAreFound(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		queue := w.NewQueue("q")
		d, err := dispatch.New(db.DB, "node", dispatch.Config{Lease: 15 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		x := dispatchtest.Task{Namespace: w.Namespace, Queue: queue, Handler: "h", Delay: -time.Hour}
		id := w.Submit(x)
		if f := level(t, db.DB, "waiting tasks"); f.Level != Warning || !strings.Contains(f.Text, `handler h v1 in queue "q" of app/default`) || !strings.Contains(f.Text, "1h0m") {
			t.Errorf("a task that has been ready for an hour: %+v", f)
		}
		w.Exec("UPDATE queue SET paused = 1")
		if f := level(t, db.DB, "waiting tasks"); f.Level != OK {
			t.Errorf("a task of a paused queue: %+v", f)
		}
		w.Exec("UPDATE queue SET paused = 0")
		claimed, err := d.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{w.Taker(1, x.Lane())})
		if err != nil || len(claimed.Grants) != 1 {
			t.Fatalf("claim = %+v, %v", claimed, err)
		}
		if f := level(t, db.DB, "expired leases"); f.Level != OK {
			t.Errorf("a live lease: %+v", f)
		}
		w.Exec("UPDATE attempt SET lease_until = lease_until - 3600000000")
		if f := level(t, db.DB, "expired leases"); f.Level != Failure || !strings.HasPrefix(f.Text, "1 attempt whose") {
			t.Errorf("a lease that ended an hour ago: %+v", f)
		}
		w.Exec("UPDATE attempt SET lease_until = lease_until + 3600000000")
		if f := level(t, db.DB, "keys exhausted"); f.Level != OK {
			t.Errorf("no keys: %+v", f)
		}
		w.SetKeyVersion(w.Namespace, "k", math.MaxUint64-2)
		if f := level(t, db.DB, "keys exhausted"); f.Level != OK {
			t.Errorf("a key with its last token left: %+v", f)
		}
		w.SetKeyVersion(w.Namespace, "k", math.MaxUint64-1)
		if f := level(t, db.DB, "keys exhausted"); f.Level != Failure || !strings.HasPrefix(f.Text, "1 key has") {
			t.Errorf("a key without tokens: %+v", f)
		}
		w.Exec("UPDATE task SET attempt_count = 7 WHERE id = ?", id)
		if f := level(t, db.DB, "contradictions"); f.Level != Failure || !strings.Contains(f.Text, id.String()) {
			t.Errorf("a wrong counter: %+v", f)
		}
		w.Exec("UPDATE task SET attempt_count = 1 WHERE id = ?", id)
	}, migrations.Server)
}

// Tasks that wait for a person are told, with the age of the oldest, over all
// queues and by the index of queues and states.
func TestReviewsThatWaitAreTold(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		if f := level(t, db.DB, "reviews"); f.Level != OK {
			t.Errorf("without any: %+v", f)
		}
		young := w.Submit(dispatchtest.Task{Namespace: w.Namespace, Queue: w.NewQueue("q"), Handler: "h"})
		old := w.Submit(dispatchtest.Task{Namespace: w.Namespace, Queue: w.NewQueue("r"), Handler: "h"})
		w.Exec("UPDATE task SET state = 4 WHERE id = ?", young)
		if f := level(t, db.DB, "reviews"); f.Level != Warning || !strings.HasPrefix(f.Text, "1 task waits for a review") {
			t.Errorf("one review: %+v", f)
		}
		w.Exec("UPDATE task SET state = 4, created_at = created_at - 7200000000 WHERE id = ?", old)
		if f := level(t, db.DB, "reviews"); f.Level != Warning || !strings.HasPrefix(f.Text, "2 tasks wait") || !strings.Contains(f.Text, "2h0m") {
			t.Errorf("two reviews: %+v", f)
		}
		w.Exec("UPDATE task SET state = 1") // as it was
	}, migrations.Server)
}

func TestReviewsAreFoundByTheIndexOfStates(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		e := &examiner{db: db.DB}
		plancheck.Run(t, db, []plancheck.Query{
			{Name: "count", SQL: e.byState(countReviews), Args: []any{4, maxCounted}, Table: "t", Index: "task_state"},
			{Name: "oldest", SQL: e.byState(selectOldestReview), Args: []any{4}, Table: "t", Index: "task_state"},
		})
	}, migrations.Server)
}

// A database without a schema has one failure; what cannot be looked at without a schema
// says so, and says nothing of rights.
func TestAnEmptyDatabaseHasOneFailure(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		skipped := 0
		for _, f := range Examine(t.Context(), db.DB, Options{Deep: true, MinSchema: 1, MaxSchema: 99}) {
			switch {
			case f.Level == Failure && f.Check != "durability" && f.Check != "schema":
				t.Errorf("finding = %+v", f)
			case f.Check == "schema" && db.Engine == dbtest.SQLite && (f.Level != Failure || f.Do != "run orbit-migrate up" || strings.Contains(f.Text, "run")):
				t.Errorf("finding = %+v", f)
			case f.Level == Skipped && strings.Contains(f.Text, "refused"):
				t.Errorf("finding = %+v", f)
			case f.Level == Skipped && f.Text == "not made: no schema":
				skipped++
			}
		}
		if skipped != 6 {
			t.Errorf("%d checks were not made for want of a schema, want 6", skipped)
		}
	})
}

// So with a schema that lacks steps, and their tables.
func TestAnOldSchemaHasOneFailure(t *testing.T) {
	db := dbtest.Open(t, dbtest.SQLite)
	if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: 1}); err != nil {
		t.Fatal(err)
	}
	for _, f := range Examine(t.Context(), db.DB, Options{MinSchema: 9, MaxSchema: 99}) {
		if f.Level == Failure && (f.Check != "schema" || strings.Count(f.Text+f.Do, "orbit-migrate up") != 1) || f.Level == Skipped && f.Text != "not made: the schema is incomplete" {
			t.Errorf("finding = %+v", f)
		}
	}
}

// Each setting of a MySQL or MariaDB server that breaks a promise, or may, is told.
func TestSettingsOfAServerAreJudged(t *testing.T) {
	good := map[string]string{
		"version": "8.4.3", "transaction_isolation": "READ-COMMITTED", "sql_mode": "STRICT_TRANS_TABLES,STRICT_ALL_TABLES",
		"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "max_allowed_packet": "67108864",
		"read_only": "OFF", "super_read_only": "OFF", "innodb_lock_wait_timeout": "50", "max_connections": "151",
	}
	cases := []struct {
		check, name, value string
		want               Level
	}{
		{"engine", "version", "9.7.0", OK},
		{"engine", "version", "10.0.1", Warning},
		{"engine", "version", "10.11.6-MariaDB-1", OK},
		{"engine", "version", "5.5.5-10.11.6-MariaDB", OK},
		{"engine", "version", "13.0.1-MariaDB", Warning},
		{"isolation", "transaction_isolation", "REPEATABLE-READ", Failure},
		{"isolation", "transaction_isolation", "", Failure},
		{"strict mode", "sql_mode", "STRICT_TRANS_TABLES", Failure},
		{"durability", "innodb_flush_log_at_trx_commit", "2", Failure},
		{"durability", "innodb_flush_log_at_trx_commit", "", Skipped},
		{"binary log", "sync_binlog", "0", Warning},
		{"binary log", "log_bin", "OFF", OK},
		{"packet size", "max_allowed_packet", "8454144", Warning},
		{"packet size", "max_allowed_packet", "8454143", Failure},
		{"packet size", "max_allowed_packet", "16777216", OK},
		{"writable", "read_only", "ON", Failure},
		{"writable", "super_read_only", "1", Failure},
		{"lock wait", "innodb_lock_wait_timeout", "61", Warning},
		{"connections", "max_connections", "31", Failure},
		{"connections", "max_connections", "63", Warning},
		{"connections", "max_connections", "64", OK},
	}
	db := dbtest.Open(t, dbtest.SQLite).DB // asked for the size of its pool only
	db.Write().SetMaxOpenConns(32)
	run := func(vars map[string]string, name string) Level {
		e := &examiner{db: sqldb.New(sqldb.MySQL, db.Write(), db.Write()), vars: vars}
		for _, c := range e.mysqlChecks() {
			if c.name == name {
				return e.run(t.Context(), c)[0].Level
			}
		}
		t.Fatalf("there is no check %s", name)
		return ""
	}
	for _, c := range cases {
		if got := run(good, c.check); got != OK {
			t.Errorf("%s of a good server = %s", c.check, got)
		}
		vars := maps.Clone(good)
		if vars[c.name] = c.value; c.value == "" {
			delete(vars, c.name)
		}
		if got := run(vars, c.check); got != c.want {
			t.Errorf("%s with %s = %q is %s, want %s", c.check, c.name, c.value, got, c.want)
		}
	}
}

// A user with few rights learns which checks could not be made, and for want of what; that
// is no failure.
func TestChecksWithoutARightAreSkipped(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		dsn, isMySQL := strings.CutPrefix(db.Address, "mysql:")
		if !isMySQL {
			t.Skip("needs an engine with users and rights: SQLite has none")
		}
		const password = "canary-31"
		user := "doctor" + sqldb.NewID().String()[20:]
		name := dsn[strings.LastIndexByte(dsn, '/')+1:]
		name, _, _ = strings.Cut(name, "?")
		exec := func(statement string) {
			t.Helper()
			_, err := db.Write().ExecContext(context.WithoutCancel(t.Context()), statement)
			var refused *mysql.MySQLError
			if errors.As(err, &refused) && (refused.Number == 1142 || refused.Number == 1227) {
				dbtest.Missing(t, "the user of the test database may not make users and grant rights: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, host := range []string{"%", "localhost"} { // an anonymous user of localhost would go first
			account := "'" + user + "'@'" + host + "'"
			exec("CREATE USER " + account + " IDENTIFIED BY '" + password + "'")
			t.Cleanup(func() { exec("DROP USER " + account) })
			exec("GRANT SELECT ON `" + name + "`.attempt TO " + account)
		}
		poor, err := drivers.OpenExisting(t.Context(), "mysql:"+user+":"+password+dsn[strings.Index(dsn, "@"):])
		if err != nil {
			t.Fatal(err)
		}
		defer poor.Close()
		skipped := map[string]string{}
		for _, f := range Examine(t.Context(), poor, Options{MinSchema: 1, MaxSchema: 99}) {
			if f.Level == Skipped {
				skipped[f.Check] = f.Text
			}
			if f.Level == Failure && f.Check != "durability" {
				t.Errorf("for want of a right: %+v", f)
			}
			if strings.Contains(f.Text, password) || strings.Contains(f.Text, "SELECT id") {
				t.Errorf("finding = %+v", f)
			}
		}
		for check, needs := range map[string]string{"replica": "REPLICATION CLIENT", "waiting tasks": "SELECT on task", "keys exhausted": "SELECT on resource", "schema": "book of migrations", "indexes": "task_event"} {
			if !strings.Contains(skipped[check], needs) {
				t.Errorf("%s: %q, want that it needs %s", check, skipped[check], needs)
			}
		}
		if text, is := skipped["expired leases"]; is {
			t.Errorf("expired leases: %s, though the right is there", text)
		}
	}, migrations.Server)
}

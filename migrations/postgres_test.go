package migrations_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// Several runners meet an empty database at once: the books and each step are made once.
// MIG-014, MIG-015.
func TestRunnersOnPostgreSQLShareTheWork(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres)
	newest, err := migrations.Latest(migrations.Guard, db.Dialect())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	begin := make(chan struct{})
	applied := make([]int, 8)
	for i := range applied {
		own := db.Reopen(t)
		running.Go(func() {
			<-begin
			steps, err := migrations.Up(t.Context(), own.DB, migrations.Guard, migrations.Options{})
			if err != nil {
				t.Errorf("Up: %v", err)
			}
			applied[i] = len(steps)
		})
	}
	close(begin)
	running.Wait()
	sum := 0
	for _, n := range applied {
		sum += n
	}
	if at, err := migrations.Version(t.Context(), db.DB, migrations.Guard); err != nil || at != newest || sum != newest {
		t.Errorf("version = %d, %v, with %d steps applied in all, want %d of both", at, err, sum, newest)
	}
	if err := migrations.Check(t.Context(), db.DB, migrations.Guard, newest, newest); err != nil {
		t.Errorf("Check: %v", err)
	}
	var uncommented int
	err = db.Read().QueryRowContext(t.Context(), `
		SELECT COUNT(*) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(current_schema()::TEXT) AND col_description(c.oid, a.attnum) IS NULL`).Scan(&uncommented)
	if err != nil || uncommented != 0 {
		t.Errorf("%d columns have no comment (%v), want 0", uncommented, err)
	}
}

// A statement and its record are one transaction: a runner that has lost its lock leaves
// nothing of either.
func TestAStatementOnPostgreSQLCommitsWithItsRecord(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres)
	const text = "DO $$ BEGIN CREATE TABLE a (x BIGINT); UPDATE orbit_migration_lock SET epoch = epoch + 1; END $$;\n"
	files := fstest.MapFS{"guard/postgres/000001_x.up.sql": {Data: []byte(text)}}
	if _, err := migrations.UpFiles(t.Context(), db.DB, files, migrations.Guard, migrations.Options{}); !errors.Is(err, migrations.ErrLockLost) {
		t.Errorf("Up = %v, want ErrLockLost", err)
	}
	var made bool
	if err := db.Read().QueryRowContext(t.Context(), "SELECT to_regclass('a') IS NOT NULL").Scan(&made); err != nil || made {
		t.Errorf("table a is there: %t, %v", made, err)
	}
}

// What fails leaves nothing of itself, and the next run goes on there.
func TestAFailedStepOnPostgreSQLGoesOnWhereItStopped(t *testing.T) {
	db := dbtest.Open(t, dbtest.Postgres)
	file := func(second string) fstest.MapFS {
		return fstest.MapFS{"guard/postgres/000001_x.up.sql": {Data: []byte("CREATE TABLE a (x BIGINT);\n" + second)}}
	}
	const fails = "CREATE TABLE b AS SELECT 1 / (SELECT COUNT(*) FROM a) AS x;\n"
	if _, err := migrations.UpFiles(t.Context(), db.DB, file(fails), migrations.Guard, migrations.Options{}); err == nil || !strings.Contains(err.Error(), "statement 2 of 2") {
		t.Fatalf("Up = %v, want the failure of statement 2", err)
	}
	if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO a VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if steps, err := migrations.UpFiles(t.Context(), db.DB, file(fails), migrations.Guard, migrations.Options{}); err != nil || len(steps) != 1 {
		t.Errorf("second Up = %v, %v, want the step applied", steps, err)
	}
	if _, err := migrations.UpFiles(t.Context(), db.DB, file("CREATE TABLE c (x BIGINT);\n"), migrations.Guard, migrations.Options{}); err == nil || !strings.Contains(err.Error(), "was changed after it had been applied") {
		t.Errorf("Up with a changed file = %v, want a ChangedError", err)
	}
}

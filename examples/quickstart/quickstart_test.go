package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// The whole chain with its accidents, on each engine (TEST-056, EX-010, MOD-010).
// MOD-001, MOD-004, MOD-005.
func TestQuickstartHoldsItsInvariant(t *testing.T) {
	for _, engine := range []struct{ name, variable string }{
		{"sqlite", ""}, {"mysql", "ORBIT_TEST_MYSQL_DSN"}, {"mariadb", "ORBIT_TEST_MARIADB_DSN"},
	} {
		t.Run(engine.name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			dsn := os.Getenv(engine.variable)
			if engine.variable != "" && dsn == "" {
				if os.Getenv("ORBIT_TEST_ALL_ENGINES") == "1" {
					t.Fatalf("%s is not set", engine.variable)
				}
				t.Skipf("no server: set %s", engine.variable)
			}
			var out bytes.Buffer
			if err := play(context.Background(), &out, dsn, false); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if !strings.Contains(out.String(), "Holds: each committed order became exactly one task") {
				t.Fatalf("the invariant is not stated:\n%s", &out)
			}
		})
	}
}

// A report that could not be wrong would prove nothing.
func TestReportFindsAWrongCount(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	q := &quickstart{committed: 1, ordered: 1}
	for _, d := range []struct {
		db     **database
		name   string
		schema []string
	}{
		{&q.businessDB, "business", []string{"CREATE TABLE orders (quantity INTEGER)", "CREATE TABLE orbit_outbox (state INTEGER, deduplicated INTEGER)",
			"INSERT INTO orders VALUES (1)", "INSERT INTO orbit_outbox VALUES (2, 0)"}},
		{&q.serverDB, "server", []string{"CREATE TABLE task (state INTEGER)", "CREATE TABLE attempt (id INTEGER)",
			"INSERT INTO task VALUES (5), (5)", "INSERT INTO attempt VALUES (1), (2), (3)"}}, // one task too many
		{&q.stockDB, "stock", []string{"CREATE TABLE orbit_guard_operation (id INTEGER)", "CREATE TABLE stock_incident (kind TEXT)", "CREATE TABLE stock (quantity INTEGER)",
			"INSERT INTO orbit_guard_operation VALUES (1)", "INSERT INTO stock_incident VALUES ('repeat'), ('stale')", "INSERT INTO stock VALUES (999)"}},
	} {
		db, err := sqliteEngine(dir).open(ctx, d.name)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		*d.db = db
		for _, statement := range d.schema {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out bytes.Buffer
	err := q.report(ctx, &out)
	if err == nil || strings.Count(out.String(), "WRONG") != 2 {
		t.Fatalf("report = %v, want two counts wrong:\n%s", err, &out)
	}
}

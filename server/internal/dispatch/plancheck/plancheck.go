// Package plancheck holds hot queries to the indexes that they must use.
package plancheck

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// planRows is how many tasks the full table holds; ORBIT_TEST_PLAN_ROWS sets another
// number, for example 1000000.
const planRows = 20_000

// A Query is a query that is held to the index which it must use.
type Query struct {
	Name  string
	SQL   string
	Args  []any
	Table string // as the plan names it
	Index string
	Sorts bool // it may sort
	Rows  int  // if positive: every table is read by an index, and no more rows than so many of it
}

// Primary is the Index of queries that go by the primary key of a table, which is no integer.
const Primary = "PRIMARY"

// Run holds queries to their indexes, on an empty table, where statistics tell
// nothing, and on a full one. Statements of fill are run in between, when the table of tasks
// is full.
func Run(t *testing.T, db *dbtest.DB, queries []Query, fill ...string) {
	t.Helper()
	for _, q := range queries {
		checkPlan(t, db, q, "empty table")
	}
	fillForPlans(t, db, fill)
	for _, q := range queries {
		checkPlan(t, db, q, "full table")
	}
}

// fillForPlans makes tasks: a tenth READY over 50 lanes, the others done, DELAYED or
// parked, by doubling what is there.
func fillForPlans(t *testing.T, db *dbtest.DB, more []string) {
	t.Helper()
	rows := planRows
	if text := os.Getenv("ORBIT_TEST_PLAN_ROWS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("ORBIT_TEST_PLAN_ROWS: %v", err)
		}
		rows = n
	}
	insert := `INSERT INTO task (id, namespace_id, queue_id, state, revision, handler, handler_version, payload_version, payload, business_key,
    available_at, deadline_at, task_timeout_ms, credential_id, created_at, updated_at, lane, dispatch_state, dispatch_lane, order_value, concurrency_key_digest)
VALUES `
	const columns = 21
	for from := 0; from < rows; from += 500 {
		var args []any
		n := min(500, rows-from)
		for i := from; i < from+n; i++ {
			id := sqldb.NewID()
			lane, state, digest := int64(i%50+1), 0, []byte{}
			var dispatchLane any
			switch i % 10 {
			case 0:
				state, dispatchLane = 1, lane
			case 1:
				state, dispatchLane = 2, 0
			case 2:
				state, digest = 3, make([]byte, 32)
				digest[0] = byte(i % 200)
			}
			args = append(args, id, id, id, 1, 1, []byte("h"), []byte("v"), []byte("p"), []byte("{}"), []byte{},
				int64(i), int64(i), 1, id, int64(i), int64(i), lane, state, dispatchLane, int64(i), digest)
		}
		if _, err := db.Write().Exec(insert+sqldb.Rows(n, columns), args...); err != nil {
			t.Fatalf("fill: %v", err)
		}
	}
	for _, statement := range more {
		if _, err := db.Write().Exec(statement); err != nil {
			t.Fatalf("fill: %v", err)
		}
	}
	analyze := "ANALYZE TABLE task, attempt"
	if db.Engine == dbtest.SQLite {
		analyze = "ANALYZE"
	}
	if _, err := db.Write().Exec(analyze); err != nil {
		t.Fatalf("analyze: %v", err)
	}
}

func checkPlan(t *testing.T, db *dbtest.DB, q Query, on string) {
	t.Helper()
	plan, err := Explain(t.Context(), db, q.SQL, q.Args)
	if err != nil {
		t.Errorf("%s, %s: %v", q.Name, on, err)
		return
	}
	used := func(line string) bool { return strings.Contains(line, usedAs(db, q)) || q.Rows > 0 && foundNone(line) }
	if !slices.ContainsFunc(plan, used) {
		t.Errorf("%s, %s: does not use %s:\n%s", q.Name, on, q.Index, strings.Join(plan, "\n"))
	}
	for _, line := range plan {
		if strings.Contains(line, "table="+q.Table+" ") && strings.Contains(line, "type=ALL") || strings.Contains(line, "SCAN "+q.Table) {
			t.Errorf("%s, %s: reads the whole table:\n%s", q.Name, on, line)
		}
		if !q.Sorts && (strings.Contains(line, "filesort") || strings.Contains(line, "TEMP B-TREE")) {
			t.Errorf("%s, %s: sorts:\n%s", q.Name, on, line)
		}
		if q.Rows > 0 && readsMore(line, q.Rows) {
			t.Errorf("%s, %s: reads more than %d rows, or not by their index:\n%s", q.Name, on, q.Rows, line)
		}
	}
}

// readsMore reports whether a line of a plan reads a table from one end to the other, or is
// expected to read more rows than so many. SQLite tells no numbers: by a unique key it reads
// a row for each value.
func readsMore(line string, most int) bool {
	if foundNone(line) {
		return false
	}
	if strings.Contains(line, "SCAN ") || strings.Contains(line, "type=ALL ") || strings.Contains(line, "type=index ") {
		return true
	}
	_, after, told := strings.Cut(line, " rows=")
	text, _, _ := strings.Cut(after, " ")
	rows, err := strconv.Atoi(text)
	return told && (err != nil || rows > most)
}

// foundNone reports whether a plan ends before it begins: the one row with a primary key is
// not there.
func foundNone(line string) bool { return strings.Contains(line, "const table") }

// usedAs is what a line of a plan has if it reads the query's index. That the index could be
// used is not enough: MySQL names such ones too.
func usedAs(db *dbtest.DB, q Query) string {
	switch {
	case db.Engine != dbtest.SQLite:
		return " key=" + q.Index + " "
	case q.Index == Primary:
		return "INDEX sqlite_autoindex_" + q.Table + "_1 (id=?)"
	case q.Index == "INTEGER PRIMARY KEY":
		return "USING " + q.Index
	}
	return "INDEX " + q.Index
}

// Explain returns the plan of a query, a line per table, of name=value pairs. The tabular form is asked for by
// name: MySQL's default has become a tree.
func Explain(ctx context.Context, db *dbtest.DB, query string, args []any) ([]string, error) {
	word := map[string]string{dbtest.SQLite: "EXPLAIN QUERY PLAN ", dbtest.MySQL: "EXPLAIN FORMAT=TRADITIONAL ", dbtest.MariaDB: "EXPLAIN "}[db.Engine]
	rows, err := db.Write().QueryContext(ctx, word+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var plan []string
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		line := ""
		for i, v := range values {
			line += names[i] + "=" + v.String + " "
		}
		plan = append(plan, line)
	}
	return plan, rows.Err()
}

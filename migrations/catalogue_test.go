package migrations_test

import (
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
)

// query returns the rows of a query, each as text with | between its columns.
func query(t *testing.T, db *dbtest.DB, text string, args ...any) []string {
	t.Helper()
	rows, err := db.Write().QueryContext(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for rows.Next() {
		values := make([]sql.RawBytes, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = string(v)
			if v == nil {
				texts[i] = "NULL"
			}
		}
		found = append(found, strings.Join(texts, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func number(t *testing.T, db *dbtest.DB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := db.Write().QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func execute(t *testing.T, db *dbtest.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// migrate applies the steps of the server set up to number to.
func migrate(t *testing.T, db *dbtest.DB, to int) {
	t.Helper()
	if _, err := migrations.Up(t.Context(), db.DB, migrations.Server, migrations.Options{To: to}); err != nil {
		t.Fatalf("up to %d: %v", to, err)
	}
}

func latest(t *testing.T, db *dbtest.DB, set migrations.Set) int {
	t.Helper()
	n, err := migrations.Latest(set, db.Dialect())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tables returns all tables but the runner's books.
func tables(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	names := `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY 1`
	if db.Engine == dbtest.SQLite {
		names = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY 1`
	}
	return slices.DeleteFunc(query(t, db, names), func(name string) bool { return strings.HasPrefix(name, "orbit_migration") })
}

// A column as the catalogue tells it.
type column struct {
	Type     string // in the engine's words
	Nullable bool
	Comment  string // empty on SQLite
}

// columns returns all columns as table.name.
func columns(t *testing.T, db *dbtest.DB) map[string]column {
	t.Helper()
	found := map[string]column{}
	for _, table := range tables(t, db) {
		text, args := `SELECT column_name, column_type, is_nullable = 'YES', column_comment FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?`, []any{table}
		if db.Engine == dbtest.SQLite {
			text = `SELECT name, type, "notnull" = 0 AND pk = 0, '' FROM pragma_table_info(?)`
		}
		for _, row := range query(t, db, text, args...) {
			f := strings.SplitN(row, "|", 4)
			found[table+"."+f[0]] = column{Type: f[1], Nullable: f[2] == "1", Comment: f[3]}
		}
	}
	return found
}

// indexes returns the columns of each index but the primary keys, as table.index, with a
// mark for unique ones.
func indexes(t *testing.T, db *dbtest.DB) map[string]string {
	t.Helper()
	text := `
SELECT table_name, index_name, non_unique = 0, GROUP_CONCAT(column_name ORDER BY seq_in_index)
FROM information_schema.statistics
WHERE table_schema = DATABASE() AND index_name <> 'PRIMARY'
GROUP BY table_name, index_name, non_unique`
	if db.Engine == dbtest.SQLite {
		text = `
SELECT m.name, l.name, l."unique", (SELECT GROUP_CONCAT(name) FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno))
FROM sqlite_master m JOIN pragma_index_list(m.name) l
WHERE m.type = 'table' AND l.origin = 'c'`
	}
	found := map[string]string{}
	for _, row := range query(t, db, text) {
		f := strings.SplitN(row, "|", 4)
		found[f[0]+"."+f[1]] = "(" + f[3] + ")"
		if f[2] == "1" {
			found[f[0]+"."+f[1]] += " unique"
		}
	}
	return found
}

// primaryKeys returns the columns of each table's primary key.
func primaryKeys(t *testing.T, db *dbtest.DB) map[string]string {
	t.Helper()
	text := `
SELECT table_name, GROUP_CONCAT(column_name ORDER BY seq_in_index)
FROM information_schema.statistics
WHERE table_schema = DATABASE() AND index_name = 'PRIMARY'
GROUP BY table_name`
	if db.Engine == dbtest.SQLite {
		text = `
SELECT m.name, (SELECT GROUP_CONCAT(name) FROM (SELECT name FROM pragma_table_info(m.name) WHERE pk > 0 ORDER BY pk))
FROM sqlite_master m WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'`
	}
	found := map[string]string{}
	for _, row := range query(t, db, text) {
		table, key, _ := strings.Cut(row, "|")
		found[table] = key
	}
	return found
}

func foreignKeys(t *testing.T, db *dbtest.DB) int {
	t.Helper()
	if db.Engine == dbtest.SQLite {
		return number(t, db, `SELECT COUNT(*) FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) WHERE m.type = 'table'`)
	}
	return number(t, db, `SELECT COUNT(*) FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE()`)
}

var counter = regexp.MustCompile(` AUTO_INCREMENT=[0-9]+`)

// schema returns the definition of every table and index, the books included.
func schema(t *testing.T, db *dbtest.DB) map[string]string {
	t.Helper()
	found := map[string]string{}
	if db.Engine == dbtest.SQLite {
		for _, row := range query(t, db, `SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL`) {
			name, text, _ := strings.Cut(row, "|")
			found[name] = text
		}
		return found
	}
	for _, table := range query(t, db, `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()`) {
		found[table] = counter.ReplaceAllString(query(t, db, "SHOW CREATE TABLE `"+table+"`")[0], "")
	}
	return found
}

// rows returns the rows of a table in the named columns, sorted.
func rows(t *testing.T, db *dbtest.DB, table string, columns []string) []string {
	t.Helper()
	found := query(t, db, "SELECT "+strings.Join(columns, ", ")+" FROM "+table)
	slices.Sort(found)
	return found
}

// contents returns the rows of all tables in the given columns (table.name).
func contents(t *testing.T, db *dbtest.DB, of map[string]column) map[string][]string {
	t.Helper()
	byTable := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		table, column, _ := strings.Cut(name, ".")
		byTable[table] = append(byTable[table], column)
	}
	found := map[string][]string{}
	for table, columns := range byTable {
		found[table] = rows(t, db, table, columns)
	}
	return found
}

// equal fails the test for every key whose values differ.
func equal[V any](t *testing.T, what string, got, want map[string]V) {
	t.Helper()
	for key := range want {
		if g, w := fmt.Sprint(got[key]), fmt.Sprint(want[key]); g != w {
			t.Errorf("%s %s =\n%s\nwant\n%s", what, key, g, w)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("%s %s is there, want none", what, key)
		}
	}
}

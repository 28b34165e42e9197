package query

import (
	"database/sql"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
	"github.com/orbitkit/orbit/server/internal/task"
)

// planRows is how many tasks the full table holds, enough for the optimizers to choose as
// they do at 1,000,000; ORBIT_TEST_PLAN_ROWS sets a larger number up to that.
const planRows = 20_000

// A plan is a query and the index that it must be read by.
type plan struct {
	name  string
	sql   string
	args  []any
	index string // empty means any, but not the whole table
	reads int64  // most rows or index entries that it may look at; 0 means this is not counted
	sorts bool   // it may sort
}

// LIST-010, LIST-018, REF-HIST-002, REF-QUERY-001: every read is a range of an index, without a
// sort, whether the table is empty or full.
func TestReadsUseTheirIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		for _, p := range plans(New(db.DB)) {
			checkPlan(t, db, p, false)
		}
		fill(t, db)
		for _, p := range plans(New(db.DB)) {
			checkPlan(t, db, p, true)
			checkReads(t, db, p)
		}
		checkWindows(t, db)
	}, migrations.Server)
}

// The numbers below are those of the fill: rows are a second apart, except for bulk rows,
// of which a hundred share each thousandth second.
const (
	planQueue   = 1
	planBulk    = 2
	planLimit   = 21
	planSmall   = planLimit + 10 // what a page may read
	planSeconds = 1_000_000
)

func plans(r *Reader) []plan {
	queue, bulk := numbered(planQueue), numbered(planBulk)
	first := Place{CreatedAt: math.MaxInt64}
	page := Place{CreatedAt: 5_000 * planSeconds, ID: numbered(5_000)}
	ties := Place{CreatedAt: 10_000 * planSeconds, ID: numbered(10_500)}
	from := int64(math.MinInt64)
	at := func(p Place, args ...any) []any { return r.after(args, p) }
	list := func(name, text, index string, args ...any) plan {
		return plan{name: name, sql: text, index: index, args: append(args, planLimit), reads: planSmall}
	}
	return []plan{
		list("queue", r.by("task_list", selectQueueTasks), "task_list", at(first, queue, from)...),
		list("queue, a page", r.by("task_list", selectQueueTasks), "task_list", at(page, queue, from)...),
		list("queue, a page between ties", r.by("task_list", selectQueueTasks), "task_list", at(ties, bulk, from)...),
		list("queue, bounds of time", r.by("task_list", selectQueueTasks), "task_list", at(page, queue, int64(4_000*planSeconds))...),
		list("state", r.by("task_state", selectStateTasks), "task_state", at(first, queue, 1, from)...),
		list("rare state", r.by("task_state", selectStateTasks), "task_state", at(first, queue, 4, from)...),
		list("absent state", r.by("task_state", selectStateTasks), "task_state", at(page, queue, 3, from)...),
		list("state, a page between ties", r.by("task_state", selectStateTasks), "task_state", at(ties, bulk, 5, from)...),
		list("key", r.by("task_business", selectKeyTasks), "task_business", at(first, queue, []byte("hot"), from)...),
		list("absent key", r.by("task_business", selectKeyTasks), "task_business", at(first, queue, []byte("absent"), from)...),
		list("key, a page between ties", r.by("task_business", selectKeyTasks), "task_business", at(ties, bulk, []byte("hot"), from)...),
		{name: "end of a window", sql: r.by("task_business", selectWindowEnd), index: "task_business", reads: window + planSmall,
			args: append(at(first, queue, []byte("hot"), from), window-1)},
		{name: "key and state", sql: r.by("task_business", selectKeyStateTasks), index: "task_business",
			args: append(at(first, queue, []byte("hot"), page.CreatedAt), page.CreatedAt, page.ID[:], 4, planLimit)},
		{name: "attempts", sql: selectAttempts, index: "attempt_epoch", reads: planSmall, args: []any{queue, int64(math.MaxInt64), planLimit}},
		{name: "reasons", sql: fmt.Sprintf(selectReasons, "(?,?)"), index: "task_event_task", args: []any{queue, []byte{}, queue, queue}},
		{name: "evidence", sql: r.by("evidence_task", selectEvidenceList), index: "evidence_task", reads: planSmall, args: append(at(first, queue), planLimit)},
		{name: "queues", sql: selectQueues, index: "queue_name", reads: planSmall, args: []any{queue, []byte("m"), planLimit}},
		{name: "queues of a credential", sql: selectQueuesOf, sorts: true, args: []any{queue, queue, []byte("m"), planLimit}},
		{name: "attempts of queues", sql: fmt.Sprintf(r.by("attempt_queue", countQueueAttempts), "(?,?)"), index: "attempt_queue", sorts: true, args: []any{queue, bulk}},
		{name: "attempts of an application", sql: r.by("attempt_application", countApplicationAttempts), index: "attempt_application", args: []any{queue}},
	}
}

// numbered is the id that the fill makes of a number.
func numbered(n int) sqldb.ID {
	id, err := sqldb.ParseID(fmt.Sprintf("%032x", n))
	if err != nil {
		panic(err)
	}
	return id
}

// insertTasks makes tasks by one statement: ten in a hundred in a queue where a hundred were
// accepted at a time, the others in one queue. Most are done; one in a hundred waits, one
// in ten thousand is in review. A third has the same business key, a third none.
const insertTasks = `
INSERT INTO task (id, namespace_id, queue_id, state, revision, handler, handler_version, payload_version, payload,
    business_key, available_at, deadline_at, task_timeout_ms, credential_id, created_at, updated_at)
SELECT {id}, {one}, CASE WHEN n % 10 = 0 THEN {two} ELSE {one} END,
    CASE WHEN n % 10000 = 1 THEN 4 WHEN n % 100 = 2 THEN 1 ELSE 5 + n % 2 END, 1, 'h', 'v', 'p', '{}',
    CASE n % 3 WHEN 0 THEN 'hot' WHEN 1 THEN '' ELSE {text} END, 0, 0, 1, {one},
    CASE WHEN n % 10 = 0 THEN n - n % 1000 ELSE n END * 1000000, 0
FROM {rows}`

// The other tables have so many rows of one task, queue or namespace.
const planParts = 5_000

// insertParts are statements like insertTasks for the other tables.
var insertParts = []string{
	`
INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id,
    state, live, lease_until, lease_ms, claimed_at)
SELECT {id}, {one}, n, n, {one}, CASE WHEN n % 2 = 0 THEN {one} ELSE {two} END, CASE WHEN n % 2 = 0 THEN {one} ELSE {two} END, {one}, 'n',
    1, CASE WHEN n % 10 = 0 THEN 1 END, 0, 1, 0
FROM {parts}`,
	`
INSERT INTO task_event (task_id, revision, kind, attempt_id, reason, created_at)
SELECT CASE WHEN n % 100 = 0 THEN {one} ELSE {id} END, 1, 'h', {id}, 'v', 0
FROM {parts}`,
	`
INSERT INTO evidence (id, task_id, attempt_id, kind, body, created_at)
SELECT {id}, {one}, {one}, 'h', '{}', n - n % 100
FROM {parts}`,
	`
INSERT INTO queue (id, namespace_id, name, created_at, updated_at)
SELECT {id}, {one}, {text}, 0, 0
FROM {parts}`,
	`
INSERT INTO credential_queue (credential_id, queue_id)
SELECT {one}, {id}
FROM {parts}
WHERE n % 20 = 0`,
}

// fill fills each table by one INSERT … SELECT and lets the engine look at it.
func fill(t *testing.T, db *dbtest.DB) {
	t.Helper()
	analyze := "ANALYZE TABLE task, attempt, task_event, evidence, queue, credential_queue"
	if db.Engine == dbtest.SQLite {
		analyze = "ANALYZE"
	}
	for _, s := range append(append([]string{insertTasks}, insertParts...), analyze) {
		if _, err := db.Write().ExecContext(t.Context(), spell(db, rows(t), s)); err != nil {
			t.Fatalf("fill: %v", err)
		}
	}
}

func rows(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ORBIT_TEST_PLAN_ROWS")
	if text == "" {
		return planRows
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("ORBIT_TEST_PLAN_ROWS: %v", err)
	}
	return max(n, planRows)
}

// spell writes a statement of the fill in the words of the engine.
func spell(db *dbtest.DB, rows int, statement string) string {
	id := func(n string) string { return "UNHEX(LPAD(HEX(" + n + "),32,'0'))" }
	text := "CAST(n AS BINARY)"
	if db.Engine == dbtest.SQLite {
		id = func(n string) string { return "unhex(printf('%032x'," + n + "))" }
		text = "CAST(CAST(n AS TEXT) AS BLOB)"
		statement = blobs(statement)
	}
	return strings.NewReplacer("{id}", id("n"), "{one}", id(strconv.Itoa(planQueue)), "{two}", id(strconv.Itoa(planBulk)),
		"{text}", text, "{rows}", numbers(rows), "{parts}", numbers(planParts)).Replace(statement)
}

// numbers is a table of the numbers n from 0 to below, made of as many digits as they have.
func numbers(below int) string {
	const digit = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
		" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	var sum, tables []string
	for i, unit := 0, 1; unit < below; i, unit = i+1, unit*10 {
		sum = append(sum, fmt.Sprintf("%d*t%d.d", unit, i))
		tables = append(tables, fmt.Sprintf("%s t%d", digit, i))
	}
	return fmt.Sprintf("(SELECT n FROM (SELECT %s AS n FROM %s) every WHERE n < %d) numbers",
		strings.Join(sum, "+"), strings.Join(tables, ", "), below)
}

// blobs makes the text literals of the statement binary: tables of SQLite are strict.
func blobs(statement string) string {
	for _, text := range []string{"'hot'", "''", "'h'", "'v'", "'p'", "'n'", "'{}'"} {
		statement = strings.ReplaceAll(statement, text, "CAST("+text+" AS BLOB)")
	}
	return statement
}

func checkPlan(t *testing.T, db *dbtest.DB, p plan, full bool) {
	t.Helper()
	on := map[bool]string{false: "empty table", true: "full table"}[full]
	lines, err := plancheck.Explain(t.Context(), db, p.sql, p.args)
	if err != nil {
		t.Errorf("%s, %s: %v", p.name, on, err)
		return
	}
	for _, line := range lines {
		for _, want := range wantedOf(db, p.index) {
			if !strings.Contains(line, want) && !strings.Contains(line, "B-TREE") {
				t.Errorf("%s, %s: %q is not in the plan:\n%s", p.name, on, want, line)
			}
		}
		if !p.sorts && (strings.Contains(line, "filesort") || strings.Contains(line, "B-TREE") || strings.Contains(line, "temporary")) {
			t.Errorf("%s, %s: sorts:\n%s", p.name, on, line)
		}
		if full && (strings.Contains(line, "type=ALL ") || strings.Contains(line, "type=index ") || strings.Contains(line, "SCAN ")) {
			t.Errorf("%s, %s: reads everything:\n%s", p.name, on, line)
		}
	}
}

// wantedOf is what a line of a plan has if it reads a range of index.
func wantedOf(db *dbtest.DB, index string) []string {
	switch {
	case index == "":
		return nil
	case db.Engine == dbtest.SQLite:
		return []string{"SEARCH", "INDEX " + index}
	}
	return []string{"key=" + index + " "}
}

// checkReads counts what the engine looks at, where it tells: a plan may name the right
// index and still pass over rows without end.
func checkReads(t *testing.T, db *dbtest.DB, p plan) {
	t.Helper()
	if p.reads == 0 || db.Engine == dbtest.SQLite {
		return
	}
	conn, err := db.Read().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := handlerReads(t, conn)
	rows, err := conn.QueryContext(t.Context(), p.sql, p.args...)
	err = each(rows, err, func(*sql.Rows) (bool, error) { return true, nil })
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	if reads := handlerReads(t, conn) - before; reads > p.reads {
		t.Errorf("%s: looks at %d rows or entries, want at most %d", p.name, reads, p.reads)
	}
}

func handlerReads(t *testing.T, conn *sql.Conn) (sum int64) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name IN"+
		" ('Handler_read_first','Handler_read_key','Handler_read_last','Handler_read_next','Handler_read_prev','Handler_read_rnd')")
	err = each(rows, err, func(rows *sql.Rows) (bool, error) {
		var name string
		var n int64
		err := rows.Scan(&name, &n)
		sum += n
		return true, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// checkWindows reads the tasks of a key that many have in a state that few have: in more
// than one window, each of them once and in order (LIST-010, LIST-014).
func checkWindows(t *testing.T, db *dbtest.DB) {
	t.Helper()
	from, before := int64(100*planSeconds), int64(19_900*planSeconds)
	f := TaskFilter{Queue: numbered(planQueue), State: task.Waiting, BusinessKey: "hot", CreatedFrom: &from, CreatedBefore: &before}
	var want []string
	for n := 19_899; n >= 100; n-- {
		if n%100 == 2 && n%3 == 0 {
			want = append(want, numbered(n).String())
		}
	}
	var got []string
	var last *Place
	for pages := 0; pages == 0 || last != nil && pages < 200; pages++ {
		page, err := New(db.DB).Tasks(t.Context(), f, last, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		last = page.Next
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d tasks of the key in the state, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
	f.State = task.Leased // nobody has it
	page, err := New(db.DB).Tasks(t.Context(), f, nil, 100)
	if err != nil || len(page.Tasks) != 0 || page.Next == nil {
		t.Errorf("first window without such a task = %+v, %v, want an empty page with a next one", page, err)
	}
}

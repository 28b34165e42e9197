package admin

import (
	"fmt"
	"math"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
)

// LIST-010: what operators list is a range of an index, without a sort, whether
// there are few rows or many.
func TestOperatorsReadByIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		d, id := db.Dialect(), sqldb.NewID()
		name := func(index, onSQLite string) string {
			if db.Engine == dbtest.SQLite {
				return onSQLite
			}
			return index
		}
		inNamespace, args := auditOfNamespace(d, id, math.MinInt64, math.MaxInt64, math.MaxInt64)
		queries := []plancheck.Query{
			{Name: "audit", SQL: fmt.Sprintf(selectAudit, "") + auditBySeq, Args: []any{int64(math.MaxInt64), 51}, Table: "audit", Index: name("PRIMARY", "INTEGER PRIMARY KEY")},
			{Name: "audit of a target", SQL: fmt.Sprintf(selectAudit, d.ByIndex("audit_target")) + auditByTarget, Args: []any{id, int64(math.MaxInt64), 51}, Table: "audit", Index: "audit_target"},
			{Name: "audit of a namespace", SQL: inNamespace, Args: append(args, 51), Table: "audit", Index: "audit_namespace"},
			{Name: "successions", SQL: fmt.Sprintf(selectSuccessions, d.ByIndex("audit_target"), sqldb.Placeholders(3)), Args: []any{id, id, id}, Table: "audit", Index: "audit_target"},
			{Name: "queues", SQL: selectQueuesAfter, Args: []any{id, []byte("q"), walked}, Table: "queue", Index: "queue_name"},
			{Name: "namespaces", SQL: selectNamespaceAfter, Args: []any{id, []byte("n")}, Table: "namespace", Index: "namespace_name"},
		}
		plancheck.Run(t, db, queries)
		fillAudit(t, db)
		plancheck.Run(t, db, queries)
	}, migrations.Server)
}

// fillAudit gives each task a row, half of them in one namespace.
func fillAudit(t *testing.T, db *dbtest.DB) {
	t.Helper()
	analyze := "ANALYZE TABLE audit"
	if db.Engine == dbtest.SQLite {
		analyze = "ANALYZE"
	}
	fill := `INSERT INTO audit (namespace_id, action, target_id, created_at)
SELECT CASE WHEN created_at % 2 = 0 THEN (SELECT MIN(id) FROM task) ELSE id END, handler, id, created_at
FROM task`
	for _, statement := range []string{fill, analyze} {
		if _, err := db.Write().ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// A page of the audit looks at no more rows than its window has, and the pages together still
// find what fits, each row once.
func TestAPageOfTheAuditLooksAtAWindow(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		const rows, every = 2*auditWindow + 500, 7000
		for from := 1; from <= rows; from += 500 {
			args := []any{}
			for n := from; n < from+500; n++ {
				action := "many"
				if n%every == 0 {
					action = "few"
				}
				args = append(args, []byte(action), int64(n))
			}
			if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO audit (action, created_at) VALUES "+sqldb.Rows(500, 2), args...); err != nil {
				t.Fatal(err)
			}
		}
		o := NewOperator(db.DB, "who")
		f := AuditFilter{Action: "few"}
		found, pages := 0, 0
		for {
			entries, next, err := o.Audit(t.Context(), f, 50)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Action != "few" || f.After != 0 && e.Seq >= f.After {
					t.Errorf("row %d %s after %d", e.Seq, e.Action, f.After)
				}
			}
			found, pages = found+len(entries), pages+1
			if next == 0 {
				break
			}
			if f.After != 0 && f.After-next != auditWindow {
				t.Errorf("a page looked at %d rows, want %d", f.After-next, auditWindow)
			}
			f.After = next
		}
		if found != rows/every || pages != 3 {
			t.Errorf("%d rows in %d pages, want %d in 3", found, pages, rows/every)
		}
	}, migrations.Server)
}

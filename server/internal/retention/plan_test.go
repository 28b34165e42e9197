package retention

import (
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
)

// IDEM-025: a run reads what it deletes and little else.
func TestRetentionUsesItsIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		page, args := pageQuery(db.Dialect(), place{}, 1)
		in := sqldb.Placeholders(2)
		ids := []any{sqldb.NewID(), sqldb.NewID()}
		sqlite := db.Engine == dbtest.SQLite
		queries := []plancheck.Query{
			// SQLite sorts what has one deadline: its indexes end with the row's number.
			{Name: "page", Table: "i", Index: "idempotency_retain", SQL: page, Args: args, Sorts: sqlite},
			{Name: "page, later records", Table: "x", Index: "idempotency_task", SQL: page, Args: args, Sorts: sqlite},
			{Name: "last run", Table: "audit", Index: "audit_namespace", SQL: selectLast, Args: []any{[]byte(Action)}},
		}
		name := func(index, onSQLite string) string {
			if sqlite {
				return onSQLite
			}
			return index
		}
		for _, p := range parts {
			queries = append(queries,
				plancheck.Query{Name: "weigh " + p.table, Table: p.table, Index: name(p.index, p.table), SQL: fmt.Sprintf(weighPart, p.bytes, p.table, in), Args: ids, Sorts: true},
				plancheck.Query{Name: "delete " + p.table, Table: name("x", p.table), Index: name(p.index, p.table), SQL: deleteQuery(db.Dialect(), p.table, p.index, "task_id", 2), Args: ids})
		}
		for table, column := range map[string]string{"task": "id", "idempotency": "digest"} {
			queries = append(queries, plancheck.Query{Name: "delete " + table, Table: name("x", table), Index: name("PRIMARY", "sqlite_autoindex_"+table),
				SQL: deleteQuery(db.Dialect(), table, "PRIMARY", column, 2), Args: ids})
		}
		plancheck.Run(t, db, queries)
		fillRecords(t, db)
		plancheck.Run(t, db, queries)
	}, migrations.Server)
}

// fillRecords gives each task a record, most of them with one deadline.
func fillRecords(t *testing.T, db *dbtest.DB) {
	t.Helper()
	digest, analyze := "CONCAT(id, id)", "ANALYZE TABLE idempotency"
	if db.Engine == dbtest.SQLite {
		digest, analyze = "CAST(id || id AS BLOB)", "ANALYZE"
	}
	fill := `INSERT INTO idempotency (digest, namespace_id, operation, task_id, idempotency_key, algorithm, content_digest, status, receipt, payload_at, created_at, retain_until)
SELECT ` + digest + `, id, 1, id, id, id, id, 201, id, 1, 1, CASE WHEN created_at < 100 THEN created_at ELSE 100 END FROM task`
	for _, statement := range []string{fill, analyze} {
		if _, err := db.Write().Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

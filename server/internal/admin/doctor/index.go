package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// expected are the indexes that the migrations make, primary keys aside, by table and name:
// the cost of each statement rests on them.
var expected = map[string]string{
	"application.application_name":    "name",
	"namespace.namespace_name":        "application_id,name",
	"queue.queue_name":                "namespace_id,name",
	"credential.credential_namespace": "namespace_id",
	"task.task_list":                  "queue_id,created_at,id",
	"task.task_state":                 "queue_id,state,created_at,id",
	"task.task_business":              "queue_id,business_key,created_at,id",
	"task.task_expire":                "expire_at",
	"task.task_claim":                 "dispatch_lane,order_value,id",
	"task.task_parked":                "concurrency_key_digest,dispatch_state,lane,order_value,id",
	"task_event.task_event_task":      "task_id,seq",
	"audit.audit_namespace":           "namespace_id,created_at",
	"audit.audit_target":              "target_id",
	"idempotency.idempotency_retain":  "retain_until",
	"idempotency.idempotency_task":    "task_id",
	"attempt.attempt_epoch":           "task_id,epoch",
	"attempt.attempt_expiry":          "live,lease_until",
	"attempt.attempt_queue":           "queue_id,live",
	"attempt.attempt_application":     "application_id,live",
	"attempt.attempt_process":         "process_id,live",
	"evidence.evidence_task":          "task_id,created_at,id",
	"review.review_task":              "task_id,created_at",
}

const (
	mysqlIndexes = `
SELECT table_name, index_name, column_name
FROM information_schema.statistics
WHERE table_schema = DATABASE()
  AND index_name <> 'PRIMARY'
ORDER BY table_name, index_name, seq_in_index`

	sqliteIndexes = `
SELECT m.tbl_name, m.name, c.name
FROM sqlite_master m
JOIN pragma_index_info(m.name) c
WHERE m.type = 'index'
  AND m.sql IS NOT NULL
ORDER BY m.tbl_name, m.name, c.seqno`
)

// present reads the indexes that the database has, in the form of expected.
func (e *examiner) present(ctx context.Context) (map[string]string, error) {
	query := mysqlIndexes
	if e.db.Dialect() == sqldb.SQLite {
		query = sqliteIndexes
	}
	columns := map[string][]string{}
	err := sqldb.EachRow(ctx, e.db.Read(), query, nil, func(scan func(...any) error) error {
		var table, index, column string
		err := scan(&table, &index, &column)
		name := table + "." + index
		columns[name] = append(columns[name], column)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read indexes: %w", err)
	}
	indexes := map[string]string{}
	for name, c := range columns {
		indexes[name] = strings.Join(c, ",")
	}
	return indexes, nil
}

// tables returns the tables that have an index in expected.
func tables() map[string]bool {
	names := map[string]bool{}
	for name := range expected {
		table, _, _ := strings.Cut(name, ".")
		names[table] = true
	}
	return names
}

const mysqlTables = `
SELECT table_name
FROM information_schema.tables
WHERE table_schema = DATABASE()`

// hidden reports which tables of expected the user has no right on: a MySQL server does
// not tell what they have.
func (e *examiner) hidden(ctx context.Context) (map[string]bool, error) {
	if e.db.Dialect() == sqldb.SQLite {
		return nil, nil
	}
	hidden := tables()
	err := sqldb.EachRow(ctx, e.db.Read(), mysqlTables, nil, func(scan func(...any) error) error {
		var table string
		err := scan(&table)
		delete(hidden, table)
		return err
	})
	return hidden, err
}

func (e *examiner) indexes(ctx context.Context) ([]Finding, error) {
	hidden, err := e.hidden(ctx)
	if err != nil {
		return nil, err
	}
	present, err := e.present(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for name, columns := range expected {
		if table, _, _ := strings.Cut(name, "."); !hidden[table] && present[name] != columns {
			missing = append(missing, fmt.Sprintf("%s (%s)", name, columns))
		}
	}
	switch {
	case len(missing) > 0:
		slices.Sort(missing)
		return fail("make them again as the steps of orbit-migrate do, or restore the schema", "missing or changed: %s", strings.Join(missing, ", ")), nil
	case len(hidden) > 0:
		names := strings.Join(slices.Sorted(maps.Keys(hidden)), ", ")
		return []Finding{{Level: Skipped, Text: "these tables do not exist, or the user has no right on them: " + names}}, nil
	}
	return ok("all %d are as the migrations make them", len(expected)), nil
}

package migrations

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A trace is what the catalogue shows of a statement.
type trace int

const (
	traceNone    trace = iota // nothing of the statement is in force
	traceWhole                // all of it is
	tracePart                 // some of it is
	traceUnknown              // the catalogue cannot tell
)

// look asks the catalogue how much of s is in force. It asks for one effect at a time: a
// statement of a crashed runner that ends in between, and comes into force whole, seems to
// be there in part. It does so once, thus a second look tells.
func look(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, s statement) (trace, error) {
	t, err := glance(ctx, q, d, s)
	if err == nil && t == tracePart {
		return glance(ctx, q, d, s)
	}
	return t, err
}

func glance(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, s statement) (trace, error) {
	if len(s.effects) == 0 {
		return traceUnknown, nil
	}
	seen := 0
	for _, e := range s.effects {
		there, err := exists(ctx, q, d, e)
		if err != nil {
			return traceUnknown, err
		}
		if there == e.present {
			seen++
		}
	}
	switch seen {
	case 0:
		return traceNone, nil
	case len(s.effects):
		return traceWhole, nil
	}
	return tracePart, nil
}

const (
	mysqlTable  = `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?`
	mysqlColumn = `SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ?`
	mysqlIndex  = `SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? AND index_name = ?`

	sqliteTable  = `SELECT COUNT(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?`
	sqliteColumn = `SELECT COUNT(*) FROM pragma_table_info(?) WHERE name = ?`
	sqliteIndex  = `SELECT COUNT(*) FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND name = ?`

	postgresTable  = `SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1`
	postgresColumn = `SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 AND column_name = $2`
	postgresIndex  = `SELECT COUNT(*) FROM pg_indexes WHERE schemaname = current_schema() AND tablename = $1 AND indexname = $2`
)

func exists(ctx context.Context, q sqldb.Querier, d *sqldb.Dialect, e effect) (bool, error) {
	table, column, index := mysqlTable, mysqlColumn, mysqlIndex
	switch d {
	case sqldb.SQLite:
		table, column, index = sqliteTable, sqliteColumn, sqliteIndex
	case sqldb.PostgreSQL:
		table, column, index = postgresTable, postgresColumn, postgresIndex
	}
	query, args := table, []any{e.name}
	switch e.kind {
	case columnObject:
		query, args = column, []any{e.table, e.name}
	case indexObject:
		query, args = index, []any{e.table, e.name}
	}
	var n int
	if err := q.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return false, fmt.Errorf("look for %s: %w", e, err)
	}
	return n > 0, nil
}

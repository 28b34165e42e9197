package admin

import (
	"context"
	"database/sql"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// eachRow runs a query and calls f with the scan of each row.
func eachRow(ctx context.Context, q sqldb.Querier, query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// timeOf is a column of time that may be empty.
func timeOf(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := sqldb.Time(micros.Int64)
	return &t
}

// hexOf is an id that may be unset, for people.
func hexOf(id sqldb.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

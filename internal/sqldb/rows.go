package sqldb

import "context"

// EachRow runs a query and calls f with the scan of each row, until f fails. A row's
// values are valid until f returns.
func EachRow(ctx context.Context, q Querier, query string, args []any, f func(scan func(...any) error) error) error {
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

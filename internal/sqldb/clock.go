package sqldb

import (
	"context"
	"time"
)

// Micros returns t as microseconds since 1970 UTC, the form of every time column.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// Time returns the UTC time of a time column.
func Time(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// ClockNow reads the database's clock through q, in microseconds UTC.
func (d *Dialect) ClockNow(ctx context.Context, q Querier) (int64, error) {
	var now int64
	err := q.QueryRowContext(ctx, "SELECT "+d.Clock).Scan(&now)
	return now, err
}

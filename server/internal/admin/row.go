package admin

import (
	"database/sql"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

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

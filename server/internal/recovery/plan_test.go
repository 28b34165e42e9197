package recovery

import (
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
)

func TestSweepsUseTheirIndexes(t *testing.T) { // cost law 7
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		clock, skip := db.Dialect().Clock, db.Dialect().SkipLocked
		plancheck.Run(t, db, []plancheck.Query{
			{Name: "expired leases", Table: "attempt", Index: "attempt_expiry", SQL: fmt.Sprintf(selectExpiredLeases, clock), Args: []any{batch}},
			{Name: "expired tasks", Table: "task", Index: "task_expire", SQL: fmt.Sprintf(selectExpiredTasks, clock), Args: []any{batch}},
			{Name: "due tasks", Table: "task", Index: "task_claim", SQL: selectDue + skip, Args: []any{int64(100), batch}},
			{Name: "next due task", Table: "task", Index: "task_claim", SQL: fmt.Sprintf(selectNextDue, clock)},
			{Name: "keys with parked tasks", Table: "p", Index: "task_parked", SQL: selectSuspects, Args: []any{make([]byte, 32), sliceOfKeys}},
		})
	}, migrations.Server)
}

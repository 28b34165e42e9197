package query

import (
	"fmt"
	"math"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
)

// REF-HIST-002: a page of history is read by keyset, without a sort.
func TestHistoryUsesItsIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		id := sqldb.NewID()
		plancheck.Run(t, db, []plancheck.Query{
			{Name: "attempts of a task", Table: "attempt", Index: "attempt_epoch", SQL: selectAttempts, Args: []any{id, int64(math.MaxInt64), 21}},
			{Name: "events of attempts", Table: "task_event", Index: "task_event_task",
				SQL: fmt.Sprintf(selectReasons, "(?,?)"), Args: []any{id, []byte{}, id, id}},
		})
	}, migrations.Server)
}

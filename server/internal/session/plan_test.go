package session

import (
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
)

func TestPollUsesTheClaimIndex(t *testing.T) { // cost law 7
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		plancheck.Run(t, db, []plancheck.Query{
			{Name: "poll", Table: "task", Index: "task_claim", SQL: fmt.Sprintf(selectPoll, "(?,?,?)"), Args: []any{int64(60), int64(61), int64(62), pollRows}},
			{Name: "attempts of a process", Table: "attempt", Index: "attempt_process", SQL: fmt.Sprintf(selectHoldings, db.Dialect().Clock, db.Dialect().ByIndex("attempt_process")),
				Args: []any{make([]byte, 16), make([]byte, 16)}, Sorts: true},
		})
	}, migrations.Server)
}

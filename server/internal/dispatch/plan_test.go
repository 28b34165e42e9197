package dispatch

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

func TestHotQueriesUseTheirIndexes(t *testing.T) { // cost law 2
	id, lane := make([]byte, 16), int64(5)
	digest, other := make([]byte, 32), append([]byte{2}, make([]byte, 31)...)
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		insert := "INSERT INTO resource (digest, kind, namespace_id, resource_key, created_at) VALUES (?, 2, ?, ?, 0)"
		for _, d := range [][]byte{digest, other, bytes.Repeat([]byte{9}, 32)} {
			if _, err := db.Write().Exec(insert, d, id, []byte("k")); err != nil {
				t.Fatal(err)
			}
		}
		skip := db.Dialect().SkipLocked
		plancheck.Run(t, db, []plancheck.Query{
			{Name: "head of a lane", Table: "task", Index: "task_claim", SQL: selectHead + skip, Args: []any{inlinePayload, lane, 100}},
			{Name: "lane behind a place", Table: "task", Index: "task_claim", SQL: selectAfter + skip, Args: []any{inlinePayload, lane, int64(7), int64(7), id, 100}},
			{Name: "order of two lanes", Table: "task", Index: "task_claim", Sorts: true,
				SQL: selectOrder + "\nUNION ALL" + selectOrder, Args: []any{lane, 100, int64(9), 100}},
			{Name: "live attempts of a queue", Table: "attempt", Index: "attempt_queue", Sorts: true,
				SQL: fmt.Sprintf(countOfQueues, db.Dialect().ByIndex("attempt_queue"), "(?)"), Args: []any{id}},
			{Name: "live attempts of an application", Table: "attempt", Index: "attempt_application", Sorts: true,
				SQL: fmt.Sprintf(countOfApplications, db.Dialect().ByIndex("attempt_application"), "(?)"), Args: []any{id}},
			{Name: "parked tasks of keys", Table: "p", Index: "task_parked", SQL: settle.SelectParked + "(?,?)", Args: []any{digest, other}},
			{Name: "ready lanes of keys", Table: "task", Index: "task_parked", Sorts: true,
				SQL: fmt.Sprintf(settle.SelectReadyLanes, "?,?"), Args: []any{digest, other}},
			{Name: "next lane of a key", Table: "task", Index: "task_parked", SQL: settle.SelectNextLane, Args: []any{digest, int64(3)}},
		})
	}, migrations.Server)
}

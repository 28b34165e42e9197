package accept

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
	"github.com/orbitkit/orbit/server/internal/keyrow"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Cost law 2: to see whether a key has READY tasks costs as much as it has lanes with
// some, whatever waits, is done or is parked beside them.
func TestHotQueriesUseTheirIndexes(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		var queries []plancheck.Query
		for _, n := range []int{1, 100} {
			var keys []any
			for i := range n {
				keys = append(keys, binary.BigEndian.AppendUint64(make([]byte, 24), uint64(i)))
			}
			queries = append(queries, plancheck.Query{
				Name: fmt.Sprintf("ready tasks of %d keys", n), Table: "task", Index: "task_parked", Sorts: true,
				SQL: fmt.Sprintf(selectReady, sqldb.Placeholders(n)), Args: append(keys[:n:n], task.DispatchReady),
			}, plancheck.Query{
				Name: fmt.Sprintf("tasks of %d keys without a row", n), Table: "task", Index: "task_parked", Sorts: true,
				SQL: keyrow.SelectReferred + sqldb.Placeholders(n), Args: keys,
			})
		}
		plancheck.Run(t, db, queries)
	}, migrations.Server)
}

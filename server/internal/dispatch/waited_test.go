package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
)

// A claim sees the sessions of its takers before it waits for its gates, for seconds behind
// a node that is stopped in its transaction. What it has seen counts no more then. SQLite
// has one writer, which has waited before it sees anything.
func TestAClaimThatWaitedForItsGatesJudgesItsTakersAfterwards(t *testing.T) { // ERR-002, STATE-006, LIC-014
	dbtest.RunOn(t, []string{dbtest.MySQL, dbtest.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		n := newNode(t, db.DB, "node-a", dispatch.Config{})
		for _, row := range []string{"queue", "application"} {
			t.Run(row, func(t *testing.T) {
				x := spec{Queue: w.NewQueue(row)}
				claim(t, n, w.Taker(1, x.Lane()), x.Lane()) // the node learns of limits and owners, without a task
				takers := make([]dispatch.Taker, 3)
				for i := range takers {
					w.Submit(x)
					takers[i] = w.Taker(3, x.Lane())
					takers[i].Credential, takers[i].ConnectedAt = sqldb.NewID(), 6
					w.Exec("INSERT INTO credential (id, namespace_id, name, secret_digest, permissions, all_queues, created_at) VALUES (?, ?, ?, ?, ?, 1, 6)",
						takers[i].Credential, w.Namespace, []byte(takers[i].Credential.String()), make([]byte, 32), []byte("workers:run"))
					w.Exec(`INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id, connected_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, 6, 6)`, w.Namespace, takers[i].Process, takers[i].Credential, make([]byte, 32), []byte("{}"), []byte("node-a"))
				}
				revoked, replaced, good := 0, 1, 2

				holder, err := db.Reopen(t).Write().BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer holder.Rollback()
				id := map[string]sqldb.ID{"queue": x.Queue, "application": w.Application}[row]
				if _, err := holder.ExecContext(t.Context(), "SELECT id FROM "+row+" WHERE id = ? FOR UPDATE", id); err != nil {
					t.Fatal(err)
				}
				done := make(chan dispatch.Claimed, 1)
				go func() {
					got, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane()}, takers)
					if err != nil {
						t.Errorf("Claim = %v", err)
					}
					done <- got
				}()
				db.AwaitStatement(t, "(\nSELECT 5", "")
				w.Exec("UPDATE credential SET revoked_at = 1 WHERE id = ?", takers[revoked].Credential)
				w.Exec("UPDATE worker_session SET connected_at = 7 WHERE process_id = ?", takers[replaced].Process)
				time.Sleep(settle.Freshness + 100*time.Millisecond)
				released := w.Now()
				if err := holder.Commit(); err != nil {
					t.Fatal(err)
				}
				got := <-done
				if len(got.Grants) != len(takers) || !slices.Equal(got.Barred, []int{revoked}) || !slices.Equal(got.Replaced, []int{replaced}) {
					t.Fatalf("Claim = %+v, want %d grants, taker %d barred and taker %d replaced", got, len(takers), revoked, replaced)
				}
				for _, g := range got.Grants {
					if at := w.Int("SELECT claimed_at FROM attempt WHERE id = ?", g.Attempt); g.Taker != good || at < released {
						t.Errorf("taker %d was given a task at %d, want taker %d, at %d or later", g.Taker, at, good, released)
					}
				}
			})
		}
	}, migrations.Server)
}

package dispatch_test

import (
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
// a node that is stopped in its transaction. What it has seen counts no more then. One taker
// is the worst case: of several the servers read the sessions last. SQLite has one writer,
// which has waited before it sees anything.
func TestAClaimThatWaitedForItsGatesJudgesItsTakerAfterwards(t *testing.T) { // ERR-002, STATE-006, LIC-014
	dbtest.RunOn(t, []string{dbtest.MySQL, dbtest.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		w := dispatchtest.New(t, db.DB)
		n := newNode(t, db.DB, "node-a", dispatch.Config{})
		// waiting claims a task for a taker while a row is locked, and returns when it was released.
		waiting := func(table string, meanwhile func(dispatch.Taker)) (got dispatch.Claimed, released int64) {
			t.Helper()
			x := spec{Queue: w.NewQueue(sqldb.NewID().String())}
			claim(t, n, w.Taker(1, x.Lane()), x.Lane()) // the node learns of limits and owners
			w.Submit(x)
			taker := w.Taker(1, x.Lane())
			taker.Credential, taker.ConnectedAt = sqldb.NewID(), 6
			w.Exec("INSERT INTO credential (id, namespace_id, name, secret_digest, permissions, all_queues, created_at) VALUES (?, ?, ?, ?, ?, 1, 6)",
				taker.Credential, w.Namespace, []byte(taker.Credential.String()), make([]byte, 32), []byte("workers:run"))
			w.Exec(`INSERT INTO worker_session (namespace_id, process_id, credential_id, registration_digest, registration, node_id, connected_at, seen_at)
VALUES (?, ?, ?, ?, ?, ?, 6, 6)`, w.Namespace, taker.Process, taker.Credential, make([]byte, 32), []byte("{}"), []byte("node-a"))

			holder, err := db.Reopen(t).Write().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Rollback()
			row := map[string]sqldb.ID{"queue": x.Queue, "application": w.Application}[table]
			if _, err := holder.ExecContext(t.Context(), "SELECT id FROM "+table+" WHERE id = ? FOR UPDATE", row); err != nil {
				t.Fatal(err)
			}
			done := make(chan dispatch.Claimed, 1)
			go func() {
				got, err := n.Claim(t.Context(), []dispatch.Lane{x.Lane()}, []dispatch.Taker{taker})
				if err != nil {
					t.Errorf("Claim = %v", err)
				}
				done <- got
			}()
			db.AwaitStatement(t, "(\nSELECT 5", "")
			meanwhile(taker)
			time.Sleep(settle.Freshness + 100*time.Millisecond)
			released = w.Now()
			if err := holder.Commit(); err != nil {
				t.Fatal(err)
			}
			return <-done, released
		}
		got, _ := waiting("queue", func(taker dispatch.Taker) {
			w.Exec("UPDATE credential SET revoked_at = 1 WHERE id = ?", taker.Credential)
		})
		if len(got.Grants) != 0 || len(got.Barred) != 1 || len(got.Replaced) != 0 {
			t.Errorf("the credential was revoked while it waited: Claim = %+v, want the taker barred", got)
		}
		got, _ = waiting("application", func(taker dispatch.Taker) {
			w.Exec("UPDATE worker_session SET connected_at = 7 WHERE process_id = ?", taker.Process)
		})
		if len(got.Grants) != 0 || len(got.Barred) != 0 || len(got.Replaced) != 1 {
			t.Errorf("the session was replaced while it waited: Claim = %+v, want the taker replaced", got)
		}
		got, released := waiting("queue", func(dispatch.Taker) {})
		if len(got.Grants) != 1 {
			t.Fatalf("Claim = %+v, want a grant", got)
		}
		if at := w.Int("SELECT claimed_at FROM attempt WHERE id = ?", got.Grants[0].Attempt); at < released {
			t.Errorf("the task was claimed at %d, want at %d or later", at, released)
		}
	}, migrations.Server)
}

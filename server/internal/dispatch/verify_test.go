package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/server/internal/dispatch"
)

// Two attempts that overlap held their key at once, unless the events show that the clock
// was set back by as much in between: then their tokens alone tell who came first.
func TestVerifyTellsTwoHoldersFromAClockThatWasSetBack(t *testing.T) { // LIC-018, LIC-019
	run(t, func(t *testing.T, w world, n node, db *dbtest.DB) {
		x := spec{Queue: w.NewQueue("a"), Key: "key"}
		var attempts []any
		for range 2 {
			w.Submit(x)
			taker := w.Taker(1, x.Lane())
			g := claimOne(t, n, taker, x.Lane())
			ref := refOf(taker, g)
			mustStart(t, n, ref)
			finish(t, n, success(ref))
			attempts = append(attempts, g.Attempt)
		}
		held := func() bool {
			found, err := dispatch.Verify(t.Context(), db.DB)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, "attempts with tokens 1 and 3 held a key at once") })
		}
		hour := time.Hour.Microseconds()
		if held() {
			t.Error("one after the other: two holders")
		}
		w.Exec("UPDATE attempt SET claimed_at = claimed_at + ?, started_at = started_at + ?, ended_at = ended_at + ? WHERE id = ?", hour, hour, hour, attempts[0])
		if !held() {
			t.Error("they overlap by an hour: no fault found")
		}
		w.Exec("UPDATE task_event SET created_at = created_at + ? WHERE attempt_id = ?", hour, attempts[0])
		if held() {
			t.Error("the clock was set back by an hour: two holders")
		}
		w.Exec("UPDATE attempt SET ended_at = ended_at + ? WHERE id = ?", hour, attempts[0])
		if !held() {
			t.Error("they overlap by more than the clock was set back: no fault found")
		}
		w.Exec("UPDATE attempt SET ended_at = ended_at - ? WHERE id = ?", hour, attempts[0])
	})
}

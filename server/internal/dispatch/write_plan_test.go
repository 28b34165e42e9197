package dispatch_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server/internal/dispatch"
	"github.com/orbitkit/orbit/server/internal/dispatch/dispatchtest"
	"github.com/orbitkit/orbit/server/internal/dispatch/plancheck"
	"github.com/orbitkit/orbit/server/internal/task"
)

// fillAttempts gives each task an attempt, which lives or has ended as the task has.
const fillAttempts = `
INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id,
    lease_ms, claimed_at, state, live, lease_until, timeout_at)
SELECT id, id, 1, 1, id, id, id, id, id, 1, created_at,
    CASE WHEN dispatch_state = 0 THEN 3 ELSE 2 END, CASE WHEN dispatch_state = 0 THEN NULL ELSE 1 END, created_at, created_at
FROM task
WHERE attempt_id IS NULL AND revision = 1`

// ofRows finds the statements that are about tasks or attempts of a batch.
var ofRows = regexp.MustCompile(`(?s)^\s*(?:UPDATE|SELECT\s.*\sFROM)\s(task|attempt)\s.*\sid IN \(`)

// Whatever a claim, a start and a finish of a batch read, lock and write of tasks and
// attempts they find by primary key, under locks and from memory: rows beside those of the
// batch may belong to others, whom they would wait for (cost law 2, LIC-014).
func TestBatchesTouchTheirOwnRowsAlone(t *testing.T) {
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		queries := recordBatches(t, db)
		for _, table := range []string{"task", "attempt"} { // a small table tempts most
			if _, err := db.Write().Exec("DELETE FROM " + table); err != nil {
				t.Fatal(err)
			}
		}
		plancheck.Run(t, db, queries, fillAttempts)
	}, migrations.Server)
}

// recordBatches settles batches of several sizes in every way and returns what was run for it.
func recordBatches(t *testing.T, db *dbtest.DB) (queries []plancheck.Query) {
	t.Helper()
	size, seen := 0, make(map[string]bool)
	see := func(query string, args []any) {
		if of := ofRows.FindStringSubmatch(query); of != nil && !seen[query] {
			seen[query] = true
			queries = append(queries, plancheck.Query{
				Name: fmt.Sprintf("%d rows: %s", size, strings.Join(strings.Fields(query), " ")), SQL: query, Args: args,
				Table: of[1], Index: plancheck.Primary, Rows: size, Sorts: true,
			})
		}
	}
	t.Run("batches", func(t *testing.T) { // whose world is verified before the tables are filled
		w := dispatchtest.New(t, db.DB)
		n := newNode(t, plancheck.Record(t, db, see), "node-a", dispatch.Config{})
		x := spec{Queue: w.NewQueue("q"), Idempotent: true, MaxAttempts: 2, InitialDelay: time.Hour, MaxDelay: time.Hour}
		for _, size = range []int{1, 3, dispatch.MaxBatch} {
			for _, way := range waysToFinish {
				w.Flood(size, x)
				settleBatch(t, n, w.Taker(size, x.Lane()), x.Lane(), way)
			}
		}
		x.Key, size = "k", 3 // of which one gets the key, and the others are parked
		w.Submit(x)
		w.Flood(size-1, x)
		taker := w.Taker(size, x.Lane())
		ref := refOf(taker, claimOne(t, n, taker, x.Lane()))
		mustStart(t, n, ref)
		finish(t, n, success(ref))
	})
	for _, part := range []string{
		"attempt_id = CASE id", "lease_until = CASE", "progress = CASE", "SET dispatch_state = 3", "SET dispatch_state = 1", "started_count = started_count + 1", "SET state = ?, lease_until", "completed_at = ?", "order_value = CASE", "dispatch_lane = CASE",
		"SET state = ?, live = NULL", "result = CASE id", "result = (SELECT", "AND revision IN", "AND lease_until >", "OR timeout_at >", "FOR UPDATE",
	} {
		found := slices.ContainsFunc(queries, func(q plancheck.Query) bool { return strings.Contains(q.SQL, part) })
		if !found && (part != "FOR UPDATE" || db.Engine != dbtest.SQLite) {
			t.Errorf("no batch has run a statement with %q", part)
		}
	}
	return queries
}

// A wayToFinish is how the attempts of a batch end, in turn.
type wayToFinish struct {
	outcomes []dispatch.Finish
	forget   bool // the node does not remember them
	giveBack bool // they are not started
}

var (
	succeed = dispatch.Finish{Outcome: task.OutcomeSucceeded, Result: []byte(`{"ok":true}`)}
	retry   = dispatch.Finish{Outcome: task.OutcomeFailed, Retryable: true, Error: []byte("busy")}

	waysToFinish = []wayToFinish{
		{outcomes: []dispatch.Finish{succeed}},
		{outcomes: []dispatch.Finish{retry}},
		{outcomes: []dispatch.Finish{succeed, retry}},
		{outcomes: []dispatch.Finish{succeed, retry}, forget: true},
		{giveBack: true},
	}
)

func settleBatch(t *testing.T, n node, taker dispatch.Taker, lane dispatch.Lane, way wayToFinish) {
	t.Helper()
	var refs []dispatch.Ref
	for _, g := range claim(t, n, taker, lane) {
		ref := refOf(taker, g)
		if way.forget {
			ref.Hint = dispatch.Hint{}
		}
		refs = append(refs, ref)
	}
	if len(refs) != taker.Slots {
		t.Fatalf("Claim gave %d tasks, want %d", len(refs), taker.Slots)
	}
	if way.giveBack {
		if got, err := n.Return(t.Context(), refs); err != nil || got[0].Refusal != nil {
			t.Fatalf("Return = %+v, %v", got, err)
		}
		return
	}
	started, err := n.Start(t.Context(), refs)
	if err != nil {
		t.Fatalf("Start = %v", err)
	}
	list, renewals := make([]dispatch.Finish, len(refs)), make([]dispatch.Renewal, len(refs))
	for i, ref := range refs {
		if started[i].Refusal != nil {
			t.Fatalf("Start = %+v", started[i])
		}
		if !way.forget {
			ref.Hint = started[i].Hint
		}
		list[i] = way.outcomes[i%len(way.outcomes)]
		list[i].Ref, list[i].Receipt = ref, []byte(ref.Attempt.String())
		renewals[i] = dispatch.Renewal{Ref: ref, Progress: []byte("{}")}
	}
	if got, err := n.Renew(t.Context(), renewals); err != nil || got[0].Refusal != nil {
		t.Fatalf("Renew = %+v, %v", got, err)
	}
	if got, err := n.Finish(t.Context(), list); err != nil || got[len(got)-1].Status != "recorded" {
		t.Fatalf("Finish = %+v, %v", got, err)
	}
}

package api_test

import (
	"net/http"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/quota"
)

func (n *node) limitQueue(queue string, most int64) {
	n.t.Helper()
	ctx := n.t.Context()
	err := n.db.Tx(ctx, func(tx *sqldb.Tx) error { return quota.LimitQueue(ctx, tx, parseID(n.t, queue), most) })
	if err != nil {
		n.t.Fatal(err)
	}
}

// limitApplication limits the one application that there is.
func (n *node) limitApplication(most int64) {
	n.t.Helper()
	ctx := n.t.Context()
	var application sqldb.ID
	if err := n.db.Read().QueryRowContext(ctx, "SELECT id FROM application").Scan(&application); err != nil {
		n.t.Fatal(err)
	}
	err := n.db.Tx(ctx, func(tx *sqldb.Tx) error { return quota.LimitApplication(ctx, tx, application, most) })
	if err != nil {
		n.t.Fatal(err)
	}
}

// refusedFull holds an answer to what a full quota is answered with.
func (a answer) refusedFull(t *testing.T, code string) {
	t.Helper()
	a.want(t, http.StatusTooManyRequests, code)
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After = %q, want 1", got)
	}
	if got := a.header.Get(orbit.HeaderReplayed); got != "" {
		t.Errorf("a refusal is marked as a replay: %q", got)
	}
}

func TestAFullQuotaRefusesNewSubmitsAndRepeatsGetTheirReceipt(t *testing.T) { // TEST-044, IDEM-018, IDEM-021, ERR-009, ERR-010, ERR-011, REF-QUOTA-001
	onEachEngine(t, func(t *testing.T, n *node) {
		n.limitQueue(n.creds.QueueID, 2)
		first := n.submit("first", n.body()).want(t, http.StatusCreated, "")
		n.submit("second", n.body()).want(t, http.StatusCreated, "")
		n.submit("third", n.body()).refusedFull(t, orbit.CodeQueueFull)

		again := n.submit("first", n.body()).want(t, http.StatusOK, "")
		_, was := first.accepted(t)
		if repeated, is := again.accepted(t); !repeated || string(is) != string(was) {
			t.Errorf("repeat = %v %s, want the receipt %s", repeated, is, was)
		}
		n.submit("first", n.body(`"priority":1`)).want(t, http.StatusConflict, orbit.CodeIdempotencyConflict)
		n.submit("late", n.body(`"available_at":"2001-01-01T00:00:00Z"`)).want(t, http.StatusBadRequest, orbit.CodeInvalidArgument)

		n.limitApplication(3)
		other := n.namespace("other") // shares the quota of its application
		submit := func(key string) answer {
			return n.do(ask{method: http.MethodPost, path: "/v1/tasks", token: other.Token, key: key, body: bodyFor(other.QueueID)})
		}
		submit("a").want(t, http.StatusCreated, "")
		submit("b").refusedFull(t, orbit.CodeApplicationFull)
		n.submit("third", n.body()).refusedFull(t, orbit.CodeApplicationFull) // told before the queue
		submit("a").want(t, http.StatusOK, "")

		if tasks, records := n.count("task"), n.count("idempotency"); tasks != 3 || records != 3 {
			t.Errorf("%d tasks and %d records, want 3 of each", tasks, records)
		}
		n.limitApplication(0)
		n.limitQueue(n.creds.QueueID, 3)
		n.submit("third", n.body()).want(t, http.StatusCreated, "") // its key is as new
	})
}

func TestABatchFillsAQuotaInItsOrder(t *testing.T) { // REF-BATCH-002, REF-QUOTA-001, ERR-010, ERR-011
	onEachEngine(t, func(t *testing.T, n *node) {
		n.limitQueue(n.creds.QueueID, 2)
		free := n.queue("free")
		n.submit("old", n.body()).want(t, http.StatusCreated, "")
		answers := n.batch(nil, item("old", n.body()), item("a", n.body()), item("b", n.body()), item("free", bodyFor(free)), item("c", n.body()))
		for i, want := range []int{200, 201, 429, 201, 429} {
			got := answers[i]
			if got.Status != want {
				t.Errorf("item %d: %+v, want %d", i, got, want)
			}
			if want == 429 && (got.Error == nil || got.Error.Code != orbit.CodeQueueFull || got.RetryAfter == nil || *got.RetryAfter != 1) {
				t.Errorf("item %d: %+v, want QUEUE_FULL and retry_after 1", i, got)
			}
		}
	})
}

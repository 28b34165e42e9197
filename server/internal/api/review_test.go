package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/task"
)

func reviewBody(revision uint64, decision string, members ...string) string {
	all := append([]string{fmt.Sprintf(`"expected_revision":"%d"`, revision), fmt.Sprintf(`"decision":%q`, decision)}, members...)
	return "{" + strings.Join(all, ",") + "}"
}

func (n *node) review(id, key, body string) answer {
	n.t.Helper()
	return n.do(ask{method: "POST", path: "/v1/tasks/" + id + ":review", key: key, body: body})
}

// REF-REV-001, REF-REV-002, STATE-015, STATE-023: a decision ends the review, settles the
// effect and is kept as review, evidence, event and audit.
func TestReviewDecides(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		for code, decision := range map[task.State]string{task.Succeeded: "SUCCEEDED", task.Failed: "FAILED", task.Cancelled: "CANCELLED"} {
			before := inReview.make(h, decision)
			members := []string{`"note":"the order <exists> \u00e4"`, `"source":"dba on call"`, `"evidence": { "rows" : 1.0 }`}
			if decision == "SUCCEEDED" {
				members = append(members, `"result": {"id" : 1.50}`)
			}
			a := n.review(before.ID, "k", reviewBody(before.Revision, decision, members...)).want(t, 200, "")
			deduplicated, _ := a.accepted(t)
			got := a.taskOf(t)
			switch {
			case deduplicated || got.State != decision || got.EffectUncertain || got.CompletedAt == nil || got.Revision != before.Revision+1:
				t.Errorf("%s: %s", decision, a.data)
			case decision == "SUCCEEDED" && string(got.Result) != `{"id" : 1.50}`:
				t.Errorf("result %s, want it byte for byte", got.Result)
			case string(n.rendered(got.ID)) != string(got.AppendJSON(nil)):
				t.Errorf("%s: GET shows another task than the receipt", decision)
			case n.eventOf(got) != task.EventReviewDecided:
				t.Errorf("event %s", n.eventOf(got))
			}
			n.checkReview(got, code)
			if e := n.evidence(got.ID); e.Kind != "review" || string(e.Body) !=
				`{"decision":"`+decision+`","note":"the order \u003cexists\u003e ä","source":"dba on call","evidence":{ "rows" : 1.0 }}` {
				t.Errorf("evidence %s %s", e.Kind, e.Body)
			}
			if row := n.audit(a.requestID); row.action != "task.review" || row.note != "the order <exists> ä" || row.actor != "dba on call" || row.target != got.ID {
				t.Errorf("audit = %+v", row)
			}
			n.review(got.ID, "again", reviewBody(got.Revision, decision, `"note":"n"`)).want(t, 409, orbit.CodeStateConflict)
		}
		n.verify()
	})
}

func (n *node) checkReview(got orbit.Task, code task.State) {
	n.t.Helper()
	var decision task.State
	var actor, note, evidence string
	err := n.db.Write().QueryRowContext(n.t.Context(), "SELECT decision, actor, note, evidence FROM review WHERE task_id = ?", parseID(n.t, got.ID)).
		Scan(&decision, &actor, &note, &evidence)
	if err != nil || decision != code || actor != "dba on call" || note != "the order <exists> ä" || evidence != `{ "rows" : 1.0 }` {
		n.t.Errorf("review %v %q %q %q (%v)", decision, actor, note, evidence, err)
	}
}

// evidence reads the only evidence of a task, which belongs to its newest attempt.
func (n *node) evidence(id string) (e struct {
	Kind string
	Body []byte
}) {
	n.t.Helper()
	err := n.db.Write().QueryRowContext(n.t.Context(), `
SELECT e.kind, e.body FROM evidence e JOIN task t ON t.id = e.task_id JOIN attempt a ON a.id = e.attempt_id AND a.epoch = t.epoch AND a.task_id = t.id
WHERE t.id = ?`, parseID(n.t, id)).Scan(&e.Kind, &e.Body)
	if err != nil {
		n.t.Fatalf("read evidence: %v", err)
	}
	return e
}

// A task without an attempt has no place for evidence, but the review is kept.
func TestReviewOfATaskWithoutAttempt(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		made := waiting.make(n.hand(), "s")
		n.exec("UPDATE task SET effect_uncertain = 1 WHERE id = ?", parseID(t, made.ID))
		n.cancel(made.ID, "c", 1).want(t, 200, "")
		n.review(made.ID, "k", reviewBody(2, "FAILED", `"note":"n"`)).want(t, 200, "")
		if n.count("review WHERE evidence IS NULL AND actor = ?", []byte{}) != 1 || n.count("evidence") != 0 {
			t.Error("the review is not kept as it is")
		}
	})
}

// IDEM-010, IDEM-011, IDEM-020 for reviews, and what is refused.
func TestRepeatsAndRefusalsOfReview(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		made := inReview.make(h, "s")
		good := reviewBody(made.Revision, "SUCCEEDED", `"note":"n"`, `"result":{"a":1,"b":2}`)
		path := "/v1/tasks/" + made.ID + ":review"
		decider := n.credential([]string{auth.ReviewsDecide})
		n.queue("second")
		elsewhere := n.credential([]string{auth.ReviewsDecide}, "second")
		canceller := n.credential([]string{auth.TasksCancel})
		refused := []struct {
			ask    ask
			status int
			code   string
		}{
			{ask{path: path, body: reviewBody(made.Revision+1, "FAILED", `"note":"n"`)}, 409, orbit.CodeStateConflict},
			{ask{path: path, body: reviewBody(made.Revision, "RUNNING", `"note":"n"`)}, 400, orbit.CodeInvalidArgument},
			{ask{path: path, body: reviewBody(made.Revision, "FAILED", `"note":""`)}, 400, orbit.CodeInvalidArgument},
			{ask{path: path, body: reviewBody(made.Revision, "FAILED", `"note":"n"`, `"result":1`)}, 400, orbit.CodeInvalidArgument},
			{ask{path: "/v1/tasks/x:review", body: good}, 404, orbit.CodeNotFound},
			{ask{path: "/v1/tasks/x:review", body: "{}"}, 400, orbit.CodeInvalidArgument}, // AMB-071
			{ask{path: path, body: good, token: elsewhere.Token}, 404, orbit.CodeNotFound},
			{ask{path: path, body: good, token: canceller.Token}, 403, orbit.CodePermissionDenied},
		}
		for _, r := range refused {
			r.ask.method, r.ask.key = "POST", "k"
			if a := n.do(r.ask); a.status != r.status || a.code != r.code {
				t.Errorf("%s %s = %d %s (%s), want %d %s", r.ask.path, r.ask.body, a.status, a.code, a.message, r.status, r.code)
			}
		}
		if n.count("idempotency WHERE operation = 3") != 0 || n.count("review") != 0 { // IDEM-021
			t.Error("a refused review left something")
		}
		first := n.review(made.ID, "k", good).want(t, 200, "")
		n.sameReceipt(n.review(made.ID, "k", reviewBody(made.Revision, "SUCCEEDED", `"note":"n"`, `"result":{"b":2.0,"a":1}`)), first)
		n.sameReceipt(n.do(ask{method: "POST", path: path, key: "k", body: good, token: decider.Token}), first)
		n.review(made.ID, "k", reviewBody(made.Revision, "FAILED", `"note":"n"`)).want(t, 409, orbit.CodeIdempotencyConflict)
		for _, s := range []setting{waiting, leased, running, failed} {
			other := s.make(h, s.name)
			n.review(other.ID, "k", reviewBody(other.Revision, "FAILED", `"note":"n"`)).want(t, 409, orbit.CodeStateConflict)
			n.cancel(other.ID, "c", other.Revision) // out of the way of the next claim
		}
		n.verify()
	})
}

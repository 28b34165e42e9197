package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/server/internal/auth"
)

func (n *node) createQueueAs(token, key, body string) answer {
	n.t.Helper()
	return n.do(ask{method: "POST", path: "/v1/queues", key: key, body: body, token: token})
}

func (n *node) patchQueue(id, key, body string) answer {
	n.t.Helper()
	return n.do(ask{method: "PATCH", path: "/v1/queues/" + id, key: key, body: body})
}

// queueOf reads the data of an answer, which is the queue itself (AMB-072).
func (a answer) queueOf(t *testing.T) (q orbit.Queue) {
	t.Helper()
	if err := q.UnmarshalJSON(a.data); err != nil || !orbit.ValidID(q.ID) {
		t.Fatalf("data is no queue: %s (%v)", a.data, err)
	}
	return q
}

// AMB-072, REF-QRES-001, REF-QRES-002: a queue is made once per key, and can be used.
func TestCreateQueue(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		a := n.createQueueAs("", "k", `{"name":"Bücher","max_backlog":2,"max_concurrency":3}`).want(t, 201, "")
		q := a.queueOf(t)
		if q.Name != "Bücher" || q.MaxBacklog != 2 || q.MaxConcurrency != 3 || q.Paused || q.Revision != 1 ||
			q.NamespaceID != n.creds.NamespaceID || q.Unfinished == nil || *q.Unfinished != 0 || q.ActiveAttempts != 0 {
			t.Errorf("queue = %s", a.data)
		}
		if shown := n.do(ask{path: "/v1/queues/" + q.ID}).want(t, 200, ""); string(shown.data) != string(a.data) {
			t.Errorf("GET shows %s, want %s", shown.data, a.data)
		}
		if row := n.audit(a.requestID); row.action != "queue.create" || row.target != q.ID || row.queue != q.ID ||
			row.note != `name "Bücher", max_backlog 2, max_concurrency 3` {
			t.Errorf("audit = %+v", row)
		}
		for i := range 3 {
			status, code := 201, ""
			if i == 2 {
				status, code = 429, orbit.CodeQueueFull
			}
			n.submit(fmt.Sprint("s", i), bodyFor(q.ID)).want(t, status, code)
		}
		n.patchQueue(q.ID, "p", `{"expected_revision":"1","name":"books"}`).want(t, 200, "")
		again := n.createQueueAs("", "k", `{"max_concurrency":3, "max_backlog":2,"name":"B\u00fccher"}`).want(t, 201, "")
		if again.header.Get(orbit.HeaderReplayed) != "true" || string(again.data) != string(a.data) { // IDEM-011
			t.Errorf("repeat = %s, want the first receipt", again.data)
		}
		n.createQueueAs("", "k", `{"name":"Bücher","max_backlog":2}`).want(t, 409, orbit.CodeIdempotencyConflict)
		n.createQueueAs("", "other", `{"name":"books"}`).want(t, 409, orbit.CodeStateConflict)
		n.createQueueAs("", "other", `{"name":"Books"}`).want(t, 201, "") // names are bytes; IDEM-021
		other := n.namespace("other")
		n.createQueueAs(other.Token, "k", `{"name":"books"}`).want(t, 201, "")
	})
}

func TestWhoMayWriteQueues(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		second := n.queue("second")
		restricted := n.credential([]string{auth.QueuesManage}, "first")
		reader := n.credential([]string{auth.TasksRead})
		stranger := n.namespace("other")
		patch := `{"expected_revision":"1","paused":true}`
		cases := []struct {
			ask    ask
			status int
			code   string
		}{
			{ask{method: "POST", path: "/v1/queues", body: `{"name":"q"}`, token: restricted.Token}, 403, orbit.CodePermissionDenied},
			{ask{method: "POST", path: "/v1/queues", body: `{"name":"q"}`, token: reader.Token}, 403, orbit.CodePermissionDenied},
			{ask{method: "POST", path: "/v1/queues", body: `{"name":" q"}`, token: reader.Token}, 400, orbit.CodeInvalidArgument}, // IDEM-019
			{ask{method: "PATCH", path: "/v1/queues/" + second, body: patch, token: restricted.Token}, 404, orbit.CodeNotFound},
			{ask{method: "PATCH", path: "/v1/queues/" + second, body: patch, token: reader.Token}, 403, orbit.CodePermissionDenied},
			{ask{method: "PATCH", path: "/v1/queues/" + second, body: patch, token: stranger.Token}, 404, orbit.CodeNotFound},
			{ask{method: "PATCH", path: "/v1/queues/" + strings.Repeat("0", 32), body: patch}, 404, orbit.CodeNotFound},
			{ask{method: "PATCH", path: "/v1/queues/x", body: patch}, 404, orbit.CodeNotFound},
			{ask{method: "PATCH", path: "/v1/queues/x", body: `{"expected_revision":"1"}`}, 400, orbit.CodeInvalidArgument}, // AMB-071
			{ask{method: "PATCH", path: "/v1/queues/" + n.creds.QueueID, body: patch, token: restricted.Token}, 200, ""},
		}
		for _, c := range cases {
			c.ask.key = "k"
			if a := n.do(c.ask); a.status != c.status || a.code != c.code {
				t.Errorf("%s %s %s = %d %s (%s), want %d %s", c.ask.method, c.ask.path, c.ask.body, a.status, a.code, a.message, c.status, c.code)
			}
		}
	})
}

func TestUpdateQueue(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		n.queue("second")
		id := n.creds.QueueID
		h := n.hand()
		running.make(h, "1")
		waiting.make(h, "2")
		a := n.patchQueue(id, "k", `{"expected_revision":"1","name":"renamed","max_backlog":5,"max_concurrency":7,"paused":true}`).want(t, 200, "")
		q := a.queueOf(t)
		if q.Name != "renamed" || q.MaxBacklog != 5 || q.MaxConcurrency != 7 || !q.Paused || q.Revision != 2 || q.ActiveAttempts != 1 ||
			q.Unfinished == nil || *q.Unfinished != 2 || !q.UpdatedAt.After(q.CreatedAt) {
			t.Errorf("queue = %s", a.data)
		}
		if row := n.audit(a.requestID); row.action != "queue.update" || row.note !=
			`name "first" -> "renamed", max_concurrency 0 -> 7, paused false -> true, max_backlog 0 -> 5` {
			t.Errorf("audit = %+v", row)
		}
		if h.claim(false) != nil { // REF-QRES-001
			t.Error("a paused queue dispatches")
		}
		n.patchQueue(id, "other", `{"expected_revision":"1","paused":false}`).want(t, 409, orbit.CodeStateConflict)
		n.patchQueue(id, "other", `{"expected_revision":"2","name":"second"}`).want(t, 409, orbit.CodeStateConflict)
		if records := n.count("idempotency WHERE operation = 6"); records != 1 { // IDEM-021
			t.Errorf("%d records, want 1", records)
		}
		n.patchQueue(id, "other", `{"expected_revision":"2","paused":false,"max_backlog":0}`).want(t, 200, "")
		again := n.patchQueue(id, "k", `{"expected_revision":"1","paused":true,"name":"renamed","max_backlog":5,"max_concurrency":7}`).want(t, 200, "")
		if again.header.Get(orbit.HeaderReplayed) != "true" || string(again.data) != string(a.data) {
			t.Errorf("repeat = %s, want the first receipt", again.data)
		}
		n.patchQueue(id, "k", `{"expected_revision":"3","paused":true}`).want(t, 409, orbit.CodeIdempotencyConflict)
		same := n.patchQueue(id, "same", `{"expected_revision":"3","paused":false}`).want(t, 200, "")
		if q := same.queueOf(t); q.Revision != 4 || q.Unfinished != nil || n.audit(same.requestID).note != "nothing" {
			t.Errorf("queue = %s", same.data)
		}
		if h.claim(false) == nil {
			t.Error("the queue is open again and gives nothing")
		}
		n.verify()
	})
}

// IDEM-020 and CAN-007's rule for queues: one of concurrent changes from one revision wins,
// one of concurrent first commands with one key acts.
func TestConcurrentWritesOfQueues(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		ids := map[string]int{}
		acted := 0
		for _, a := range n.atOnce(8, func(int) ask {
			return ask{method: "POST", path: "/v1/queues", key: "k", body: `{"name":"q"}`}
		}) {
			ids[a.want(t, 201, "").queueOf(t).ID]++
			if a.header.Get(orbit.HeaderReplayed) == "" {
				acted++
			}
		}
		if len(ids) != 1 || acted != 1 || n.count("queue WHERE name = ?", []byte("q")) != 1 {
			t.Errorf("%d queues by %d commands, want one", len(ids), acted)
		}
		made := 0
		for _, a := range n.atOnce(8, func(i int) ask {
			return ask{method: "POST", path: "/v1/queues", key: fmt.Sprint("name", i), body: `{"name":"same"}`}
		}) {
			if a.status == 201 {
				made++
			} else {
				a.want(t, 409, orbit.CodeStateConflict)
			}
		}
		won := 0
		for _, a := range n.atOnce(8, func(i int) ask {
			return ask{method: "PATCH", path: "/v1/queues/" + n.creds.QueueID, key: fmt.Sprint(i), body: fmt.Sprintf(`{"expected_revision":"1","max_concurrency":%d}`, i+1)}
		}) {
			if a.status == 200 {
				won++
			} else {
				a.want(t, 409, orbit.CodeStateConflict)
			}
		}
		if made != 1 || won != 1 {
			t.Errorf("%d queues of one name, %d changes of one revision, want 1 and 1", made, won)
		}
	})
}

func (n *node) patchApplication(token, key, body string) answer {
	n.t.Helper()
	return n.do(ask{method: "PATCH", path: "/v1/application", key: key, body: body, token: token})
}

// REF-QRES-001, REF-QRES-002, REF-QUOTA-001: limits and stop of the application, which all
// its namespaces share.
func TestUpdateApplication(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		h := n.hand()
		running.make(h, "1")
		waiting.make(h, "2")
		a := n.patchApplication("", "k", `{"expected_revision":"1","max_unfinished":3,"max_active_attempts":9,"dispatch_stopped":true}`).want(t, 200, "")
		var got orbit.Application
		if err := got.UnmarshalJSON(a.data); err != nil {
			t.Fatal(err)
		}
		if got.ID != n.creds.ApplicationID || got.Name != "app" || got.State != "ACTIVE" || got.MaxUnfinished != 3 || got.MaxActiveAttempts != 9 ||
			!got.DispatchStopped || got.Revision != 2 || got.ActiveAttempts != 1 || got.Unfinished == nil || *got.Unfinished != 2 {
			t.Errorf("application = %s", a.data)
		}
		if shown := n.do(ask{path: "/v1/application"}).want(t, 200, ""); string(shown.data) != string(a.data) {
			t.Errorf("GET shows %s, want %s", shown.data, a.data)
		}
		if row := n.audit(a.requestID); row.action != "application.update" || row.target != got.ID || row.note !=
			"dispatch_stopped false -> true, max_unfinished 0 -> 3, max_active_attempts 0 -> 9" {
			t.Errorf("audit = %+v", row)
		}
		if h.claim(false) != nil {
			t.Error("a stopped application dispatches")
		}
		other := n.namespace("other") // shares the application
		n.do(ask{method: "POST", path: "/v1/tasks", key: "a", token: other.Token, body: bodyFor(other.QueueID)}).want(t, 201, "")
		n.submit("b", n.body()).want(t, 429, orbit.CodeApplicationFull)

		n.patchApplication("", "other", `{"expected_revision":"1","dispatch_stopped":false}`).want(t, 409, orbit.CodeStateConflict)
		n.patchApplication("", "other", `{"expected_revision":"2","dispatch_stopped":false,"max_unfinished":0}`).want(t, 200, "")
		n.submit("b", n.body()).want(t, 201, "")
		if h.claim(false) == nil {
			t.Error("the application is open again and gives nothing")
		}
		again := n.patchApplication("", "k", `{"expected_revision":"1","max_unfinished":3,"max_active_attempts":9,"dispatch_stopped":true}`).want(t, 200, "")
		if again.header.Get(orbit.HeaderReplayed) != "true" || string(again.data) != string(a.data) {
			t.Errorf("repeat = %s, want the first receipt", again.data)
		}
		n.patchApplication("", "k", `{"expected_revision":"1","max_unfinished":4}`).want(t, 409, orbit.CodeIdempotencyConflict)
		n.verify()
	})
}

func TestWhoMayWriteTheApplication(t *testing.T) {
	n := onSQLite(t)
	good := `{"expected_revision":"1","dispatch_stopped":true}`
	both := []string{auth.QueuesManage, auth.ApplicationsRead}
	for _, c := range []struct {
		token  string
		body   string
		status int
		code   string
	}{
		{n.credential([]string{auth.QueuesManage}).Token, good, 403, orbit.CodePermissionDenied},
		{n.credential([]string{auth.ApplicationsRead}).Token, good, 403, orbit.CodePermissionDenied},
		{n.credential(both, "first").Token, good, 403, orbit.CodePermissionDenied},
		{n.credential(both).Token, `{"expected_revision":"1"}`, 400, orbit.CodeInvalidArgument},
		{n.credential(both).Token, good, 200, ""},
	} {
		if a := n.patchApplication(c.token, "k", c.body); a.status != c.status || a.code != c.code {
			t.Errorf("%s = %d %s (%s), want %d %s", c.body, a.status, a.code, a.message, c.status, c.code)
		}
	}
}

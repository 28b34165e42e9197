package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// addLive stores attempts of a queue that are running.
func (n *node) addLive(queue string, count int) {
	n.t.Helper()
	for range count {
		n.attempt(sqldb.NewID().String(), 1, 0, 2, 0, map[string]any{"live": 1, "queue_id": parseID(n.t, queue)})
	}
}

// REF-QRES-001, REF-QRES-002: a queue with its limits and what is in it.
func TestQueueDetail(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		id := n.queue("second")
		n.attempt(sqldb.NewID().String(), 1, 0, 3, 1, map[string]any{"queue_id": parseID(t, id)}) // ended: not counted
		n.addLive(id, 3)
		n.addLive(n.creds.QueueID, 1)
		plain := `{"id":"` + id + `","namespace_id":"` + n.creds.NamespaceID + `","name":"second","max_backlog":0,"max_concurrency":0,"paused":false,` +
			`"active_attempts":3,"revision":"1","created_at":"1970-01-01T00:00:00.000001Z","updated_at":"1970-01-01T00:00:00.000001Z"}`
		if got := n.do(ask{path: "/v1/queues/" + id}).want(t, 200, ""); string(got.data) != plain {
			t.Errorf("queue =\n%s\nwant\n%s", got.data, plain)
		}
		n.exec(`UPDATE queue SET max_backlog = 10, max_concurrency = 4, unfinished = 7, paused = 1, revision = 9, updated_at = 2 WHERE id = ?`, parseID(t, id))
		full := `{"id":"` + id + `","namespace_id":"` + n.creds.NamespaceID + `","name":"second","max_backlog":10,"max_concurrency":4,"paused":true,` +
			`"unfinished":7,"active_attempts":3,"revision":"9","created_at":"1970-01-01T00:00:00.000001Z","updated_at":"1970-01-01T00:00:00.000002Z"}`
		if got := n.do(ask{path: "/v1/queues/" + id}).want(t, 200, ""); string(got.data) != full {
			t.Errorf("queue =\n%s\nwant\n%s", got.data, full)
		}
		items := n.page("/v1/queues").Items
		if len(items) != 2 || !strings.Contains(string(items[0]), `"active_attempts":1,`) || string(items[1]) != full {
			t.Errorf("queues = %s", items)
		}
	})
}

// REF-QRES-002, LIST-010: queues in pages by the bytes of their names, those of the
// credential's scope only.
func TestQueuesInPages(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		names := []string{"first", "A", "a", "a ", "aa", "é", "z", "Z9"}
		for _, name := range names[1:] {
			n.queue(name)
		}
		n.namespace("other")
		slices.Sort(names)
		for token, want := range map[string][]string{
			"": names,
			n.credential([]string{"queues:manage"}).Token:              names,
			n.credential([]string{"tasks:read"}, "z", "a ", "A").Token: {"A", "a ", "z"},
		} {
			for _, limit := range []int{1, 2, 3, 100} {
				if got := n.queueNames(token, limit); !slices.Equal(got, want) {
					t.Errorf("in pages of %d = %q, want %q", limit, got, want)
				}
			}
		}
		if got := n.queueNames(n.credential([]string{"tasks:read"}, "z").Token, 1); !slices.Equal(got, []string{"z"}) {
			t.Errorf("one queue in scope: %q", got)
		}
		for _, query := range []string{"limit=0", "limit=101", "cursor=", "cursor=x", "name=a", "limit=1&limit=1"} {
			n.do(ask{path: "/v1/queues?" + query}).want(t, 400, orbit.CodeInvalidArgument)
		}
	})
}

func (n *node) queueNames(token string, limit int) (names []string) {
	n.t.Helper()
	for cursor := ""; ; {
		var p struct {
			Items      []struct{ Name string }
			NextCursor string `json:"next_cursor"`
		}
		got := n.do(ask{path: fmt.Sprintf("/v1/queues?limit=%d%s", limit, cursor), token: token}).want(n.t, 200, "")
		if err := json.Unmarshal(got.data, &p); err != nil {
			n.t.Fatal(err)
		}
		for _, q := range p.Items {
			names = append(names, q.Name)
		}
		if p.NextCursor == "" || len(names) > 200 {
			return names
		}
		cursor = "&cursor=" + p.NextCursor
	}
}

// REF-QRES-002, ERR-003, ERR-004: who may see a queue; what is not to be seen looks like
// what is not there.
func TestWhoMayReadQueues(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		n.queue("second")
		foreign := n.namespace("other").QueueID
		confined := n.credential([]string{"tasks:read"}, "second").Token
		neither := n.credential([]string{"tasks:submit", "applications:read"}).Token
		var bodies []string
		for _, a := range []ask{
			{path: "/v1/queues/" + foreign},
			{path: "/v1/queues/" + strings.Repeat("0", 32)},
			{path: "/v1/queues/" + strings.ToUpper(n.creds.ApplicationID)},
			{path: "/v1/queues/abc"},
			{path: "/v1/queues/" + n.creds.QueueID, token: confined},
		} {
			got := n.do(a).want(t, http.StatusNotFound, orbit.CodeNotFound)
			bodies = append(bodies, strings.Replace(string(got.body), got.requestID, "", 1))
		}
		if slices.Sort(bodies); bodies[0] != bodies[len(bodies)-1] {
			t.Errorf("answers differ: %q", bodies)
		}
		for _, path := range []string{"/v1/queues", "/v1/queues/" + n.creds.QueueID} {
			n.do(ask{path: path}).want(t, 200, "")
			refused := n.do(ask{path: path, token: neither}).want(t, 403, orbit.CodePermissionDenied)
			if refused.message != "the credential needs tasks:read or queues:manage" {
				t.Errorf("message %q does not name both permissions", refused.message)
			}
			n.do(ask{path: path, token: "-"}).want(t, 401, orbit.CodeUnauthenticated)
			n.do(ask{path: path + "?x=1"}).want(t, 400, orbit.CodeInvalidArgument)
		}
	})
}

// REF-QRES-001, REF-QRES-002, REF-QUOTA-001: the application with its limits and what is
// in it, whatever the namespace.
func TestApplicationDetail(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		reader := n.credential([]string{"applications:read"}, "first").Token
		n.addLive(n.creds.QueueID, 2)
		n.exec(`UPDATE application SET created_at = 1, updated_at = 2`)
		want := `{"id":"` + n.creds.ApplicationID + `","name":"app","state":"ACTIVE","max_unfinished":0,"max_active_attempts":0,"dispatch_stopped":false,` +
			`"active_attempts":2,"revision":"1","created_at":"1970-01-01T00:00:00.000001Z","updated_at":"1970-01-01T00:00:00.000002Z"}`
		if got := n.do(ask{path: "/v1/application", token: reader}).want(t, 200, ""); string(got.data) != want {
			t.Errorf("application =\n%s\nwant\n%s", got.data, want)
		}
		n.exec(`UPDATE application SET dispatch_stopped = 1, revision = 3`)
		n.exec(`UPDATE application_quota SET max_unfinished = 100, unfinished = 42, max_active_attempts = 5`)
		want = `{"id":"` + n.creds.ApplicationID + `","name":"app","state":"ACTIVE","max_unfinished":100,"max_active_attempts":5,"dispatch_stopped":true,` +
			`"unfinished":42,"active_attempts":2,"revision":"3","created_at":"1970-01-01T00:00:00.000001Z","updated_at":"1970-01-01T00:00:00.000002Z"}`
		if got := n.do(ask{path: "/v1/application", token: reader}).want(t, 200, ""); string(got.data) != want {
			t.Errorf("application =\n%s\nwant\n%s", got.data, want)
		}
		n.do(ask{path: "/v1/application", token: n.credential([]string{"tasks:read"}).Token}).want(t, 403, orbit.CodePermissionDenied)
		n.do(ask{path: "/v1/application", token: "-"}).want(t, 401, orbit.CodeUnauthenticated)
		n.do(ask{path: "/v1/application?x=1", token: reader}).want(t, 400, orbit.CodeInvalidArgument)
	})
}

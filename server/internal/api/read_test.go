package api_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// GET-001, GET-003, TEST-049, AMB-071: missing, foreign, out of scope and malformed look the same.
// GET-001.
func TestTasksThatMayNotBeSeenLookTheSame(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		mine := n.submit("key", n.body()).want(t, 201, "").taskOf(t).ID
		other := n.namespace("other")
		foreign := n.do(ask{method: "POST", path: "/v1/tasks", key: "k", token: other.Token, body: bodyFor(other.QueueID)}).
			want(t, 201, "").taskOf(t).ID
		n.queue("second")
		confined := n.credential([]string{"tasks:read"}, "second")
		noRead := n.credential([]string{"tasks:submit"})
		attempt, evidence := n.attempt(mine, 1, 0, 3, 5, nil), n.addEvidence(mine, `{}`, 1)
		for _, below := range []string{"", "/source", "/attempts", "/attempts/" + attempt, "/evidence", "/evidence/" + evidence} {
			var bodies []string
			asks := []ask{
				{path: "/v1/tasks/" + strings.Repeat("0", 32) + below},
				{path: "/v1/tasks/" + foreign + below},
				{path: "/v1/tasks/" + mine + below, token: confined.Token},
				{path: "/v1/tasks/" + strings.ToUpper(mine) + below},
				{path: "/v1/tasks/abc" + below},
			}
			for _, a := range asks {
				got := n.do(a).want(t, http.StatusNotFound, orbit.CodeNotFound)
				bodies = append(bodies, strings.Replace(string(got.body), got.requestID, "", 1))
			}
			if slices.Sort(bodies); bodies[0] != bodies[len(bodies)-1] {
				t.Errorf("answers differ: %q", bodies)
			}
			n.do(ask{path: "/v1/tasks/" + mine + below, token: noRead.Token}).want(t, 403, orbit.CodePermissionDenied)
			n.do(ask{path: "/v1/tasks/abc" + below, token: noRead.Token}).want(t, 403, orbit.CodePermissionDenied)
			n.do(ask{path: "/v1/tasks/" + mine + below, token: "-"}).want(t, 401, orbit.CodeUnauthenticated)
			n.do(ask{path: "/v1/tasks/" + mine + below + "?x=1"}).want(t, 400, orbit.CodeInvalidArgument)
			n.do(ask{path: "/v1/tasks/" + mine + below}).want(t, 200, "")
		}
		for _, part := range []string{"/attempts/", "/evidence/"} { // parts that are not there
			for _, id := range []string{mine, strings.ToUpper(attempt), "abc", strings.Repeat("0", 32)} {
				n.do(ask{path: "/v1/tasks/" + mine + part + id}).want(t, 404, orbit.CodeNotFound)
			}
		}
	})
}

// GET-002, GET-005, GET-009, SUB-053 … SUB-057: every member that a task can have, as it is now.
func TestGetShowsTheWholeTask(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		at := orbit.FormatTime(sqldb.Time(n.now()).AddDate(0, 0, 1))
		id := n.submit("key", n.body(`"payload":[1.10]`, `"business_key":" b "`, `"concurrency_key":"k"`, `"priority":3`,
			`"available_at":"`+at+`"`, `"start_deadline_at":"`+at+`"`, `"task_timeout_ms":172800000`, `"recovery_safety":"IDEMPOTENT"`,
			`"retry":{"max_attempts":5,"initial_delay_ms":1,"max_delay_ms":9223372036854,"attempt_timeout_ms":2}`)).
			want(t, 201, "").taskOf(t).ID
		n.exec(`UPDATE task SET state = 5, revision = 7, attempt_count = 2, result = ?, cancel_requested_at = 1000000,
			completed_at = 2000000, effect_uncertain = 1, retry_of = ?, updated_at = 2000001 WHERE id = ?`,
			[]byte(`{"x":1.0}`), parseID(t, strings.Repeat("a", 32)), parseID(t, id))
		got := n.do(ask{path: "/v1/tasks/" + id}).want(t, 200, "")
		var created struct {
			CreatedAt  string `json:"created_at"`
			DeadlineAt string `json:"deadline_at"`
		}
		if err := json.Unmarshal(got.data, &created); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"id":"%s","namespace_id":"%s","queue_id":"%s","state":"SUCCEEDED","revision":"7",`+
			`"handler":"file.convert","handler_version":"v1","payload_version":"v1","payload":[1.10],"business_key":" b ",`+
			`"concurrency_key":"k","priority":3,"available_at":"%[4]s","start_deadline_at":"%[4]s","deadline_at":"%[5]s",`+
			`"recovery_safety":"IDEMPOTENT","retry":{"max_attempts":5,"initial_delay_ms":1,"max_delay_ms":9223372036854,"attempt_timeout_ms":2},`+
			`"attempt_count":2,"result":{"x":1.0},"retry_of":"%[6]s","effect_uncertain":true,"cancel_requested_at":"1970-01-01T00:00:01Z",`+
			`"completed_at":"1970-01-01T00:00:02Z","created_at":"%[7]s","updated_at":"1970-01-01T00:00:02.000001Z"}`,
			id, n.creds.NamespaceID, n.creds.QueueID, at, created.DeadlineAt, strings.Repeat("a", 32), created.CreatedAt)
		if string(got.data) != want {
			t.Errorf("task =\n%s\nwant\n%s", got.data, want)
		}
	})
}

// attempt stores an attempt of a task as dispatch would leave it.
func (n *node) attempt(task string, number int, token uint64, state, outcome int, more map[string]any) string {
	n.t.Helper()
	id := sqldb.NewID()
	var bound any = token
	if n.db.Engine == "sqlite" {
		bound = binary.BigEndian.AppendUint64(nil, token)
	}
	n.exec(`INSERT INTO attempt (id, task_id, number, epoch, namespace_id, application_id, queue_id, process_id, node_id,
			state, lease_until, lease_ms, claimed_at, outcome, concurrency_token, ended_at)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		id, parseID(n.t, task), number, number, parseID(n.t, n.creds.NamespaceID), parseID(n.t, n.creds.ApplicationID),
		parseID(n.t, n.creds.QueueID), parseID(n.t, strings.Repeat("c", 32)), []byte("node"),
		state, 9_000_000, 15000, 1_000_000, nullable(outcome), bound, nullable(5_000_000*(state/3)))
	for column, value := range more {
		n.exec(`UPDATE attempt SET `+column+` = ? WHERE id = ?`, value, id)
	}
	return id.String()
}

func nullable(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func (n *node) event(task, attempt, kind, reason string) {
	n.exec(`INSERT INTO task_event (task_id, revision, kind, attempt_id, reason, created_at) VALUES (?,9,?,?,?,1)`,
		parseID(n.t, task), []byte(kind), parseID(n.t, attempt), []byte(reason))
}

// TOK-003, TOK-014, TOK-017, TEST-017, TEST-025: the list of attempts shows all that is
// stored of them, tokens above 2^53 exactly.
func TestAttemptsShowTokensReasonsAndResults(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		task := n.submit("key", n.body(`"concurrency_key":"k"`)).want(t, 201, "").taskOf(t).ID
		ids := []string{
			n.attempt(task, 1, 1, 3, 5, nil),
			n.attempt(task, 2, 3, 3, 5, nil),
			n.attempt(task, 3, 5, 3, 2, map[string]any{"retryable": 1, "error_text": []byte("no luck"), "started_at": 2_000_000}),
			n.attempt(task, 4, 1<<53+1, 3, 3, map[string]any{"started_at": 2_000_000}),
			n.attempt(task, 5, 1<<64-2, 3, 1, map[string]any{"started_at": 2_000_000, "result": []byte(`{"n":1.00}`)}),
			n.attempt(task, 6, 0, 2, 0, map[string]any{"started_at": 2_000_000, "progress": []byte("3 of 9"), "progress_at": 3_000_000}),
			n.attempt(task, 7, 0, 1, 0, nil),
		}
		n.event(task, ids[0], "returned", "lease_expired")
		n.event(task, ids[1], "returned", "returned")
		n.event(task, ids[2], "failed", "attempts_used")
		n.event(task, ids[3], "retry_waiting", "attempt_timeout")
		common := `"queue_id":"` + n.creds.QueueID + `","worker_id":"` + strings.Repeat("c", 32) + `"`
		at := func(i, number int, rest string) string {
			return fmt.Sprintf(`{"id":"%s","task_id":"%s","number":%d,"epoch":%d,%s}`, ids[i], task, number, number, strings.Replace(rest, "~", common, 1))
		}
		want := `{"items":[` + strings.Join([]string{
			at(6, 7, `"state":"LEASED",~,"claimed_at":"1970-01-01T00:00:01Z","lease_until":"1970-01-01T00:00:09Z"`),
			at(5, 6, `"state":"RUNNING",~,"claimed_at":"1970-01-01T00:00:01Z","started_at":"1970-01-01T00:00:02Z","lease_until":"1970-01-01T00:00:09Z","progress":"3 of 9","progress_at":"1970-01-01T00:00:03Z"`),
			at(4, 5, `"state":"ENDED","outcome":"SUCCEEDED",~,"concurrency_token":"18446744073709551614","claimed_at":"1970-01-01T00:00:01Z","started_at":"1970-01-01T00:00:02Z","ended_at":"1970-01-01T00:00:05Z","result":{"n":1.00}`),
			at(3, 4, `"state":"ENDED","outcome":"UNKNOWN","reason":"attempt_timeout",~,"concurrency_token":"9007199254740993","fence_token":"9007199254740994","claimed_at":"1970-01-01T00:00:01Z","started_at":"1970-01-01T00:00:02Z","ended_at":"1970-01-01T00:00:05Z"`),
			at(2, 3, `"state":"ENDED","outcome":"FAILED","retryable":true,~,"concurrency_token":"5","claimed_at":"1970-01-01T00:00:01Z","started_at":"1970-01-01T00:00:02Z","ended_at":"1970-01-01T00:00:05Z","error":"no luck"`),
			at(1, 2, `"state":"ENDED","outcome":"RETURNED","reason":"returned",~,"concurrency_token":"3","claimed_at":"1970-01-01T00:00:01Z","ended_at":"1970-01-01T00:00:05Z"`),
			at(0, 1, `"state":"ENDED","outcome":"EXPIRED","reason":"lease_expired",~,"concurrency_token":"1","claimed_at":"1970-01-01T00:00:01Z","ended_at":"1970-01-01T00:00:05Z"`),
		}, ",") + `]}`
		got := n.do(ask{path: "/v1/tasks/" + task + "/attempts"}).want(t, 200, "")
		if string(got.data) != want {
			t.Errorf("attempts =\n%s\nwant\n%s", got.data, want)
		}
	})
}

// REF-HIST-002: pages by keyset, the newest first, none twice and none left out.
func TestAttemptsInPages(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		task := n.submit("key", n.body()).want(t, 201, "").taskOf(t).ID
		other := n.submit("other", n.body()).want(t, 201, "").taskOf(t).ID
		path := "/v1/tasks/" + task + "/attempts"
		if got := n.do(ask{path: path}).want(t, 200, ""); string(got.data) != `{"items":[]}` {
			t.Errorf("no attempts = %s", got.data)
		}
		const all = 25
		for i := range all {
			n.attempt(task, i+1, 0, 3, 5, nil)
		}
		type page struct {
			Items      []struct{ Number uint64 }
			NextCursor string `json:"next_cursor"`
		}
		read := func(query string) page {
			var page page
			if err := json.Unmarshal(n.do(ask{path: path + query}).want(t, 200, "").data, &page); err != nil {
				t.Fatal(err)
			}
			return page
		}
		if page := read(""); len(page.Items) != 20 || page.NextCursor == "" { // LIST-008
			t.Errorf("first page has %d items and cursor %q, want 20 and one", len(page.Items), page.NextCursor)
		}
		var numbers []uint64
		cursor := ""
		for {
			page := read("?limit=10" + cursor)
			for _, a := range page.Items {
				numbers = append(numbers, a.Number)
			}
			if page.NextCursor == "" {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
		}
		if len(numbers) != all || numbers[0] != all || numbers[all-1] != 1 || !slices.IsSortedFunc(numbers, func(a, b uint64) int { return int(b) - int(a) }) {
			t.Errorf("numbers %v, want %d down to 1", numbers, all)
		}
		if page := read("?limit=25"); len(page.Items) != all || page.NextCursor != "" {
			t.Errorf("exactly full page has cursor %q", page.NextCursor)
		}
		good := read("?limit=1").NextCursor
		bad := []string{
			"limit=0", "limit=101", "limit=05", "limit=x", "limit=", "limit=1&limit=1", "cursor=", "cursor=x",
			"cursor=" + good[1:], "cursor=" + good + "A", "cursor=" + url.QueryEscape(strings.Replace(good, good[:2], "AA", 1)),
			"cursor=" + strings.Repeat("A", 2000), "nothing=1", "limit=%zz",
		}
		for _, query := range bad {
			n.do(ask{path: path + "?" + query}).want(t, 400, orbit.CodeInvalidArgument)
		}
		n.do(ask{path: "/v1/tasks/" + other + "/attempts?cursor=" + good}).want(t, 400, orbit.CodeInvalidArgument) // LIST-020
	})
}

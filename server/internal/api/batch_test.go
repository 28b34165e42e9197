package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
)

// An itemAnswer is the answer to one item of a batch.
type itemAnswer struct {
	Status        int             `json:"status"`
	ContentDigest string          `json:"content_digest"`
	RetryAfter    *int            `json:"retry_after"`
	Data          json.RawMessage `json:"data"`
	Error         *struct{ Code, Message string }
}

func (n *node) batch(header [][2]string, items ...string) []itemAnswer {
	n.t.Helper()
	got := n.do(ask{method: "POST", path: "/v1/tasks:batch", header: header, body: `{"items":[` + strings.Join(items, ",") + `]}`}).
		want(n.t, http.StatusOK, "")
	var data struct {
		Items []itemAnswer `json:"items"`
	}
	if err := json.Unmarshal(got.data, &data); err != nil {
		n.t.Fatal(err)
	}
	if len(data.Items) != len(items) {
		n.t.Fatalf("%d answers to %d items", len(data.Items), len(items))
	}
	return data.Items
}

func item(key, task string) string {
	return fmt.Sprintf(`{"idempotency_key":%q,"task":%s}`, key, task)
}

// REF-BATCH-002: each item has its own answer, in order; a refused one touches no other.
// API-003, REF-BATCH-001.
func TestBatchItemsAreIndependent(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		n.submit("old", n.body()).want(t, 201, "")
		n.queue("second")
		items := []struct {
			item, code string
			status     int
		}{
			{item("one", n.body()), "", 201},
			{item("old", n.body()), "", 200},
			{item("old", n.body(`"priority":1`)), orbit.CodeIdempotencyConflict, 409},
			{item("bad key", n.body()), orbit.CodeInvalidArgument, 400},
			{item("unknown", n.body(`"nothing":1`)), orbit.CodeInvalidArgument, 400},
			{item("late", n.body(`"available_at":"2001-01-01T00:00:00Z"`)), orbit.CodeInvalidArgument, 400},
			{item("queue", bodyFor(strings.Repeat("0", 32))), orbit.CodeNotFound, 404},
			{`{"idempotency_key":"shape"}`, orbit.CodeInvalidArgument, 400},
			{`7`, orbit.CodeInvalidArgument, 400},
			{item("two", n.body(`"payload":9007199254740993`)), "", 201},
		}
		var texts []string
		for _, i := range items {
			texts = append(texts, i.item)
		}
		for i, got := range n.batch(nil, texts...) {
			want := items[i]
			if got.Status != want.status || (got.Error == nil) != (want.code == "") || got.Error != nil && got.Error.Code != want.code {
				t.Errorf("item %d: %+v, want %d %s", i, got, want.status, want.code)
			}
			if (got.ContentDigest != "") != (want.code == "") {
				t.Errorf("item %d has content_digest %q", i, got.ContentDigest)
			}
		}
		if got := n.count("task"); got != 3 {
			t.Errorf("%d tasks, want 3", got)
		}
		if got := n.count("idempotency"); got != 3 {
			t.Errorf("%d identities, want 3", got)
		}
	})
}

// REF-BATCH-002: a key of a batch and of a single submit are one identity, and the answers
// are the same.
func TestBatchAndSingleShareTheIdentity(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		first := n.batch(nil, item("key", n.body(`"payload":{"x":1.50}`)))[0]
		var made struct {
			Deduplicated bool
			Task         json.RawMessage
		}
		if err := json.Unmarshal(first.Data, &made); err != nil {
			t.Fatal(err)
		}
		again := n.submit("key", n.body(`"payload":{"x":15e-1}`)).want(t, 200, "")
		deduplicated, receipt := again.accepted(t)
		if !deduplicated || string(receipt) != string(made.Task) {
			t.Errorf("single repeat of a batch item = %s, want %s", receipt, made.Task)
		}
		if again.header.Get("Orbit-Content-Digest") != first.ContentDigest {
			t.Errorf("digests differ: %s, %s", again.header.Get("Orbit-Content-Digest"), first.ContentDigest)
		}
		replayed := n.batch(nil, item("key", n.body(`"payload":{"x":1.5}`)))[0]
		if replayed.Status != 200 || string(replayed.Data) != strings.Replace(string(first.Data), "false", "true", 1) {
			t.Errorf("batch repeat = %d %s", replayed.Status, replayed.Data)
		}
	})
}

// REF-BATCH-002: equal keys in one batch are handled in order.
func TestEqualKeysInOneBatchAreHandledInOrder(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		got := n.batch(nil,
			item("refused-first", n.body(`"available_at":"2001-01-01T00:00:00Z"`)),
			item("key", n.body(`"payload":1`)),
			item("key", n.body(`"payload":1.0`)),
			item("key", n.body(`"payload":2`)),
			item("refused-first", n.body()),
			item("refused-first", n.body()))
		var statuses []int
		for _, i := range got {
			statuses = append(statuses, i.Status)
		}
		if fmt.Sprint(statuses) != "[400 201 200 409 201 200]" {
			t.Fatalf("statuses %v, want [400 201 200 409 201 200]", statuses)
		}
	})
}

// REF-BATCH-002: what is answered for the request as a whole.
func TestBatchAsAWhole(t *testing.T) {
	n := onSQLite(t)
	reader := n.credential([]string{"tasks:read"})
	good := `{"items":[` + item("k", n.body()) + `]}`
	many := `{"items":[` + strings.Repeat(item("k", "{}")+",", 100) + item("k", "{}") + `]}`
	cases := []struct {
		name   string
		ask    ask
		status int
	}{
		{"no credential", ask{token: "-", body: good}, 401},
		{"no permission", ask{token: reader.Token, body: good}, 403},
		{"permission after form", ask{token: reader.Token, body: `{"items":[]}`}, 400},
		{"too large", ask{body: good + strings.Repeat(" ", 524289)}, 413},
		{"content type", ask{body: good, header: [][2]string{{"Content-Type", "text/json"}}}, 415},
		{"header key", ask{body: good, key: "k"}, 400},
		{"none", ask{body: `{"items":[]}`}, 400},
		{"101", ask{body: many}, 400},
		{"unknown root member", ask{body: `{"items":[{}],"more":1}`}, 400},
		{"trailing", ask{body: good + "x"}, 400},
		{"bad UTF-8", ask{body: "{\"items\":[\"\xff\"]}"}, 400},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.ask.method, c.ask.path = "POST", "/v1/tasks:batch"
			if got := n.do(c.ask); got.status != c.status {
				t.Fatalf("status %d %s (%s), want %d", got.status, got.code, got.message, c.status)
			}
		})
	}
}

// REF-BATCH-002: queue scope is judged item by item.
func TestBatchScopePerItem(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		second := n.queue("second")
		confined := n.credential([]string{"tasks:submit"}, "second")
		got := n.do(ask{method: "POST", path: "/v1/tasks:batch", token: confined.Token,
			body: `{"items":[` + item("a", n.body()) + "," + item("b", bodyFor(second)) + `]}`}).want(t, 200, "")
		if !strings.HasPrefix(string(got.data), `{"items":[{"status":403,`) || !strings.Contains(string(got.data), `{"status":201,`) {
			t.Errorf("answers = %s", got.data)
		}
	})
}

// REF-BATCH-002: return=minimal, first time and repeated.
func TestMinimalBatchAnswers(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		prefer := [][2]string{{"Prefer", "respond-async, Return=Minimal"}}
		for _, status := range []int{201, 200} {
			got := n.batch(prefer, item("key", n.body(`"payload":"large"`, `"business_key":"b"`)))[0]
			var data struct {
				Task map[string]any
			}
			if err := json.Unmarshal(got.Data, &data); err != nil {
				t.Fatal(err)
			}
			if got.Status != status || len(data.Task) != 6 || got.ContentDigest == "" {
				t.Fatalf("answer = %d %s", got.Status, got.Data)
			}
			for _, name := range []string{"id", "queue_id", "handler", "state", "revision", "created_at"} {
				if data.Task[name] == nil {
					t.Errorf("minimal task lacks %s: %s", name, got.Data)
				}
			}
		}
	})
}

// LIC-014: a full batch with the largest number of items is one transaction's work.
func TestFullBatchOfKeyedTasks(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		var items []string
		for i := range 100 {
			items = append(items, item(fmt.Sprint("key-", i), n.body(fmt.Sprintf(`"concurrency_key":"object/%d"`, i%10))))
		}
		for i, got := range n.batch(nil, items...) {
			if got.Status != 201 {
				t.Fatalf("item %d: %+v", i, got)
			}
		}
		if ready, parked := n.count("task WHERE dispatch_state = 1"), n.count("task WHERE dispatch_state = 3"); ready != 10 || parked != 90 {
			t.Errorf("%d READY and %d parked, want 10 and 90", ready, parked)
		}
	})
}

// REF-BATCH-002, REL-028: a short batch that repeats long submits has an answer of bounded
// length. What is left out is unknown to its sender, who repeats it alone.
func TestRepeatsOfLongSubmitsDoNotMakeALongAnswer(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		long := `[` + strings.Repeat(" ", 262140) + `1]`
		var items []string
		for i := range 8 {
			key := fmt.Sprint("long-", i/2)
			if i%2 == 0 {
				n.submit(key, n.body(`"payload":`+long)).want(t, 201, "")
			}
			items = append(items, item(key, n.body(`"payload":[1.0]`)))
		}
		items = append(items, item("new", n.body()), item("long-0", n.body(`"payload":2`)))
		var statuses []int
		size := 0
		for _, i := range n.batch(nil, items...) {
			statuses = append(statuses, i.Status)
			size += len(i.Data)
		}
		if fmt.Sprint(statuses) != "[200 503 200 503 200 503 200 503 201 409]" { // those of one key come one after the other
			t.Errorf("statuses %v, want repeats up to 1 MiB and 503 for the others", statuses)
		}
		if size > 2<<20-64<<10 {
			t.Errorf("the answer has %d bytes", size)
		}
		again := n.submit("long-3", n.body(`"payload":[1.0]`)).want(t, 200, "")
		if deduplicated, task := again.accepted(t); !deduplicated || !strings.Contains(string(task), long) {
			t.Error("the repeat alone is not the first receipt")
		}
	})
}

// REF-BATCH-002, issue 4: an application that has too much of batches under way is told to come back,
// as a whole and before anything is accepted; single submits are not concerned.
func TestTooManyBatchesAreToComeBack(t *testing.T) {
	n := onSQLite(t)
	leave, err := n.api.FillBatches(parseID(t, n.creds.ApplicationID), 1)
	if err != nil {
		t.Fatal(err)
	}
	two := `{"items":[` + item("a", n.body()) + "," + item("b", n.body()) + `]}`
	refused := n.do(ask{method: "POST", path: "/v1/tasks:batch", body: two}).want(t, http.StatusServiceUnavailable, orbit.CodeUnavailable)
	if refused.header.Get("Retry-After") == "" || n.count("task") != 0 {
		t.Errorf("Retry-After %q, %d tasks", refused.header.Get("Retry-After"), n.count("task"))
	}
	n.batch(nil, item("a", n.body()))
	n.submit("single", n.body()).want(t, http.StatusCreated, "")
	leave()
	n.do(ask{method: "POST", path: "/v1/tasks:batch", body: two}).want(t, http.StatusOK, "")
	if n.count("task") != 3 {
		t.Errorf("%d tasks, want 3", n.count("task"))
	}
}

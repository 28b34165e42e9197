package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// SUB-050, SUB-051, API-030, AMB-074: the documented request gives the documented answer, member
// by member and nothing else.
// SUB-002, STATE-001.
func TestSubmitAnswersTheDocumentedExample(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		body := `{
  "queue_id":"` + n.creds.QueueID + `",
  "handler":"file.convert","handler_version":"v1","payload_version":"v1",
  "payload": {"source_ref":"objects/input.txt","format":"pdf","sequence":9007199254740993} ,
  "business_key":"conversion-001"
}`
		got := n.submit("conversion-operation-001", body).want(t, http.StatusCreated, "")
		deduplicated, raw := got.accepted(t)
		if deduplicated {
			t.Error("first acceptance says deduplicated")
		}
		task := got.taskOf(t)
		want := fmt.Sprintf(`{"id":"%s","namespace_id":"%s","queue_id":"%s","state":"WAITING","revision":"1",`+
			`"handler":"file.convert","handler_version":"v1","payload_version":"v1",`+
			`"payload":{"source_ref":"objects/input.txt","format":"pdf","sequence":9007199254740993},`+
			`"business_key":"conversion-001","available_at":"%[4]s","deadline_at":"%[5]s","recovery_safety":"RECONCILE_ONLY",`+
			`"retry":{"max_attempts":1,"initial_delay_ms":0,"max_delay_ms":0,"attempt_timeout_ms":30000},`+
			`"attempt_count":0,"created_at":"%[4]s","updated_at":"%[4]s"}`,
			task.ID, n.creds.NamespaceID, n.creds.QueueID,
			orbit.FormatTime(task.CreatedAt), orbit.FormatTime(task.CreatedAt.Add(24*time.Hour)))
		if string(raw) != want {
			t.Errorf("task =\n%s\nwant\n%s", raw, want)
		}
		if digest := got.header.Get("Orbit-Content-Digest"); digest != digestOf(t, body) {
			t.Errorf("Orbit-Content-Digest = %q, want %q", digest, digestOf(t, body))
		}
		if replayed := got.header.Values("Orbit-Idempotent-Replayed"); len(replayed) != 0 {
			t.Errorf("first acceptance carries Orbit-Idempotent-Replayed %q", replayed)
		}
		read := n.do(ask{path: "/v1/tasks/" + task.ID}).want(t, http.StatusOK, "")
		if string(read.data) != want { // GET-002, SUB-046
			t.Errorf("GET =\n%s\nwant\n%s", read.data, want)
		}
	})
}

func digestOf(t *testing.T, body string) string {
	t.Helper()
	s, err := orbit.ParseSubmission([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.Digest.String()
}

// SUB-052, GET-009, KEY-008: the keyed example shows its key.
func TestSubmitShowsTheConcurrencyKey(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		body := bodyFor(n.creds.QueueID, `"payload":{"operation_ref":"update-001","object_ref":"objects/42"}`, `"concurrency_key":"object/42"`)
		task := n.submit("update-object-42-operation-001", body).want(t, http.StatusCreated, "").taskOf(t)
		read := n.do(ask{path: "/v1/tasks/" + task.ID}).want(t, http.StatusOK, "")
		if !strings.Contains(string(read.data), `"concurrency_key":"object/42"`) {
			t.Errorf("GET = %s, want the concurrency_key", read.data)
		}
	})
}

// IDEM-011, IDEM-012, IDEM-023, AMB-028: a repeat returns the first receipt byte for byte,
// whatever the task has become and however the repeat is spelled.
// ID-001, SUB-002, API-031.
func TestReplayReturnsTheOriginalReceipt(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		first := n.submit("key", n.body(`"payload":{"a":1.0,"b":[true]}`, `"task_timeout_ms":86400000`)).want(t, http.StatusCreated, "")
		_, original := first.accepted(t)
		id := parseID(t, first.taskOf(t).ID)
		n.exec(`UPDATE task SET state = 7, revision = 2, completed_at = 5, cancel_requested_at = 5, updated_at = 5 WHERE id = ?`, id)

		again := n.submit("key", n.body(`"payload": {"b":[true], "\u0061":1}`)).want(t, http.StatusOK, "")
		deduplicated, receipt := again.accepted(t)
		if !deduplicated || string(receipt) != string(original) {
			t.Errorf("replay = %v\n%s\nwant true\n%s", deduplicated, receipt, original)
		}
		if again.header.Get("Orbit-Idempotent-Replayed") != "true" {
			t.Error("replay lacks Orbit-Idempotent-Replayed: true")
		}
		if again.header.Get("Orbit-Content-Digest") != first.header.Get("Orbit-Content-Digest") {
			t.Error("replay has another content digest")
		}
		if again.requestID == first.requestID {
			t.Error("replay has the request id of the first")
		}
		// Another credential of the namespace shares the identity (IDEM-003).
		other := n.credential([]string{"tasks:submit"})
		shared := n.do(ask{method: "POST", path: "/v1/tasks", key: "key", token: other.Token,
			body: n.body(`"payload":{"a":1,"b":[true]}`)}).want(t, http.StatusOK, "")
		if _, receipt := shared.accepted(t); string(receipt) != string(original) {
			t.Errorf("other credential got %s", receipt)
		}
		// One without permission or scope gets none (IDEM-004, TEST-040).
		reader := n.credential([]string{"tasks:read"})
		n.queue("second")
		confined := n.credential([]string{"tasks:submit"}, "second")
		for _, token := range []string{reader.Token, confined.Token} {
			n.do(ask{method: "POST", path: "/v1/tasks", key: "key", token: token, body: n.body(`"payload":{"a":1,"b":[true]}`)}).
				want(t, http.StatusForbidden, orbit.CodePermissionDenied)
		}
		if got := n.count("task"); got != 1 {
			t.Errorf("%d tasks, want 1", got)
		}
	})
}

// IDEM-010, ERR-013: other content under a key is a conflict with the exact message.
// ERR-005.
func TestOtherContentUnderAKeyIsAConflict(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		n.submit("key", n.body(`"concurrency_key":"object/1"`)).want(t, http.StatusCreated, "")
		bodies := map[string]string{
			"other resource key": n.body(`"concurrency_key":"object/2"`),
			"no resource key":    n.body(),
			"other payload":      n.body(`"concurrency_key":"object/1"`, `"payload":{"n":2}`),
			"other priority":     n.body(`"concurrency_key":"object/1"`, `"priority":1`),
		}
		for name, body := range bodies {
			got := n.submit("key", body).want(t, http.StatusConflict, orbit.CodeIdempotencyConflict)
			if got.message != "idempotency key was used with different content" {
				t.Errorf("%s: message %q", name, got.message)
			}
		}
		if got := n.count("task"); got != 1 {
			t.Errorf("%d tasks, want 1", got)
		}
	})
}

// IDEM-002, IDEM-003: the scope of a key is the namespace.
// API-004.
func TestNamespacesDoNotShareKeys(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		other := n.namespace("other")
		n.submit("key", n.body()).want(t, http.StatusCreated, "")
		n.do(ask{method: "POST", path: "/v1/tasks", key: "key", token: other.Token, body: bodyFor(other.QueueID)}).
			want(t, http.StatusCreated, "")
	})
}

// ID-010: equal business keys under different idempotency keys are two tasks.
// ID-002.
func TestBusinessKeysRemoveNoDuplicates(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		for i := range 2 {
			n.submit(fmt.Sprint("key-", i), n.body(`"business_key":"order-1"`)).want(t, http.StatusCreated, "")
		}
		if got := n.count("task WHERE business_key = ?", []byte("order-1")); got != 2 {
			t.Errorf("%d tasks, want 2", got)
		}
	})
}

// IDEM-020: of concurrent first submits with one key exactly one creates, on one node and
// on two.
func TestConcurrentFirstSubmitsCreateOnce(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		second := &node{t: t, db: n.db, creds: n.creds, log: &safeBuffer{}}
		second.start(n.db.Reopen(t).DB)
		for round := range 5 {
			key := fmt.Sprint("key-", round)
			const senders = 16
			answers := make([]answer, senders)
			errs := make([]error, senders)
			var sending sync.WaitGroup
			for i := range senders {
				to := n
				if i%2 == 1 {
					to = second
				}
				sending.Go(func() {
					answers[i], errs[i] = to.try(ask{method: "POST", path: "/v1/tasks", key: key, body: n.body()})
				})
			}
			sending.Wait()
			created := map[string]int{}
			receipts := map[string]bool{}
			for i, got := range answers {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				if got.status != http.StatusCreated && got.status != http.StatusOK {
					t.Fatalf("sender %d got %d %s %s", i, got.status, got.code, got.message)
				}
				created[fmt.Sprint(got.status)]++
				_, receipt := got.accepted(t)
				receipts[string(receipt)] = true
			}
			if created["201"] != 1 || len(receipts) != 1 {
				t.Fatalf("answers %v with %d different receipts, want one 201 and one receipt", created, len(receipts))
			}
		}
		if got := n.count("task"); got != 5 {
			t.Errorf("%d tasks, want 5", got)
		}
	})
}

// IDEM-020 with different content: one wins, the others conflict.
func TestConcurrentConflictingSubmitsCreateOnce(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		const senders = 12
		answers := make([]answer, senders)
		var sending sync.WaitGroup
		for i := range senders {
			sending.Go(func() {
				answers[i], _ = n.try(ask{method: "POST", path: "/v1/tasks", key: "key", body: n.body(fmt.Sprintf(`"payload":%d`, i+1))})
			})
		}
		sending.Wait()
		got := map[int]int{}
		for _, a := range answers {
			got[a.status]++
		}
		if got[201] != 1 || got[409] != senders-1 {
			t.Fatalf("answers by status %v, want one 201 and %d 409", got, senders-1)
		}
	})
}

// SUB-062, SUB-063: task, event, audit, identity and receipt come into being together,
// and the audit copies no business text.
// IDEM-006.
func TestAcceptanceWritesAllItsRows(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		got := n.submit("key", n.body(`"payload":"canary"`, `"business_key":"canary"`)).want(t, http.StatusCreated, "")
		task := got.taskOf(t)
		id := parseID(t, task.ID)
		for _, rows := range []string{
			"task_event WHERE task_id = ? AND kind = 'accepted' AND revision = 1",
			"audit WHERE target_id = ?",
			"idempotency WHERE task_id = ? AND operation = 1",
		} {
			if strings.HasPrefix(rows, "task_event") && n.db.Engine == "sqlite" {
				rows = strings.Replace(rows, "'accepted'", "x'6163636570746564'", 1)
			}
			if got := n.count(rows, id); got != 1 {
				t.Errorf("%d rows of %s, want 1", got, rows)
			}
		}
		var credential, queue, request sqldb.ID
		var action, handler, version []byte
		var at int64
		err := n.db.Write().QueryRowContext(t.Context(),
			`SELECT credential_id, queue_id, request_id, action, handler, handler_version, created_at FROM audit WHERE target_id = ?`, id).
			Scan(&credential, &queue, &request, &action, &handler, &version, &at)
		if err != nil {
			t.Fatal(err)
		}
		if queue.String() != n.creds.QueueID || request.String() != got.requestID || credential.String() != n.creds.Token[6:38] ||
			string(action) != "task.submit" || string(handler) != "file.convert" || string(version) != "v1" || sqldb.Time(at) != task.CreatedAt {
			t.Errorf("audit = %s %s %s %s %s %s", credential, queue, request, action, handler, version)
		}
		var retain, created int64
		if err := n.db.Write().QueryRowContext(t.Context(), `SELECT retain_until, created_at FROM idempotency`).Scan(&retain, &created); err != nil {
			t.Fatal(err)
		}
		if time.Duration(retain-created)*time.Microsecond != 90*24*time.Hour { // IDEM-015, AMB-039
			t.Errorf("identity is kept for %d µs, want 90 days", retain-created)
		}
	})
}

// SUB-017, SUB-064, AMB-023: times are the database's; a given available_at is stored as
// it is.
func TestTimesComeFromTheDatabase(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		before := n.now()
		past := sqldb.Time(before - 500_000)
		start := sqldb.Time(before + 60_000_000)
		task := n.submit("key", n.body(`"available_at":"`+orbit.FormatTime(past)+`"`,
			`"start_deadline_at":"`+orbit.FormatTime(start)+`"`, `"task_timeout_ms":90000`)).want(t, http.StatusCreated, "").taskOf(t)
		after := n.now()
		if at := sqldb.Micros(task.CreatedAt); at < before || at > after {
			t.Errorf("created_at %d outside the database's %d … %d", at, before, after)
		}
		if !task.AvailableAt.Equal(past) || !task.StartDeadlineAt.Equal(start) {
			t.Errorf("available_at %v, start_deadline_at %v; want %v, %v", task.AvailableAt, task.StartDeadlineAt, past, start)
		}
		if task.DeadlineAt.Sub(task.CreatedAt) != 90*time.Second {
			t.Errorf("deadline %v after acceptance, want 90s", task.DeadlineAt.Sub(task.CreatedAt))
		}
		if r := n.row(task.ID); r.expire != sqldb.Micros(start) {
			t.Errorf("expire_at = %d, want the start deadline %d", r.expire, sqldb.Micros(start))
		}
	})
}

// SUB-014 … SUB-016, IDEM-021: a rule of the moment refuses, leaves no record, and the key
// can be used later.
func TestTimeRulesRefuseAndLeaveNoRecord(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		at := func(offset time.Duration) string {
			return `"` + orbit.FormatTime(sqldb.Time(n.now()).Add(offset)) + `"`
		}
		cases := map[string]struct {
			members []string
			field   string
		}{
			"available too long ago":   {[]string{`"available_at":` + at(-10*time.Second)}, "available_at"},
			"available after deadline": {[]string{`"available_at":` + at(time.Hour), `"task_timeout_ms":60000`}, "available_at"},
			"start deadline passed":    {[]string{`"start_deadline_at":` + at(-time.Millisecond)}, "start_deadline_at"},
			"start deadline too late":  {[]string{`"start_deadline_at":` + at(time.Hour), `"task_timeout_ms":60000`}, "start_deadline_at"},
		}
		for name, c := range cases {
			got := n.submit("key", n.body(c.members...)).want(t, http.StatusBadRequest, orbit.CodeInvalidArgument)
			if !strings.HasPrefix(got.message, c.field+": ") {
				t.Errorf("%s: message %q names not %s", name, got.message, c.field)
			}
		}
		for _, table := range []string{"task", "task_event", "audit WHERE target_id IS NOT NULL AND request_id IS NOT NULL", "idempotency"} {
			if got := n.count(table); got != 0 {
				t.Errorf("refused submits left %d rows in %s", got, table)
			}
		}
		n.submit("key", n.body()).want(t, http.StatusCreated, "")
	})
}

// IDEM-019, AMB-024: a repeat is not held to rules of the moment that have come to fail.
func TestReplayIgnoresRulesOfTheMoment(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		available := n.now() - 900_000
		body := n.body(`"available_at":"` + orbit.FormatTime(sqldb.Time(available)) + `"`)
		n.submit("key", body).want(t, http.StatusCreated, "")
		for n.now() < available+1_100_000 {
			time.Sleep(10 * time.Millisecond)
		}
		n.submit("key", body).want(t, http.StatusOK, "")
		n.submit("other", body).want(t, http.StatusBadRequest, orbit.CodeInvalidArgument)
	})
}

// AMB-029: a queue that may not be used.
// SUB-001.
func TestUnusableQueues(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		second := n.queue("second")
		other := n.namespace("other")
		confined := n.credential([]string{"tasks:submit"}, "second")
		missing := strings.Repeat("0", 31) + "1"
		cases := []struct {
			name, token, queue string
			status             int
			code               string
		}{
			{"all queues, missing", n.creds.Token, missing, 404, orbit.CodeNotFound},
			{"all queues, foreign", n.creds.Token, other.QueueID, 404, orbit.CodeNotFound},
			{"confined, missing", confined.Token, missing, 403, orbit.CodePermissionDenied},
			{"confined, foreign", confined.Token, other.QueueID, 403, orbit.CodePermissionDenied},
			{"confined, outside", confined.Token, n.creds.QueueID, 403, orbit.CodePermissionDenied},
			{"confined, inside", confined.Token, second, 201, ""},
		}
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				n.do(ask{method: "POST", path: "/v1/tasks", key: fmt.Sprint("key-", i), token: c.token, body: bodyFor(c.queue)}).
					want(t, c.status, c.code)
			})
		}
	})
}

// API-033: a traceparent is stored and is no content. One of a later version is handed on as
// one of version 00.
func TestTraceparentIsStoredAndNoContent(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		post := func(key, trace string) answer {
			return n.do(ask{method: "POST", path: "/v1/tasks", key: key, body: n.body(), header: [][2]string{{"traceparent", trace}}})
		}
		id := post("key", trace).want(t, 201, "").taskOf(t).ID
		post("key", strings.Replace(trace, "-01", "-00", 1)).want(t, 200, "")
		long := post("long", "cc"+trace[2:53]+"ff-what-comes-later").want(t, 201, "").taskOf(t).ID
		unsampled := post("unsampled", "01"+trace[2:53]+"fe").want(t, 201, "").taskOf(t).ID
		post("bad", "00-short-01").want(t, 400, orbit.CodeInvalidArgument)
		for task, want := range map[string]string{id: trace, long: trace, unsampled: trace[:53] + "00"} {
			var stored []byte
			if err := n.db.Write().QueryRowContext(t.Context(), `SELECT traceparent FROM task WHERE id = ?`, parseID(t, task)).Scan(&stored); err != nil {
				t.Fatal(err)
			}
			if string(stored) != want {
				t.Errorf("stored traceparent %q, want %q", stored, want)
			}
		}
	})
}

// TEST-012, KEY-005, KEY-006: keys are bytes, in every engine.
func TestConcurrencyKeysAreBytes(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		keys := []string{"a", "A", "\u00e9", "e\u0301", "\u0301\u0302", "\u200b\u200d", strings.Repeat("\U0001F600", 191)}
		for i, key := range keys {
			text, _ := json.Marshal(key)
			got := n.submit(fmt.Sprint("key-", i), n.body(`"concurrency_key":`+string(text), `"business_key":`+string(text))).want(t, 201, "")
			if task := got.taskOf(t); task.ConcurrencyKey != key || task.BusinessKey != key {
				t.Errorf("key %q came back as %q", key, task.ConcurrencyKey)
			}
		}
		if got := n.count("resource WHERE kind = 2"); got != len(keys) {
			t.Errorf("%d resource rows, want %d", got, len(keys))
		}
	})
}

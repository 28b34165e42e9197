package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// addEvidence stores a piece of evidence about a task.
func (n *node) addEvidence(task, body string, at int64) string {
	n.t.Helper()
	id := sqldb.NewID()
	n.exec(`INSERT INTO evidence (id, task_id, attempt_id, kind, body, created_at) VALUES (?,?,?,?,?,?)`,
		id, parseID(n.t, task), parseID(n.t, strings.Repeat("d", 32)), []byte("late_finish"), []byte(body), at)
	return id.String()
}

// GET-006 … GET-008, REF-SRC-001, REF-SRC-002: where a task comes from.
func TestSourceOfATask(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		first, second := n.accept(), n.accept()
		n.exec(`UPDATE task SET retry_of = ?, operation_root = ? WHERE id = ?`, parseID(t, first), parseID(t, first), parseID(t, second))
		for id, want := range map[string]string{first: `{"kind":"SUBMIT"}`, second: `{"kind":"MANUAL_RETRY","task_id":"` + first + `"}`} {
			if got := n.do(ask{path: "/v1/tasks/" + id + "/source"}).want(t, 200, ""); string(got.data) != want {
				t.Errorf("source = %s, want %s", got.data, want)
			}
		}
		if list := n.do(ask{path: n.tasks("")}); strings.Contains(string(list.body), "retry_of") || strings.Contains(string(list.body), "kind") {
			t.Errorf("the list tells the source: %s", list.body)
		}
	})
}

// REF-HIST-001, REF-HIST-002, TEST-017, TOK-003, TOK-014, TOK-017: one attempt shows what
// its entry in the list shows.
func TestAttemptDetail(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		task, other := n.accept(`"concurrency_key":"k"`), n.accept()
		unknown := n.attempt(task, 1, 1<<63+1, 3, 3, map[string]any{"started_at": 2_000_000})
		n.event(task, unknown, "retry_waiting", "lease_expired")
		running := n.attempt(task, 2, 1<<64-2, 2, 0, map[string]any{"started_at": 2_000_000})
		done := n.attempt(task, 3, 5, 3, 1, map[string]any{"started_at": 2_000_000, "result": []byte(`{"n":1.00 }`), "error_text": []byte("é\xff")})
		items := n.page("/v1/tasks/" + task + "/attempts").Items
		for i, id := range []string{done, running, unknown} {
			got := n.do(ask{path: "/v1/tasks/" + task + "/attempts/" + id}).want(t, 200, "")
			if string(got.data) != string(items[i]) {
				t.Errorf("attempt =\n%s\nin the list\n%s", got.data, items[i])
			}
			n.do(ask{path: "/v1/tasks/" + other + "/attempts/" + id}).want(t, 404, orbit.CodeNotFound)
		}
		for id, parts := range map[string][]string{
			unknown: {`"concurrency_token":"9223372036854775809","fence_token":"9223372036854775810"`, `"reason":"lease_expired"`},
			running: {`"concurrency_token":"18446744073709551614","claimed_at"`},
			done:    {`"concurrency_token":"5","claimed_at"`, `"result":{"n":1.00 }`},
		} {
			got := n.do(ask{path: "/v1/tasks/" + task + "/attempts/" + id})
			for _, part := range parts {
				if !strings.Contains(string(got.data), part) {
					t.Errorf("%s lacks %s", got.data, part)
				}
			}
		}
	})
}

// REF-HIST-001, REF-HIST-002, TEST-025: evidence in pages, the newest first, byte for byte.
func TestEvidence(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		task, other := n.accept(), n.accept()
		path := "/v1/tasks/" + task + "/evidence"
		if got := n.do(ask{path: path}).want(t, 200, ""); string(got.data) != `{"items":[]}` {
			t.Errorf("no evidence = %s", got.data)
		}
		const body = `{ "receipt":"r","outcome":"SUCCEEDED","result":[1.0,"é\u00e9"]}`
		var ids []string
		for i := range 12 { // four at a time, in the order of their ids
			ids = append(ids, n.addEvidence(task, body, int64(1_000_000*(i/4))))
		}
		n.addEvidence(other, body, 1)
		slices.Reverse(ids)
		for _, limits := range [][]int{{1}, {3}, {100}, {5, 2}} {
			items, _ := n.walk(path, limits...)
			if got := idsOf(t, items); !slices.Equal(got, ids) {
				t.Errorf("in pages of %v = %v, want %v", limits, got, ids)
			}
		}
		want := fmt.Sprintf(`{"id":"%s","task_id":"%s","attempt_id":"%s","kind":"late_finish","body":%s,"created_at":"1970-01-01T00:00:02Z"}`,
			ids[0], task, strings.Repeat("d", 32), body)
		if got := n.do(ask{path: path + "/" + ids[0]}).want(t, 200, ""); string(got.data) != want {
			t.Errorf("evidence =\n%s\nwant\n%s", got.data, want)
		}
		if got := n.do(ask{path: path + "?limit=1"}); !strings.HasPrefix(string(got.data), `{"items":[`+want+`]`) {
			t.Errorf("list =\n%s\nwant\n%s", got.data, want)
		}
		n.do(ask{path: "/v1/tasks/" + other + "/evidence/" + ids[0]}).want(t, 404, orbit.CodeNotFound)
	})
}

// REF-HIST-002: no page of history is longer than a client reads, which is 2 MiB.
func TestPagesOfHistoryAreBounded(t *testing.T) {
	const most = 2 << 20
	onEachEngine(t, func(t *testing.T, n *node) {
		task := n.accept()
		large := `"` + strings.Repeat("x", 256<<10-2) + `"`
		controls := []byte(strings.Repeat("\x01", 4096)) // six characters each in JSON
		for i := range 10 {
			n.addEvidence(task, large, int64(i))
		}
		for i := range 100 {
			n.attempt(task, i+1, 0, 3, 2, map[string]any{"error_text": controls})
		}
		for list, want := range map[string]int{"evidence": 10, "attempts": 100} {
			path := "/v1/tasks/" + task + "/" + list
			seen := map[string]bool{}
			for cursor, pages := "", 0; pages < 200; pages++ {
				got := n.do(ask{path: path + "?limit=100" + cursor}).want(t, 200, "")
				if len(got.body) > most {
					t.Errorf("page of %s has %d bytes, want at most %d", list, len(got.body), most)
				}
				var p page
				if err := json.Unmarshal(got.data, &p); err != nil {
					t.Fatal(err)
				}
				for _, id := range idsOf(t, p.Items) {
					seen[id] = true
				}
				if p.NextCursor == "" {
					break
				}
				cursor = "&cursor=" + p.NextCursor
			}
			if len(seen) != want {
				t.Errorf("%d of %s in all pages, want %d", len(seen), list, want)
			}
		}
	})
}

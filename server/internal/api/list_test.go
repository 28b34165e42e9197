package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

// A page is one page of any list.
type page struct {
	Items      []json.RawMessage `json:"items"`
	NextCursor string            `json:"next_cursor"`
}

// page reads a list that must be there.
func (n *node) page(path string) (p page) {
	n.t.Helper()
	got := n.do(ask{path: path}).want(n.t, http.StatusOK, "")
	if err := json.Unmarshal(got.data, &p); err != nil || p.Items == nil {
		n.t.Fatalf("GET %s = %s (%v)", path, got.data, err)
	}
	return p
}

// walk reads all pages of a list with limits that take turns.
func (n *node) walk(path string, limits ...int) (items []json.RawMessage, pages int) {
	n.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	for cursor := ""; ; pages++ {
		p := n.page(fmt.Sprintf("%s%slimit=%d%s", path, separator, limits[pages%len(limits)], cursor))
		items = append(items, p.Items...)
		if p.NextCursor == "" {
			return items, pages + 1
		}
		if len(p.NextCursor) > 1024 { // LIMIT-012
			n.t.Fatalf("cursor has %d characters", len(p.NextCursor))
		}
		if pages == 200 {
			n.t.Fatalf("list %s has no end", path)
		}
		cursor = "&cursor=" + p.NextCursor
	}
}

// idsOf returns the ids of items in their order.
func idsOf(t *testing.T, items []json.RawMessage) []string {
	t.Helper()
	ids := []string{}
	for _, raw := range items {
		var item struct{ ID string }
		if err := json.Unmarshal(raw, &item); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, item.ID)
	}
	return ids
}

func (n *node) tasks(query string) string {
	path := "/v1/tasks?queue_id=" + n.creds.QueueID
	if query != "" {
		path += "&" + query
	}
	return path
}

// created gives a task another time of creation.
func (n *node) created(id, at string) {
	n.t.Helper()
	t, err := orbit.ParseTime(at)
	if err != nil {
		n.t.Fatal(err)
	}
	n.exec(`UPDATE task SET created_at = ? WHERE id = ?`, sqldb.Micros(t), parseID(n.t, id))
}

// LIST-012, LIST-013, AMB-026, AMB-027, KEY-008: a summary has these members and no others.
func TestListShowsSummaries(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		plain := n.accept()
		full := n.accept(`"business_key":"b"`, `"concurrency_key":"k"`, `"priority":3`,
			`"start_deadline_at":"`+orbit.FormatTime(sqldb.Time(n.now()).Add(time.Hour))+`"`, `"recovery_safety":"IDEMPOTENT"`)
		n.exec(`UPDATE task SET state = 7, revision = 18, attempt_count = 2, effect_uncertain = 1, cancel_requested_at = 3, completed_at = 4,
			result = ?, retry_of = ?, available_at = 1000000, start_deadline_at = 2000000, deadline_at = 3000000, created_at = 5, updated_at = 6
			WHERE id = ?`, []byte(`{"x":1}`), sqldb.NewID(), parseID(t, full))
		n.exec(`UPDATE task SET available_at = 7, deadline_at = 8, created_at = 9, updated_at = 10 WHERE id = ?`, parseID(t, plain))
		common := `"queue_id":"` + n.creds.QueueID + `"`
		want := `{"items":[{"id":"` + plain + `",` + common + `,"state":"WAITING","revision":"1","handler":"file.convert","handler_version":"v1",` +
			`"available_at":"1970-01-01T00:00:00.000007Z","deadline_at":"1970-01-01T00:00:00.000008Z","attempt_count":0,` +
			`"created_at":"1970-01-01T00:00:00.000009Z","updated_at":"1970-01-01T00:00:00.00001Z"},` +
			`{"id":"` + full + `",` + common + `,"state":"CANCELLED","revision":"18","handler":"file.convert","handler_version":"v1",` +
			`"business_key":"b","concurrency_key":"k","priority":3,"available_at":"1970-01-01T00:00:01Z",` +
			`"start_deadline_at":"1970-01-01T00:00:02Z","deadline_at":"1970-01-01T00:00:03Z","attempt_count":2,"effect_uncertain":true,` +
			`"cancel_requested_at":"1970-01-01T00:00:00.000003Z","completed_at":"1970-01-01T00:00:00.000004Z",` +
			`"created_at":"1970-01-01T00:00:00.000005Z","updated_at":"1970-01-01T00:00:00.000006Z"}]}`
		if got := n.do(ask{path: n.tasks("")}).want(t, 200, ""); string(got.data) != want {
			t.Errorf("list =\n%s\nwant\n%s", got.data, want)
		}
	})
}

// TEST-048: what each filter lets through.
func TestListFilters(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		if got := n.do(ask{path: n.tasks("")}).want(t, 200, ""); string(got.data) != `{"items":[]}` { // LIST-015
			t.Errorf("empty list = %s", got.data)
		}
		long := strings.Repeat("键", 191)
		names := map[string]string{}
		for name, key := range map[string]string{"a": "a", "a blank": "a ", "A": "A", "none": "", "long": long, "composed": "é", "combining": "e\u0301", "blank": " "} {
			text, _ := json.Marshal(key)
			names[n.accept(`"business_key":`+string(text))] = name
		}
		for id, name := range names {
			switch name {
			case "a blank":
				n.created(id, "2026-03-01T00:00:00Z")
			case "A":
				n.created(id, "2026-03-01T00:00:00.000001Z")
				n.exec(`UPDATE task SET state = 4 WHERE id = ?`, parseID(t, id))
			case "none":
				n.created(id, "2026-03-01T00:00:01Z")
			}
		}
		other := n.queue("second")
		n.submit("elsewhere", bodyFor(other, `"business_key":"a"`)).want(t, 201, "")
		tests := []struct {
			query string
			want  string // names, sorted
		}{
			{"business_key=a", "a"},
			{"business_key=a%20", "a blank"}, // LIST-006
			{"business_key=a+", "a blank"},
			{"business_key=A", "A"}, // LIST-004
			{"business_key=%C3%A9", "composed"},
			{"business_key=e%CC%81", "combining"},
			{"business_key=%20", "blank"},
			{"business_key=" + url.QueryEscape(long), "long"}, // LIMIT-003
			{"business_key=absent", ""},
			{"state=NEEDS_REVIEW", "A"}, // LIST-003
			{"state=CANCELLED", ""},
			{"business_key=A&state=NEEDS_REVIEW", "A"},
			{"business_key=A&state=WAITING", ""},
			{"business_key=a&state=WAITING&created_from=2026-03-01T00:00:00Z", "a"},
			{"created_before=2026-03-01T00:00:01Z", "A,a blank"}, // LIST-007: the end is exclusive
			{"created_before=2026-03-01T00:00:01.000001Z", "A,a blank,none"},
			{"created_from=2026-03-01T00:00:00.000001Z&created_before=2026-03-01T00:00:01Z", "A"}, // the start inclusive
			{"created_from=2026-03-01T00:00:00Z&created_before=2026-03-01T00:00:00.000001Z", "a blank"},
			{"created_from=2026-03-01T08:00:00%2B08:00&created_before=2026-03-01T08:00:01%2B08:00", "A,a blank"},
			{"created_before=2026-03-01T00:00:00Z", ""},
			{"created_before=2026-03-01T00:00:01Z&state=NEEDS_REVIEW", "A"},
			{"created_before=2026-03-01T00:00:01Z&business_key=a%20", "a blank"},
			{"created_from=2026-03-01T00:00:00.000001Z&business_key=a%20", ""},
			{"created_from=2026-03-01T00:00:00.000002Z&business_key=A&state=NEEDS_REVIEW", ""},
		}
		for _, test := range tests {
			var got []string
			for _, id := range idsOf(t, n.page(n.tasks(test.query)).Items) {
				got = append(got, names[id])
			}
			slices.Sort(got)
			if strings.Join(got, ",") != test.want {
				t.Errorf("%s = %q, want %q", test.query, got, test.want)
			}
		}
	})
}

// LIST-008, LIST-010, LIST-014, LIST-019: whole lists in pages of changing sizes, in the
// promised order, none twice and none left out, also where tasks have the same time.
func TestListInPages(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		type made struct{ id, at string }
		var all []made
		for i := range 30 {
			m := made{n.accept(`"business_key":"k"`), []string{"2026-03-01T00:00:00Z", "2026-03-01T00:00:00.000001Z", "2026-04-01T00:00:00Z"}[i/12]}
			n.created(m.id, m.at)
			all = append(all, m)
		}
		slices.SortFunc(all, func(a, b made) int {
			return -strings.Compare(a.at[:7]+fmt.Sprint(len(a.at))+a.id, b.at[:7]+fmt.Sprint(len(b.at))+b.id)
		})
		var want []string
		for _, m := range all {
			want = append(want, m.id)
		}
		for _, filter := range []string{"", "state=WAITING", "business_key=k", "business_key=k&state=WAITING", "created_from=2026-01-01T00:00:00Z"} {
			for _, limits := range [][]int{{1}, {5}, {100}, {7, 1, 12}, {30}, {29}} {
				items, pages := n.walk(n.tasks(filter), limits...)
				if got := idsOf(t, items); !slices.Equal(got, want) {
					t.Errorf("%q in pages of %v = %v, want %v", filter, limits, got, want)
				}
				if limits[0] == 30 && pages != 1 || limits[0] == 5 && pages != 6 {
					t.Errorf("%q in pages of %v took %d pages", filter, limits, pages)
				}
			}
			if first := n.page(n.tasks(filter)); len(first.Items) != 20 || first.NextCursor == "" {
				t.Errorf("%q: page without a limit has %d items, want 20", filter, len(first.Items))
			}
		}
	})
}

// LIST-001, LIST-003 … LIST-009, LIST-019, AMB-070: each rule of the query, at and over its
// limit.
func TestListRefusesBadQueries(t *testing.T) {
	n := onSQLite(t)
	good := []string{"limit=1", "limit=100", "state=WAITING", "business_key=" + strings.Repeat("a", 191), "created_from=2000-01-01T00:00:00Z",
		"created_before=9998-12-31T23:59:59.999999Z", "created_from=2026-01-01T00:00:00Z&created_before=2026-01-01T00:00:00.000001Z", "%6cimit=1"}
	for _, query := range good {
		n.page(n.tasks(query))
	}
	bad := map[string][]string{
		"limit":          {"limit=0", "limit=101", "limit=05", "limit=+5", "limit=%2B5", "limit=-1", "limit=x", "limit=", "limit=1.0", "limit=99999999999999999999", "limit=1&limit=1", "limit=1&%6cimit=2"},
		"state":          {"state=", "state=waiting", "state=DONE", "state=1", "state=WAITING%20", "state=WAITING&state=WAITING", "state=State(8)"},
		"business_key":   {"business_key=", "business_key", "business_key=" + strings.Repeat("a", 192), "business_key=" + strings.Repeat("%E9%94%AE", 192), "business_key=a%00", "business_key=a%0A", "business_key=%0Da", "business_key=%FF", "business_key=%ED%A0%80", "business_key=a&business_key=b"},
		"created_from":   {"created_from=", "created_from=2026-01-01", "created_from=2026-01-01T00:00:00", "created_from=2026-01-01t00:00:00Z", "created_from=2026-01-01T00:00:00.0000001Z", "created_from=1999-12-31T23:59:59Z", "created_from=9999-01-01T00:00:00Z", "created_from=2026-01-01T00:00:00+08:00", "created_from=2026-01-01T00:00:00Z&created_before=2026-01-01T00:00:00Z", "created_from=2026-01-01T01:00:00Z&created_before=2026-01-01T01:00:00%2B01:00", "created_from=2026-01-01T00:00:00Z&created_from=2026-01-01T00:00:00Z"},
		"created_before": {"created_before=x", "created_before=2026-13-01T00:00:00Z", "created_before=2026-01-01T00:00:60Z"},
		"cursor":         {"cursor=", "cursor=x", "cursor=" + strings.Repeat("A", 1024), "cursor=" + strings.Repeat("A", 1025), "cursor=AAAA&cursor=AAAA"},
		"query":          {"limit=%zz", "a;b"},
		"offset":         {"offset=1", "offset=1&zz=2"},
		"Limit":          {"Limit=1"},
		"x":              {"limit=1&x="},
		"namespace_id":   {"namespace_id=" + n.creds.NamespaceID},
		`""`:             {"=1"},
		"queue_id":       {"queue_id=" + n.creds.QueueID},
	}
	for field, queries := range bad {
		for _, query := range queries {
			got := n.do(ask{path: n.tasks(query)}).want(t, 400, orbit.CodeInvalidArgument)
			if !strings.HasPrefix(got.message, field+": ") {
				t.Errorf("%s: message %q, want one about %s", query, got.message, field)
			}
		}
	}
	for _, query := range []string{"", "?", "?queue_id", "?queue_id=", "?queue_id=abc", "?queue_id=" + strings.ToUpper(n.creds.NamespaceID), "?queue_id=" + n.creds.QueueID + "0"} { // LIST-002, API-018
		got := n.do(ask{path: "/v1/tasks" + query}).want(t, 400, orbit.CodeInvalidArgument)
		if !strings.HasPrefix(got.message, "queue_id: ") {
			t.Errorf("%q: message %q", query, got.message)
		}
	}
	n.do(ask{method: "HEAD", path: n.tasks("limit=1")}).want(t, 200, "")
}

// A parameter that is not known is named, and what a client made up as its name stays short
// and on its line.
func TestAnUnknownParameterIsNamed(t *testing.T) {
	n := onSQLite(t)
	for query, shown := range map[string]string{
		"handler=file.convert":                   `handler`,
		"two%20words=1":                          `"two words"`,
		"a%22b=1":                                `"a\"b"`,
		"a%0Ab=1":                                `"a\nb"`,
		"%E2%80%AE=1":                            `"\u202e"`,
		"%FF=1":                                  `"\xff"`,
		"limit%20=1":                             `"limit "`,
		"state%3A=1":                             `"state:"`,
		strings.Repeat("n", 64) + "=1":           strings.Repeat("n", 64),
		strings.Repeat("n", 65) + "=1":           `"` + strings.Repeat("n", 64) + `\u2026"`,
		strings.Repeat("%E9%94%AE", 9000) + "=1": `"` + strings.Repeat(`\u952e`, 64) + `\u2026"`,
	} {
		for _, path := range []string{n.tasks(query), "/v1/capabilities?" + query} { // a path with parameters and one without
			got := n.do(ask{path: path}).want(t, 400, orbit.CodeInvalidArgument)
			if got.message != shown+": is not a known parameter" {
				t.Errorf("%.80s: message %q, want one about %s", query, got.message, shown)
			}
		}
	}
}

// LIST-007: an offset with a bare + arrives with a blank; the message says how it is written.
func TestALostPlusIsExplained(t *testing.T) {
	n := onSQLite(t)
	for query, rule := range map[string]string{
		"created_from=2026-01-01T00:00:00+08:00":   "created_from: has a blank in it: + is written %2B in a query",
		"created_before=2026-01-01T00:00:00+00:00": "created_before: has a blank in it: + is written %2B in a query",
		"created_from=2026-01-01+00:00:00Z":        "created_from: must be an RFC 3339 time",
		"created_from=+":                           "created_from: must be an RFC 3339 time",
	} {
		got := n.do(ask{path: n.tasks(query)}).want(t, 400, orbit.CodeInvalidArgument)
		if !strings.HasPrefix(got.message, rule) {
			t.Errorf("%s: message %q, want %q", query, got.message, rule)
		}
	}
	n.page(n.tasks("created_from=2026-01-01T00:00:00%2B08:00"))
}

// LIST-001, LIST-002, AMB-029: who may list which queue.
func TestWhoMayListAQueue(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		second := n.queue("second")
		foreign := n.namespace("other").QueueID
		missing := strings.Repeat("0", 32)
		confined := n.credential([]string{"tasks:read"}, "second").Token
		noRead := n.credential([]string{"tasks:submit", "queues:manage"}).Token
		tests := []struct {
			token, queue string
			status       int
			code         string
		}{
			{"", second, 200, ""},
			{"", foreign, 404, orbit.CodeNotFound},
			{"", missing, 404, orbit.CodeNotFound},
			{confined, second, 200, ""},
			{confined, n.creds.QueueID, 403, orbit.CodePermissionDenied},
			{confined, foreign, 403, orbit.CodePermissionDenied},
			{confined, missing, 403, orbit.CodePermissionDenied},
			{noRead, second, 403, orbit.CodePermissionDenied},
			{noRead, "bad", 403, orbit.CodePermissionDenied},
			{"-", second, 401, orbit.CodeUnauthenticated},
		}
		for _, test := range tests {
			n.do(ask{path: "/v1/tasks?queue_id=" + test.queue, token: test.token}).want(t, test.status, test.code)
		}
	})
}

// LIST-009, LIST-020, AMB-063, AMB-070: a cursor serves the list, the filters and the
// credential that it was given out for, and nothing else.
func TestCursorsAreBound(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		second := n.queue("second")
		var ids []string
		for i := range 4 {
			ids = append(ids, n.accept(`"business_key":"k"`))
			n.submit(fmt.Sprint(i), bodyFor(second)).want(t, 201, "")
			n.attempt(ids[0], i+1, 0, 3, 5, nil)
			n.addEvidence(ids[0], `{}`, int64(i))
		}
		const from, before = "created_from=2026-01-01T00:00:00Z", "created_before=2099-01-01T00:00:00Z"
		lists := []string{
			n.tasks(""), n.tasks("state=WAITING"), n.tasks("state=SUCCEEDED"), n.tasks("business_key=k"), n.tasks("business_key=k%20"),
			n.tasks("business_key=k&state=WAITING"), n.tasks(from), n.tasks(before), n.tasks(from + "&" + before),
			n.tasks("created_from=2026-01-01T00:00:00.000001Z"), "/v1/tasks?queue_id=" + second,
			"/v1/tasks/" + ids[0] + "/attempts?", "/v1/tasks/" + ids[1] + "/attempts?", "/v1/tasks/" + ids[0] + "/evidence?", "/v1/tasks/" + ids[1] + "/evidence?", "/v1/queues?",
		}
		given := 0
		for _, list := range lists {
			first := n.page(list + "&limit=1")
			if first.NextCursor == "" {
				continue // nothing there: it is only asked with the others' cursors
			}
			given++
			for _, other := range lists {
				got := n.do(ask{path: other + "&cursor=" + first.NextCursor})
				if same := other == list; same != (got.status == 200) || !same && got.status != 400 {
					t.Errorf("cursor of %s in %s = %d %s", list, other, got.status, got.message)
				}
			}
		}
		if given < 10 {
			t.Errorf("%d lists gave out a cursor", given)
		}
		cursor := n.page(n.tasks(from + "&limit=1")).NextCursor
		again := "&created_from=2026-01-01T08:00:00.000%2B08:00&cursor=" + cursor // the same instant
		if p := n.page(n.tasks(again[1:])); len(p.Items) != 3 {
			t.Errorf("%d tasks after the first, want 3", len(p.Items))
		}
		n.exec(`UPDATE task SET state = 5, completed_at = 1, updated_at = 1`) // LIST-011: the data may change, the filters not
		n.page(n.tasks(again[1:]))
		own := n.credential([]string{"tasks:read"}).Token
		n.do(ask{path: n.tasks(again[1:]), token: own}).want(t, 400, orbit.CodeInvalidArgument)
		foreign := n.namespace("other")
		n.do(ask{path: "/v1/tasks?queue_id=" + foreign.QueueID + again, token: foreign.Token}).want(t, 400, orbit.CodeInvalidArgument)
	})
}

// LIST-009, LIST-020: no damage to a cursor goes unnoticed or is answered with anything but 400.
func TestDamagedCursorsAreRefused(t *testing.T) {
	n := onSQLite(t)
	for range 3 {
		n.accept()
	}
	good := n.page(n.tasks("limit=1")).NextCursor
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{good + "A", good + "=", good + "\n", "\n" + good, good + " ", good[1:], strings.ToUpper(good), base64.StdEncoding.EncodeToString(raw) + "="}
	for i := range good {
		bad = append(bad, good[:i], good[:i]+"\r"+good[i:])
	}
	for i := range raw {
		for _, bit := range []byte{1, 128} {
			forged := slices.Clone(raw)
			forged[i] ^= bit
			bad = append(bad, base64.RawURLEncoding.EncodeToString(forged))
		}
	}
	// The last character has bits that stand for nothing.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, c := range alphabet {
		if spelled := good[:len(good)-1] + string(c); spelled != good {
			bad = append(bad, spelled)
		}
	}
	for _, cursor := range bad {
		n.do(ask{path: n.tasks("cursor=" + url.QueryEscape(cursor))}).want(t, 400, orbit.CodeInvalidArgument)
	}
	n.page(n.tasks("cursor=" + good))
}

package api

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orbitkit/orbit/server/internal/query"
)

// LIST-020: whatever is sent as a cursor is refused, except what was given out.
func FuzzCursor(f *testing.F) {
	seal := cursorSeal{key: [32]byte{1}, kind: cursorTasks, filters: []byte("filters")}
	given := []byte("a position")
	f.Add(seal.seal(given))
	other := cursorSeal{key: [32]byte{1}, kind: cursorAttempts, filters: []byte("filters")}
	f.Add(other.seal(given))
	for _, text := range []string{"", "AQ", strings.Repeat("A", 1025), seal.seal(nil), seal.seal(given) + "\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		position, err := seal.open(text)
		if (err == nil) != (text == seal.seal(given)) {
			t.Fatalf("open(%q) = %q, %v", text, position, err)
		}
		if err == nil && !bytes.Equal(position, given) {
			t.Fatalf("open(%q) = %q, want %q", text, position, given)
		}
		if refused, _ := refusalOf(err); err != nil && refused.status != 400 {
			t.Fatalf("open(%q) is answered with %d", text, refused.status)
		}
	})
}

// LIST-001, LIST-019, AMB-070: a query is read by its rules or refused with 400.
func FuzzTaskQuery(f *testing.F) {
	const queue = "queue_id=11111111111111111111111111111111"
	for _, raw := range []string{
		queue, queue + "&state=WAITING&limit=100", queue + "&business_key=a%20", queue + "&business_key=%00",
		queue + "&created_from=2026-01-01T00:00:00Z&created_before=2026-01-01T00:00:00.000001%2B00:00",
		queue + "&limit=1&limit=1", queue + "&x=1", "queue_id", "%zz", "a;b", "&&&", "=",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := parseQuery(raw, taskListParameters)
		var filter query.TaskFilter
		limit := 1
		if err == nil {
			filter, err = p.taskFilter()
		}
		if err == nil {
			limit, err = p.limit()
		}
		if err != nil {
			if refused, foreseen := refusalOf(err); !foreseen || refused.status != 400 || !utf8.ValidString(refused.message) {
				t.Fatalf("%q: answered with %d: %v", raw, refused.status, err)
			}
			return
		}
		key := filter.BusinessKey
		bounded := filter.CreatedFrom == nil || filter.CreatedBefore == nil || *filter.CreatedFrom < *filter.CreatedBefore
		if limit < 1 || limit > 100 || !bounded || !utf8.ValidString(key) || utf8.RuneCountInString(key) > 191 || strings.ContainsAny(key, "\x00\r\n") {
			t.Fatalf("%q was taken: %+v, limit %d", raw, filter, limit)
		}
		if strings.Count(raw, "limit=") > 1 && strings.Count(raw, "&limit=") > 1 {
			t.Fatalf("%q was taken: limit occurs twice", raw)
		}
	})
}

// AMB-063, AMB-070: filters bind alike exactly when they are the same.
func TestBoundFiltersTellFiltersApart(t *testing.T) {
	one, two := int64(1), int64(2)
	filters := []query.TaskFilter{
		{}, {State: 1}, {BusinessKey: "\x01"}, {CreatedFrom: &one}, {CreatedBefore: &one}, {CreatedFrom: &one, CreatedBefore: &two},
		{CreatedFrom: &two}, {BusinessKey: "a"}, {BusinessKey: "a "}, {State: 1, BusinessKey: "a"}, {Queue: [16]byte{1}},
		{BusinessKey: "\x00"}, {BusinessKey: strings.Repeat("\x00", 9)},
	}
	seen := map[string]int{}
	for i, f := range filters {
		bound := string(boundFilters(f))
		if j, same := seen[bound]; same {
			t.Errorf("filters %d and %d bind alike", i, j)
		}
		seen[bound] = i
		same := f
		if f.CreatedFrom != nil {
			from := *f.CreatedFrom
			same.CreatedFrom = &from
		}
		if string(boundFilters(same)) != bound {
			t.Errorf("filter %d does not bind alike twice", i)
		}
	}
}

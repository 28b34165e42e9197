package docstest

import (
	"strings"
	"testing"
)

// EX-015: the handbook has every part that is asked for.
func TestTheHandbookOfResourceKeysIsComplete(t *testing.T) {
	text := read(t, handbook)
	for heading, least := range map[string]int{
		"## Four identities": 4, "## Fields": 7, "## What happens to the permits": 19,
	} {
		if n := len(rows(section(t, text, heading))); n < least {
			t.Errorf("%s: the table has %d rows, want at least %d", heading, n, least)
		}
	}
	for _, heading := range []string{
		"## Duties of the worker", "## Duties of the resource", "## Try it", "## Upgrading to resource keys", "## Present limits",
	} {
		if strings.TrimSpace(section(t, text, heading)) == "" {
			t.Errorf("%s: says nothing", heading)
		}
	}
}

// The two permits of an attempt never part, so no row of the recovery
// table may say otherwise of one than of the other.
func TestTheRecoveryTableTreatsBothPermitsAlike(t *testing.T) {
	for _, row := range rows(section(t, read(t, handbook), "## What happens to the permits")) {
		if len(row) != 5 {
			t.Errorf("%q has %d cells, want 5", row[0], len(row))
			continue
		}
		queue, key := strings.Trim(row[1], "*"), strings.Trim(row[2], "*")
		if key != queue && key != "the same" && !strings.HasPrefix(key, queue) {
			t.Errorf("%s: queue permit %q, key permit %q", row[0], queue, key)
		}
	}
}

// The output that the handbook promises is that which the test of the
// examples compares with.
func TestTheHandbookShowsTheOutputOfTheExample(t *testing.T) {
	const output = "queues=2 completed=2 tokens_increasing=true\n" +
		"resource_writes=2 stale_write_rejected=true worker_drained=true\n"
	shows := []string{handbook}
	if strings.Contains(read(t, "examples/README.md"), "\n## keyed-concurrency\n") {
		shows = append(shows, "examples/README.md")
	}
	for _, path := range shows {
		found := false
		for _, b := range blocks(read(t, path)) {
			found = found || b.text == output
		}
		if !found {
			t.Errorf("%s does not show exactly\n%s", path, output)
		}
	}
}

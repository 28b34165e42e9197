package coverage

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/requirements-coverage.md anew")

const root = "../.."

const (
	listFile     = "docs/requirements.md"
	coverageFile = "docs/requirements-coverage.md"
)

// finished are the areas of which every MUST has to have a test. The others are under way.
var finished = []string{
	"MOD", "MIG", "CLI", "REF-HEALTH",
	"ID", "API", "SUB", "IDEM", "GET", "LIST", "CAN", "ERR", "STATE", "LIMIT",
	"KEY", "TOK", "LIC", "WRK", "REF-WRK", "REF-RETRY", "REF-CAN", "REF-PRI", "HAND",
	"REF-QUOTA", "REF-BATCH", "REF-SRC", "REF-HIST", "REF-QRES", "REF-REV", "REF-AUTH", "REF-QUERY",
}

// finishedItems are items of areas under way.
var finishedItems = []string{
	"EX-002", "EX-003", "EX-004", "EX-005", "EX-006", "EX-007", "EX-008",
	"EX-011", "EX-012", "EX-013", "EX-014", "EX-015",
	"TEST-001", "TEST-002", "TEST-003", "TEST-004", "TEST-005", "TEST-006", "TEST-007", "TEST-008",
	"TEST-009", "TEST-010", "TEST-011", "TEST-012", "TEST-013", "TEST-015", "TEST-016", "TEST-017",
	"TEST-018", "TEST-019", "TEST-020", "TEST-021", "TEST-025", "TEST-026", "TEST-028", "TEST-030",
	"TEST-031", "TEST-032", "TEST-057", "TEST-058", "TEST-062",
	"TEST-022", "TEST-023", "TEST-024", "TEST-040", "TEST-041", "TEST-042", "TEST-043", "TEST-044",
	"TEST-045", "TEST-046", "TEST-047", "TEST-048", "TEST-049",
}

// later are items that belong to work that has not begun, with what it waits for.
var later = map[string]string{
	"MIG-012":  "schedules",
	"KEY-009":  "schedules",
	"KEY-010":  "schedules",
	"TEST-014": "schedules",
	"TEST-027": "schedules",
	"CAN-003":  "flows",
}

// duties are items that ask for a document: its passage is their proof.
var duties = regexp.MustCompile(`(?i)document|handbook|backs? off|do not blindly|shrink|query first|capacity statement|Shell examples`)

// An item is one requirement.
type item struct {
	id, level, text string
}

func (i item) area() string { return i.id[:strings.LastIndexByte(i.id, '-')] }

// due reports whether a MUST without a test is a fault.
func (i item) due() bool {
	return i.level == "MUST" && later[i.id] == "" &&
		(slices.Contains(finished, i.area()) || slices.Contains(finishedItems, i.id))
}

var itemLine = regexp.MustCompile(`^- \*\*([A-Z]+(?:-[A-Z]+)?-\d{3})\*\* · (MUST|SHOULD|BEYOND) — (.+)$`)

func readItems(t *testing.T) []item {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, listFile))
	if err != nil {
		t.Fatal(err)
	}
	var items []item
	for line := range strings.Lines(string(text)) {
		if m := itemLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			items = append(items, item{m[1], m[2], m[3]})
		}
	}
	if len(items) < 600 {
		t.Fatalf("%s has %d items: its form has changed", listFile, len(items))
	}
	return items
}

func TestEveryFinishedRequirementHasATest(t *testing.T) {
	items := readItems(t)
	cited := findCitations(t, root)
	known := map[string]bool{"MOD-011": true}
	for _, i := range items {
		known[i.id] = true
		if i.due() && !proven(i, cited[i.id]) {
			t.Errorf("%s has no test (cited by %v): %s", i.id, cited[i.id], i.text)
		}
	}
	for id, places := range cited {
		if !known[id] {
			t.Errorf("%s is cited by %v and is not in %s", id, places, listFile)
		}
	}
	want := render(items, cited)
	path := filepath.Join(root, coverageFile)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("%s is not what the tests say: run go test ./internal/coverage -update (%v)", coverageFile, err)
	}
}

// proven reports whether one of places is a test, or a document for an item that asks for
// one.
func proven(i item, places []string) bool {
	return slices.ContainsFunc(places, func(place string) bool {
		return !strings.HasSuffix(place, ".md") || duties.MatchString(i.text)
	})
}

// render writes the table: ids and names of tests, no lines, so that it changes only when
// a test comes or goes.
func render(items []item, cited map[string][]string) []byte {
	var b strings.Builder
	b.WriteString("# Requirements and their tests\n\n" +
		"Made by `go test ./internal/coverage -update`; the same test fails when it is out of date or when a\n" +
		"MUST of a finished area has no test. The items are those of [requirements.md](requirements.md).\n\n")
	writeSummary(&b, items, cited)
	area := ""
	for _, i := range items {
		if i.area() != area {
			area = i.area()
			fmt.Fprintf(&b, "\n## %s\n\n| id | level | tests |\n|---|---|---|\n", area)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", i.id, i.level, cell(i, cited[i.id]))
	}
	return []byte(b.String())
}

func cell(i item, places []string) string {
	switch {
	case len(places) > 0:
		return strings.Join(places, "<br>")
	case later[i.id] != "":
		return "*later: " + later[i.id] + "*"
	}
	return "–"
}

func writeSummary(b *strings.Builder, items []item, cited map[string][]string) {
	var areas []string
	musts, covered := map[string]int{}, map[string]int{}
	for _, i := range items {
		if !slices.Contains(areas, i.area()) {
			areas = append(areas, i.area())
		}
		if i.level == "MUST" {
			musts[i.area()]++
			if proven(i, cited[i.id]) {
				covered[i.area()]++
			}
		}
	}
	b.WriteString("| area | MUST | with a test | |\n|---|---|---|---|\n")
	for _, area := range areas {
		state := "under way"
		if slices.Contains(finished, area) {
			state = "finished"
		}
		fmt.Fprintf(b, "| %s | %d | %d | %s |\n", area, musts[area], covered[area], state)
	}
}

package docstest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Each link of a document to a file of the tree, or to a heading, leads somewhere.
func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(documents) < 5 {
		t.Fatalf("found %d documents: %v", len(documents), err)
	}
	documents = append(documents, filepath.Join(root, "README.md"), filepath.Join(root, "examples", "README.md"))
	links := 0
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(prose(string(text)), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			links++
			if fault := follow(path, l[1]); fault != "" {
				t.Errorf("%s: (%s): %s", path, l[1], fault)
			}
		}
	}
	if links < 40 {
		t.Errorf("found %d links: are they read rightly?", links)
	}
}

// follow tells what is wrong with a link, or "".
func follow(from, target string) string {
	path, anchor, _ := strings.Cut(target, "#")
	if path == "" {
		path = from
	} else {
		path = filepath.Join(filepath.Dir(from), path)
	}
	text, err := os.ReadFile(path)
	if anchor == "" {
		if _, err := os.Stat(path); err != nil {
			return "there is no such file"
		}
		return ""
	}
	if err != nil {
		return "there is no such file"
	}
	for line := range strings.Lines(prose(string(text))) {
		if strings.HasPrefix(line, "#") && anchorOf(line) == anchor {
			return ""
		}
	}
	return "there is no such heading"
}

// anchorOf is the anchor that GitHub gives a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(strings.TrimLeft(heading, "#")))
}

func TestDeadLinksAreFound(t *testing.T) {
	from := filepath.Join(root, "docs", "worker-protocol.md")
	for target, dead := range map[string]bool{
		"api.md": false, "none.md": true, "#draining": false, "#nothing": true, "worker-protocol.md#hellook": false,
		"resource-guard.md#was-it-applied": false, "none.md#draining": true, "../internal/wire/schema.json": false,
	} {
		if fault := follow(from, target); (fault != "") != dead {
			t.Errorf("%s: %q", target, fault)
		}
	}
}

package docstest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the way to the module's root.
const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A block is a fenced block of a document.
type block struct {
	language string
	line     int // of its first line
	text     string
}

// blocks cuts the fenced blocks out of a document.
func blocks(text string) (all []block) {
	var open *block
	for i, line := range strings.SplitAfter(text, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{language: fence, line: i + 2}
		case isFence:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += line
		}
	}
	return all
}

var fenced = regexp.MustCompile("(?ms)^```.*?^```$")

// prose is a document without its fenced blocks.
func prose(text string) string { return fenced.ReplaceAllString(text, "") }

// section returns what stands below a heading, up to the next one of its level or above.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	level := strings.Index(heading, " ")
	_, rest, found := strings.Cut("\n"+text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("there is no heading %q", heading)
	}
	end := regexp.MustCompile(`(?m)^#{1,` + string(rune('0'+level)) + `} `).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// rows returns the cells of the rows of all tables, without their headings.
func rows(text string) (all [][]string) {
	inTable := false
	for line := range strings.Lines(text) {
		cells, isRow := strings.CutPrefix(strings.TrimSpace(line), "| ")
		switch {
		case strings.HasPrefix(line, "|---"):
			inTable = true
		case !isRow:
			inTable = false
		case inTable:
			all = append(all, strings.Split(strings.TrimSuffix(cells, " |"), " | "))
		}
	}
	return all
}

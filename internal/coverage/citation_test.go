package coverage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// citation matches an id, a range (CAN-019…022, API-006 … API-013) or a list that shares
// its area (TEST-041/042/043).
var citation = regexp.MustCompile(`\b([A-Z]+(?:-[A-Z]+)?)-(\d{3})(?:(/\d{3})+| ?… ?(?:[A-Z]+(?:-[A-Z]+)?-)?(\d{3}))?\b`)

// areas keep other things of the same form, such as names of standards, out.
var areas = regexp.MustCompile(`^(MOD|ID|API|SUB|IDEM|GET|LIST|CAN|ERR|STATE|KEY|TOK|LIC|WRK|RG|MIG|CLI|EX|OUT|REL|TEST|HAND|LIMIT|BOUND|AMB|REF-[A-Z]+)$`)

// idsIn returns the ids that a text cites.
func idsIn(text string) []string {
	var ids []string
	for _, m := range citation.FindAllStringSubmatch(text, -1) {
		area, first := m[1], m[2]
		if !areas.MatchString(area) {
			continue
		}
		switch {
		case m[4] != "":
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(m[4])
			for n := from; n <= to && n < from+100; n++ {
				ids = append(ids, area+"-"+three(n))
			}
		default:
			whole := strings.TrimPrefix(m[0], area+"-")
			for number := range strings.SplitSeq(whole, "/") {
				ids = append(ids, area+"-"+number)
			}
		}
	}
	return ids
}

func three(n int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", 3-len(s)) + s
}

// findCitations walks the tree and returns for each id where it is cited, sorted.
func findCitations(t *testing.T, root string) map[string][]string {
	t.Helper()
	cited := map[string][]string{}
	add := func(place string, ids []string) {
		for _, id := range ids {
			if !slices.Contains(cited[id], place) {
				cited[id] = append(cited[id], place)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case d.IsDir() && (name == ".git" || name == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		switch {
		case strings.HasPrefix(name, "internal/coverage/"):
		case isTest(name):
			return goCitations(path, name, add)
		case strings.HasSuffix(name, ".md") && name != listFile && name != coverageFile:
			return docCitations(path, name, add)
		case name == "Makefile" || name == ".ci/run" || strings.HasPrefix(name, "scripts/"):
			return scriptCitations(path, name, add)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range cited {
		slices.Sort(cited[id])
	}
	return cited
}

// isTest reports whether a file holds tests: its own, or a suite for others.
func isTest(name string) bool {
	folder := name[:max(0, strings.LastIndexByte(name, '/'))]
	return strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".go") && strings.HasSuffix(folder, "test")
}

// goCitations adds what the comments and texts of a Go file cite, by the test that they
// stand at or in, else by the file.
func goCitations(path, name string, add func(string, []string)) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	tests := testsOf(file)
	at := func(pos token.Pos) string {
		for _, f := range tests {
			if f.from <= pos && pos < f.to {
				return name + " " + f.name
			}
		}
		return name
	}
	for _, group := range file.Comments {
		add(at(group.Pos()), idsIn(group.Text()))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			add(at(text.Pos()), idsIn(text.Value))
		}
		return true
	})
	return nil
}

// A span is where a test, its comment included, begins and ends.
type span struct {
	name     string
	from, to token.Pos
}

func testsOf(file *ast.File) []span {
	var spans []span
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !testName(f.Name.Name) {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		spans = append(spans, span{f.Name.Name, from, f.End()})
	}
	// A comment on the line of the opening brace, or a table right before a test, is the
	// test's too only if it stands inside; files cite the rest.
	return spans
}

func testName(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example", "Benchmark"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

var htmlComment = regexp.MustCompile(`(?s)<!--.*?-->`)

// docCitations adds the items that a document says it fulfils.
func docCitations(path, name string, add func(string, []string)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, comment := range htmlComment.FindAllString(string(text), -1) {
		add(name, idsIn(comment))
	}
	return nil
}

// scriptCitations adds the items that comments of a script cite.
func scriptCitations(path, name string, add func(string, []string)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if _, comment, found := strings.Cut(line, "#"); found {
			add(name, idsIn(comment))
		}
	}
	return nil
}

func TestRangesAndListsOfIDsAreRead(t *testing.T) {
	got := idsIn("CAN-019…021, API-006 … API-008 and TEST-041/042/043; REF-QUOTA-001/002, SUB-012. Not RFC-123, UTF-800 or ISO-8601")
	want := []string{"CAN-019", "CAN-020", "CAN-021", "API-006", "API-007", "API-008",
		"TEST-041", "TEST-042", "TEST-043", "REF-QUOTA-001", "REF-QUOTA-002", "SUB-012"}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

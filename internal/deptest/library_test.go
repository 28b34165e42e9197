package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// MOD-003: each direct dependency stands in docs/dependencies.md with its reason.
func TestEveryDependencyHasItsReason(t *testing.T) {
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(module), -1)
	if len(direct) < 10 {
		t.Fatalf("go.mod has %d direct dependencies: its form has changed", len(direct))
	}
	for _, d := range direct {
		if !strings.Contains(string(reasons), "| "+d[1]+" ") {
			t.Errorf("%s has no line in docs/dependencies.md", d[1])
		}
	}
}

// programs are the trees that may print and end the process.
var programs = []string{"cmd", "examples", "bench", "internal/cli"}

// MOD-008: a library never ends the process and writes nothing to stdout.
func TestLibrariesNeitherPrintNorExit(t *testing.T) {
	walk(t, func(place, path string) error {
		program := slices.ContainsFunc(programs, func(tree string) bool { return strings.HasPrefix(place, tree+"/") })
		if program || strings.HasSuffix(place, "_test.go") {
			return nil
		}
		found, err := printsOrExits(path)
		for _, name := range found {
			t.Errorf("%s uses %s", place, name)
		}
		return err
	})
}

// walk calls f with each file of Go in the repository: with its place there, and with the
// path that opens it.
func walk(t *testing.T, f func(place, path string) error) {
	t.Helper()
	root, files := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		files++
		place := strings.TrimPrefix(path, root+string(filepath.Separator))
		return f(filepath.ToSlash(place), path)
	})
	if err != nil || files < 200 {
		t.Fatalf("looked at %d files: %v", files, err)
	}
}

// endings are what no library uses, by package.
var endings = map[string]*regexp.Regexp{
	"os":  regexp.MustCompile(`^(Exit|Stdout)$`),
	"fmt": regexp.MustCompile(`^(Print|Printf|Println)$`),
	"log": regexp.MustCompile(`^(Print|Fatal|Panic|SetOutput|Default)`),
}

func printsOrExits(path string) (found []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil && endings[x.Name] != nil && endings[x.Name].MatchString(s.Sel.Name) {
			found = append(found, x.Name+"."+s.Sel.Name)
		}
		return true
	})
	return found, nil
}

// Bubbles are made by internal/bubble: it says why. The examples of the documents are for
// people who do not have it, and have no timers that are due.
func TestBubblesBearTheRaceDetector(t *testing.T) {
	made := regexp.MustCompile(`\bsynctest\.(Test|Run)\(`)
	exempt := []string{"internal/bubble/bubble.go", "worker/example_docs_test.go", "internal/deptest/library_test.go"}
	walk(t, func(place, path string) error {
		content, err := os.ReadFile(path)
		if made.Match(content) && !slices.Contains(exempt, place) {
			t.Errorf("%s makes a bubble with synctest itself", place)
		}
		return err
	})
}

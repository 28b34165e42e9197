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
	files := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		place := filepath.ToSlash(strings.TrimPrefix(path, filepath.Join("..", "..")+string(filepath.Separator)))
		switch {
		case d.IsDir() && (d.Name() == ".git" || slices.Contains(programs, place)):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(place, ".go") || strings.HasSuffix(place, "_test.go"):
			return nil
		}
		files++
		found, err := printsOrExits(path)
		for _, name := range found {
			t.Errorf("%s uses %s", place, name)
		}
		return err
	})
	if err != nil || files < 100 {
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

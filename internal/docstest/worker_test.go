package docstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	guide    = "docs/worker-guide.md"
	handbook = "docs/resource-keys.md"
)

// What the guides show of Go stands in a file that the tests of package worker compile,
// and in part run.
func TestCodeOfTheGuidesCompiles(t *testing.T) {
	source := read(t, "worker/example_docs_test.go")
	for document, least := range map[string]int{guide: 8, handbook: 2} {
		found := 0
		for _, b := range blocks(read(t, document)) {
			if b.language != "go" {
				continue
			}
			found++
			if !containsIndented(source, b.text) {
				t.Errorf("%s:%d: the block does not stand in worker/example_docs_test.go:\n%s", document, b.line, b.text)
			}
		}
		if found < least {
			t.Errorf("%s has %d blocks of Go, want at least %d", document, found, least)
		}
	}
}

// So does what the README shows, whose blocks have functions and statements side by side:
// each paragraph of its code is looked for alone.
func TestCodeOfTheReadmeCompiles(t *testing.T) {
	source := read(t, "examples/readme_test.go")
	found := 0
	for _, b := range blocks(read(t, "README.md")) {
		if b.language != "go" {
			continue
		}
		found++
		for part := range strings.SplitSeq(b.text, "\n\n") {
			if !containsIndented(source, strings.TrimRight(part, "\n")+"\n") {
				t.Errorf("README.md:%d: this does not stand in examples/readme_test.go:\n%s", b.line, part)
			}
		}
	}
	if found != 3 {
		t.Errorf("README.md has %d blocks of Go, want 3", found)
	}
}

// containsIndented reports whether source holds the lines of text, all indented alike.
func containsIndented(source, text string) bool {
	for range 3 {
		if strings.Contains("\n"+source, "\n"+text) {
			return true
		}
		text = regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(text, "\t$1")
	}
	return false
}

// workerPackage reads the sources of package worker, without tests.
func workerPackage(t *testing.T) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "worker", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// fields returns the exported fields of a struct of package worker with their comments.
func fields(t *testing.T, name string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range workerPackage(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				for _, id := range f.Names {
					if id.IsExported() {
						all[id.Name] = strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
					}
				}
			}
			return false
		})
	}
	if len(all) == 0 {
		t.Fatalf("package worker has no struct %s with fields", name)
	}
	return all
}

// The table of settings has all of them, with the defaults that their
// comments state.
func TestTheGuideListsEverySetting(t *testing.T) {
	settings := fields(t, "Config")
	var listed []string
	for _, row := range rows(section(t, read(t, guide), "## Config")) {
		name, value := strings.Trim(row[0], "`"), strings.Trim(row[1], "`")
		listed = append(listed, name)
		comment, known := settings[name]
		switch {
		case !known:
			t.Errorf("worker.Config has no field %s", name)
		case value == "required", value == "see the type":
		case !statesDefault(comment, value):
			t.Errorf("%s: the guide says default %s, the comment says: %s", name, value, comment)
		}
	}
	for name := range settings {
		if !slices.Contains(listed, name) {
			t.Errorf("the table lacks %s", name)
		}
	}
}

// statesDefault reports whether a field's comment ends with this default. Two fields with
// one comment state both.
func statesDefault(comment, value string) bool {
	_, stated, _ := strings.Cut(comment, "Default")
	stated = strings.ToLower(stated)
	if value == "none" {
		return strings.Contains(stated, "none") || strings.Contains(stated, "share capacity")
	}
	return regexp.MustCompile(`(^|[ :])` + regexp.QuoteMeta(strings.ToLower(value)) + `([ .,]|$)`).MatchString(stated)
}

// Every error that a user can meet is explained.
func TestTheGuideNamesEveryError(t *testing.T) {
	text := read(t, guide)
	found := 0
	for _, name := range exported(t) {
		if !strings.HasPrefix(name, "Err") && !strings.HasSuffix(name, "Error") {
			continue
		}
		found++
		if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "`*"+name+"`") {
			t.Errorf("the guide does not explain worker.%s", name)
		}
	}
	if found < 10 {
		t.Fatalf("found %d errors: are they read rightly?", found)
	}
}

// exported returns the exported types and variables of package worker.
func exported(t *testing.T) (names []string) {
	t.Helper()
	for _, file := range workerPackage(t) {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
}

// The table of what a handler is given names no field that does not exist, and lacks none
// of Execution.
func TestTheGuideDescribesTheExecution(t *testing.T) {
	of, task := fields(t, "Execution"), fields(t, "Task")
	table := ""
	for _, row := range rows(section(t, read(t, guide), "## A handler")) {
		for _, name := range regexp.MustCompile("`([A-Za-z.]+)").FindAllStringSubmatch(row[0], -1) {
			field, ofTask := strings.CutPrefix(name[1], "Task.")
			if _, known := task[field]; ofTask && !known {
				t.Errorf("worker.Task has no field %s", field)
			}
			table += name[1] + "\n"
		}
	}
	for name := range of {
		if name != "Task" && !strings.Contains(table, name+"\n") {
			t.Errorf("the table lacks %s", name)
		}
	}
}

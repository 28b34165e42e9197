package migrations

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/orbitkit/orbit/internal/sqldb"
)

var dialects = []*sqldb.Dialect{sqldb.MySQL, sqldb.SQLite}

func dialectsOf(set Set) []*sqldb.Dialect {
	if set == Guard {
		return append(slices.Clone(dialects), sqldb.PostgreSQL)
	}
	return dialects
}

// MIG-018
// MIG-013.
func TestStepNumbersAreUniqueAndWithoutGaps(t *testing.T) {
	const text = "CREATE TABLE a (x INT);\n"
	tests := []struct {
		name  string
		files []string
		want  string
	}{
		{"gap", []string{"000001_a", "000003_b"}, "000003_b.up.sql follows step 000001"},
		{"twice", []string{"000001_a", "000001_b"}, "000001_b.up.sql follows step 000001"},
		{"not from one", []string{"000002_a"}, "000002_a.up.sql follows step 000000"},
		{"five digits", []string{"00001_a"}, "want a name of the form NNNNNN_name.up.sql"},
		{"no name", []string{"000001_"}, "want a name of the form NNNNNN_name.up.sql"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for _, f := range test.files {
				tree["server/mysql/"+f+".up.sql"] = &fstest.MapFile{Data: []byte(text)}
			}
			_, err := load(tree, Server, sqldb.MySQL)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("load = %v, want an error with %q", err, test.want)
			}
		})
	}
}

// MIG-018, MIG-009: all dialects have the same steps, and the ones whose numbers are
// promised have them.
func TestAllDialectsHaveTheSameSteps(t *testing.T) {
	for _, set := range Sets() {
		var first []string
		for i, d := range dialectsOf(set) {
			steps, err := load(files, set, d)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range steps {
				names = append(names, s.String())
			}
			if i == 0 {
				first = names
			}
			if !slices.Equal(names, first) {
				t.Errorf("set %s: steps of %s %q, of mysql %q", set, d, names, first)
			}
		}
		if set != Server {
			continue
		}
		for number, name := range map[int]string{5: "000005_safe_retry", 10: "000010_application_quota", 11: "000011_resource_key"} {
			if got := first[number-1]; got != name {
				t.Errorf("step %d = %s, want %s", number, got, name)
			}
		}
	}
}

func TestASetWithoutStepsIsAnError(t *testing.T) {
	_, err := load(fstest.MapFS{}, Guard, sqldb.SQLite)
	if err == nil || !strings.Contains(err.Error(), "set guard has no steps for sqlite") {
		t.Errorf("load = %v, want an error that names set and engine", err)
	}
}

func TestParseSetKnowsTheThreeSets(t *testing.T) {
	for _, want := range Sets() {
		if got, err := ParseSet(string(want)); err != nil || got != want {
			t.Errorf("ParseSet(%q) = %q, %v", want, got, err)
		}
	}
	for _, name := range []string{"", "Server", "all"} {
		if got, err := ParseSet(name); err == nil {
			t.Errorf("ParseSet(%q) = %q, want an error", name, got)
		}
	}
}

// MIG-005: SQLite stores no comments, so its files carry them beside the columns.
func TestEveryColumnHasAChineseCommentInTheFilesOfAllDialects(t *testing.T) {
	for _, set := range Sets() {
		var first []string
		for i, d := range dialectsOf(set) {
			found := comments(t, set, d)
			columns := slices.Sorted(maps.Keys(found))
			if i == 0 {
				first = columns
			}
			if len(columns) == 0 || !slices.Equal(columns, first) {
				t.Errorf("set %s: columns with comments on %s %q, on mysql %q", set, d, columns, first)
			}
			for column, comment := range found {
				if !strings.ContainsFunc(comment, func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
					t.Errorf("set %s on %s: comment of %s is not Chinese: %q", set, d, column, comment)
				}
			}
		}
	}
}

var (
	tableLine  = regexp.MustCompile(`^(?:CREATE|ALTER) TABLE (\w+)(?: ADD COLUMN (\w+))?`)
	mysqlLine  = regexp.MustCompile(`^\s+(?:ADD COLUMN )?(\w+) .*COMMENT '(.*)'[,;]?$`)
	sqliteLine = regexp.MustCompile(`^\s+(\w+) .*-- (.*)$`)
	// PostgreSQL's comments are statements, each beginning with the table of its column.
	postgresLine = regexp.MustCompile(`^COMMENT ON COLUMN (\w+\.\w+) IS '(.*)';$`)
)

// comments reads table.column → comment from the files of a set, line by line.
func comments(t *testing.T, set Set, d *sqldb.Dialect) map[string]string {
	t.Helper()
	found := map[string]string{}
	dir := path.Join(string(set), d.Name)
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		readComments(found, text, d)
	}
	return found
}

func readComments(found map[string]string, text []byte, d *sqldb.Dialect) {
	table, above := "", ""
	column := mysqlLine
	if d == sqldb.SQLite {
		column = sqliteLine
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if m := postgresLine.FindStringSubmatch(line); m != nil {
			found[m[1]] = m[2]
		} else if m := tableLine.FindStringSubmatch(line); m != nil {
			table = m[1]
			if m[2] != "" { // SQLite adds columns one by one, below their comment
				found[fmt.Sprintf("%s.%s", table, m[2])] = above
			}
		} else if m := column.FindStringSubmatch(line); m != nil {
			found[fmt.Sprintf("%s.%s", table, m[1])] = m[2]
		}
		above = strings.TrimPrefix(line, "-- ")
	}
}

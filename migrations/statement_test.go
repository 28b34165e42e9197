package migrations

import (
	"slices"
	"testing"

	"github.com/orbitkit/orbit/internal/sqldb"
)

func TestAStatementEndsWithASemicolonAtTheEndOfALine(t *testing.T) {
	statements, err := split("-- first; not a statement\n\nCREATE TABLE a (\n    x INT -- a; b\n);\r\nUPDATE a SET x = ';' WHERE x = 1;\n-- the end\n")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range statements {
		texts = append(texts, s.text)
	}
	want := []string{"CREATE TABLE a (\n    x INT -- a; b\n)", "UPDATE a SET x = ';' WHERE x = 1"}
	if !slices.Equal(texts, want) {
		t.Errorf("statements = %q, want %q", texts, want)
	}
}

func TestAFileWithoutACompleteStatementIsRefused(t *testing.T) {
	for _, text := range []string{"", "-- nothing\n", "CREATE TABLE a (x INT)\n", "CREATE TABLE a (x INT);\nUPDATE a SET x = 1"} {
		if s, err := split(text); err == nil {
			t.Errorf("split(%q) = %d statements, want an error", text, len(s))
		}
	}
}

func TestTheEffectsOfAStatementAreReadFromItsText(t *testing.T) {
	tests := []struct {
		text string
		want []string // with + for made and - for removed; none if it cannot be told
	}{
		{"CREATE TABLE `a` (x INT COMMENT 'DROP TABLE b')", []string{"+table a"}},
		{"create table a (x INT)", nil}, // our files write keywords in capitals
		{"CREATE VIEW v AS SELECT 1", []string{"+table v"}},
		{"CREATE UNIQUE INDEX i ON a (x, y)", []string{"+index a.i"}},
		{"DROP INDEX i ON a", []string{"-index a.i"}},
		{"DROP TABLE a", []string{"-table a"}},
		{"ALTER TABLE a\n  ADD COLUMN x DECIMAL(3, 2) NOT NULL COMMENT '一, ADD COLUMN z',\n  DROP COLUMN y,\n  ADD KEY i (x, y),\n  ADD UNIQUE KEY j (x)",
			[]string{"+column a.x", "-column a.y", "+index a.i", "+index a.j"}},
		{"ALTER TABLE a ADD COLUMN x INT, MODIFY COLUMN y INT", nil},
		{"ALTER TABLE a RENAME TO b", nil},
	}
	for _, test := range tests {
		var got []string
		for _, e := range parse(test.text).effects {
			sign := "-"
			if e.present {
				sign = "+"
			}
			got = append(got, sign+e.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("effects of %q = %q, want %q", test.text, got, test.want)
		}
	}
}

// MIG-014: a crash must leave nothing that only a person can sort out.
func TestEveryStatementIsTransactionalOrProvable(t *testing.T) {
	for _, set := range Sets() {
		steps, err := load(files, set, sqldb.MySQL)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			for i, s := range step.statements {
				if !s.transactional && len(s.effects) == 0 {
					t.Errorf("%s/%s statement %d: neither can roll back nor leaves a mark in the catalogue:\n%s", set, step, i+1, s.text)
				}
				if s.transactional && len(s.effects) > 0 {
					t.Errorf("%s/%s statement %d is taken for both kinds", set, step, i+1)
				}
			}
		}
	}
}

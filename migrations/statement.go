package migrations

import (
	"errors"
	"regexp"
	"strings"
)

// A statement is one SQL statement of a step.
type statement struct {
	text string
	// transactional says that MySQL can roll the statement back: it writes rows only.
	transactional bool
	// effects are what the statement makes or removes, for a look into the catalogue;
	// none if that cannot be told from its text.
	effects []effect
}

// An effect is a table, column or index that exists, or is gone, once its statement ran.
type effect struct {
	kind    objectKind
	table   string // empty for a table or view itself
	name    string
	present bool
}

type objectKind string

const (
	tableObject  objectKind = "table" // or view
	columnObject objectKind = "column"
	indexObject  objectKind = "index"
)

func (e effect) String() string {
	if e.kind == tableObject {
		return string(e.kind) + " " + e.name
	}
	return string(e.kind) + " " + e.table + "." + e.name
}

// split cuts a file into statements. A statement ends with a semicolon at the end of a
// line, and nowhere else: our files need no more, and a rule that fits in a sentence
// cannot surprise their authors. Comment lines before a statement are dropped.
func split(text string) ([]statement, error) {
	var statements []statement
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if len(lines) == 0 && (line == "" || strings.HasPrefix(line, "--")) {
			continue
		}
		body, ended := strings.CutSuffix(line, ";")
		lines = append(lines, body)
		if ended {
			statements = append(statements, parse(strings.Join(lines, "\n")))
			lines = nil
		}
	}
	if len(lines) > 0 {
		return nil, errors.New("the last statement does not end with a semicolon")
	}
	if len(statements) == 0 {
		return nil, errors.New("no statement")
	}
	return statements, nil
}

var (
	quoted      = regexp.MustCompile(`'(?:[^']|'')*'`)
	lineComment = regexp.MustCompile(`--[^\n]*`)
	spaces      = regexp.MustCompile(`\s+`)

	rowsOnly    = regexp.MustCompile(`^(INSERT|UPDATE|DELETE|REPLACE) `)
	makesTable  = regexp.MustCompile(`^CREATE (?:TABLE|VIEW) (\w+)\b`)
	makesIndex  = regexp.MustCompile(`^CREATE (?:UNIQUE )?INDEX (\w+) ON (\w+)\b`)
	dropsTable  = regexp.MustCompile(`^DROP (?:TABLE|VIEW) (\w+)$`)
	dropsIndex  = regexp.MustCompile(`^DROP INDEX (\w+) ON (\w+)$`)
	altersTable = regexp.MustCompile(`^ALTER TABLE (\w+) (.+)$`)
	alteration  = regexp.MustCompile(`^(ADD|DROP) (COLUMN|KEY|INDEX|UNIQUE KEY|UNIQUE INDEX) (\w+)\b`)
)

// parse reads from a statement what a resumed run must know about it. It understands
// the few forms that our files use; a test holds the files to them.
func parse(text string) statement {
	s := statement{text: text}
	flat := lineComment.ReplaceAllString(quoted.ReplaceAllString(text, "''"), "")
	flat = strings.TrimSpace(spaces.ReplaceAllString(strings.ReplaceAll(flat, "`", ""), " "))
	if rowsOnly.MatchString(flat) {
		s.transactional = true
		return s
	}
	if m := makesTable.FindStringSubmatch(flat); m != nil {
		s.effects = []effect{{kind: tableObject, name: m[1], present: true}}
	} else if m := dropsTable.FindStringSubmatch(flat); m != nil {
		s.effects = []effect{{kind: tableObject, name: m[1]}}
	} else if m := makesIndex.FindStringSubmatch(flat); m != nil {
		s.effects = []effect{{kind: indexObject, table: m[2], name: m[1], present: true}}
	} else if m := dropsIndex.FindStringSubmatch(flat); m != nil {
		s.effects = []effect{{kind: indexObject, table: m[2], name: m[1]}}
	} else if m := altersTable.FindStringSubmatch(flat); m != nil {
		s.effects = alterations(m[1], m[2])
	}
	return s
}

// alterations returns the effects of the clauses of an ALTER TABLE, or none if one of
// the clauses leaves no mark in the catalogue that its text tells.
func alterations(table, clauses string) []effect {
	var effects []effect
	for _, clause := range cutClauses(clauses) {
		m := alteration.FindStringSubmatch(clause)
		if m == nil {
			return nil
		}
		e := effect{kind: indexObject, table: table, name: m[3], present: m[1] == "ADD"}
		if m[2] == "COLUMN" {
			e.kind = columnObject
		}
		effects = append(effects, e)
	}
	return effects
}

// cutClauses cuts at the commas that are in no brackets.
func cutClauses(s string) []string {
	var clauses []string
	depth, start := 0, 0
	for i, c := range []byte(s) {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			clauses = append(clauses, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	return append(clauses, strings.TrimSpace(s[start:]))
}

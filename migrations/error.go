package migrations

import (
	"fmt"
	"strings"
)

// A VersionError reports a schema that this program does not run on (MIG-008).
type VersionError struct {
	Set      Set
	Found    int // version of the database
	Min, Max int // versions that the program runs on
}

// Error names both versions and the remedy.
func (e *VersionError) Error() string {
	if e.Found > e.Max {
		return fmt.Sprintf("database schema of set %s is at version %d, newer than this program knows (%d): use a newer release of the program", e.Set, e.Found, e.Max)
	}
	if e.Found == 0 {
		return fmt.Sprintf("database has no schema of set %s, this program needs version %d: run orbit-migrate up%s", e.Set, e.Min, setFlag(e.Set))
	}
	return fmt.Sprintf("database schema of set %s is at version %d, this program needs at least %d: stop the old servers and run orbit-migrate up%s", e.Set, e.Found, e.Min, setFlag(e.Set))
}

// A HalfAppliedError reports a database whose migration stopped within a step.
type HalfAppliedError struct {
	Set  Set
	Step string
}

// Error names the step and the remedy.
func (e *HalfAppliedError) Error() string {
	return fmt.Sprintf("step %s of set %s is half applied: run orbit-migrate up%s, which goes on where it stopped", e.Step, e.Set, setFlag(e.Set))
}

// A ChangedError reports a step that was applied with another text than the one that
// this program holds.
type ChangedError struct {
	Set             Set
	Step            string
	Recorded, Known []byte // SHA-256 of the text
}

// Error names the step and both checksums.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("step %s of set %s was changed after it had been applied: checksum %.4x… in the database, %.4x… in this program; use the release that applied it or a later one", e.Step, e.Set, e.Recorded, e.Known)
}

// An UnresolvedError reports a statement that was begun and whose effect cannot be
// proved: a crash left it, and a person must look.
type UnresolvedError struct {
	Set       Set
	Step      string
	Ordinal   int // which statement of the step
	Statement string

	effects []effect
}

// Error says what to look at and what to record.
func (e *UnresolvedError) Error() string {
	first, _, _ := strings.Cut(strings.TrimSpace(e.Statement), "\n")
	what := "whether it took effect cannot be read from the catalogue"
	if len(e.effects) > 0 {
		what = "only part of it is there, of " + names(e.effects)
	}
	var number int
	_, _ = fmt.Sscanf(e.Step, "%d", &number)
	where := fmt.Sprintf("set_name = '%s' AND version = %d AND ordinal = %d", e.Set, number, e.Ordinal)
	return fmt.Sprintf("statement %d of step %s (%s …) was begun, but a crash hid its end and %s: look at the database; if the statement is in force, UPDATE orbit_migration_statement SET done_at = begun_at WHERE %s; else undo what is there of it and DELETE FROM orbit_migration_statement WHERE %s; then run orbit-migrate up%s again",
		e.Ordinal, e.Step, first, what, where, where, setFlag(e.Set))
}

func names(effects []effect) string {
	texts := make([]string, len(effects))
	for i, e := range effects {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}

func setFlag(set Set) string {
	if set == Server {
		return ""
	}
	return " --set " + string(set)
}

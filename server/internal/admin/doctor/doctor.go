// Package doctor examines a server's database: is it one on which Orbit keeps its
// promises, is it set up for the load, and does anything in it wait for a person? It reads
// only. A check that the database user has no right to make, or that takes too long, is
// reported as not made; it is never a failure.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A Level says how bad a finding is.
type Level string

// The levels of findings.
const (
	OK      Level = "ok"
	Warning Level = "warn"
	Failure Level = "fail"    // Orbit's promises do not hold, or it does not work
	Skipped Level = "skipped" // the check was not made
)

// A Finding is what one check says.
type Finding struct {
	Check string `json:"check"` // such as "isolation"
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// Options tell what is examined.
type Options struct {
	Deep                 bool // also what reads every row
	MinSchema, MaxSchema int  // versions of the schema that this release runs on
}

// Bounds of a check. A deep one reads every row.
const (
	timeout     = 20 * time.Second
	deepTimeout = time.Hour
)

// Examine runs every check and returns what they find, in their order.
func Examine(ctx context.Context, db *sqldb.DB, opt Options) []Finding {
	e := &examiner{db: db, opt: opt}
	var found []Finding
	for _, c := range e.checks() {
		found = append(found, e.run(ctx, c)...)
	}
	return found
}

type examiner struct {
	db   *sqldb.DB
	opt  Options
	vars map[string]string // variables of a MySQL or MariaDB server
	lack string            // what the schema lacks, as the check of it found out; empty: nothing
}

// A check looks at one thing. Without a finding all is well.
type check struct {
	name  string
	deep  bool
	data  bool // it reads tables of the schema
	look  func(context.Context) ([]Finding, error)
	needs string // the right without which it cannot be made
}

func (e *examiner) checks() []check {
	engine := e.mysqlChecks()
	if e.db.Dialect() == sqldb.SQLite {
		engine = e.sqliteChecks()
	}
	data := []check{
		{name: "schema", look: e.schema, needs: "SELECT on the book of migrations"},
		{name: "indexes", data: true, look: e.indexes, needs: "any right on the tables"},
		{name: "clock", look: e.clock},
		{name: "expired leases", data: true, look: e.leases, needs: "SELECT on attempt"},
		{name: "waiting tasks", data: true, look: e.waiting, needs: "SELECT on task, queue, namespace and application"},
		{name: "reviews", data: true, look: e.reviews, needs: "SELECT on task and queue"},
		{name: "keys exhausted", data: true, look: e.exhausted, needs: "SELECT on resource"},
		{name: "contradictions", deep: true, data: true, look: e.contradictions, needs: "SELECT on all tables"},
	}
	return append(engine, data...)
}

func (e *examiner) run(ctx context.Context, c check) []Finding {
	limit := timeout
	if c.deep {
		if limit = deepTimeout; !e.opt.Deep {
			return nil
		}
	}
	if c.data && e.lack != "" {
		return []Finding{{Check: c.name, Level: Skipped, Text: "not made: " + e.lack}}
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := c.look(within)
	if err != nil {
		return []Finding{{Check: c.name, Level: Skipped, Text: "the check could not be made: " + e.why(err, c, limit)}}
	}
	for i := range found {
		found[i].Check = c.name
	}
	return found
}

// why tells the reason of an error in words that hold nothing of a statement.
func (e *examiner) why(err error, c check, limit time.Duration) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it took longer than %v", limit)
	case e.db.Dialect().Refused(err) && c.needs != "":
		return fmt.Sprintf("the database refused it; it needs %s", c.needs)
	}
	return err.Error()
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Text: fmt.Sprintf(format, args...)}}
}

func warn(do, format string, args ...any) []Finding {
	return []Finding{{Level: Warning, Text: fmt.Sprintf(format, args...), Do: do}}
}

func fail(do, format string, args ...any) []Finding {
	return []Finding{{Level: Failure, Text: fmt.Sprintf(format, args...), Do: do}}
}

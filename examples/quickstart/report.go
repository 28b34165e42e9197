package main

import (
	"context"
	"fmt"
	"io"
)

// A count is one line of the report: what a database says, and what it must say.
type count struct {
	what  string
	where string
	query string
	db    *database
	want  int64
	got   int64
}

// States as the databases hold them.
const (
	rowDelivered  = 2
	taskSucceeded = 5
)

// counts lists what the run must have left behind.
func (q *quickstart) counts() []count {
	committed, ordered := q.committed, q.ordered
	return []count{
		{what: "orders committed", where: "business", db: q.businessDB, want: int64(committed),
			query: "SELECT COUNT(*) FROM orders"},
		{what: "outbox rows, rolled-back orders left none", where: "business", db: q.businessDB, want: int64(committed),
			query: "SELECT COUNT(*) FROM orbit_outbox"},
		{what: "  of these delivered", where: "business", db: q.businessDB, want: int64(committed),
			query: fmt.Sprintf("SELECT COUNT(*) FROM orbit_outbox WHERE state = %d", rowDelivered)},
		{what: "  of these sent twice, accepted once", where: "business", db: q.businessDB, want: int64(q.sentTwice),
			query: "SELECT COUNT(*) FROM orbit_outbox WHERE deduplicated = 1"},
		{what: "tasks", where: "task server", db: q.serverDB, want: int64(committed),
			query: "SELECT COUNT(*) FROM task"},
		{what: "  of these succeeded", where: "task server", db: q.serverDB, want: int64(committed),
			query: fmt.Sprintf("SELECT COUNT(*) FROM task WHERE state = %d", taskSucceeded)},
		{what: "attempts: one each, two orders needed a second", where: "task server", db: q.serverDB, want: int64(committed) + 2,
			query: "SELECT COUNT(*) FROM attempt"},
		{what: "operations applied at the stock", where: "stock owner", db: q.stockDB, want: int64(committed),
			query: "SELECT COUNT(*) FROM orbit_guard_operation"},
		{what: "repeats answered from the record", where: "stock owner", db: q.stockDB, want: 1,
			query: "SELECT COUNT(*) FROM stock_incident WHERE kind = 'repeat'"},
		{what: "stale writes refused", where: "stock owner", db: q.stockDB, want: 1,
			query: "SELECT COUNT(*) FROM stock_incident WHERE kind = 'stale'"},
		{what: "pieces taken out of the stock", where: "stock owner", db: q.stockDB, want: int64(ordered),
			query: fmt.Sprintf("SELECT %d * COUNT(*) - SUM(quantity) FROM stock", initialStock)},
		{what: "pieces in committed orders", where: "business", db: q.businessDB, want: int64(ordered),
			query: "SELECT SUM(quantity) FROM orders"},
	}
}

// report reads every count back, prints the table and returns an error if any is wrong.
func (q *quickstart) report(ctx context.Context, w io.Writer) error {
	counts := q.counts()
	wrong := 0
	fmt.Fprintf(w, "\n  %-48s %-12s %9s %6s\n", "read back from the three databases", "database", "found", "want")
	for _, c := range counts {
		if err := c.db.QueryRowContext(ctx, c.query).Scan(&c.got); err != nil {
			return fmt.Errorf("count %s: %w", c.what, err)
		}
		mark := ""
		if c.got != c.want {
			mark, wrong = "  WRONG", wrong+1
		}
		fmt.Fprintf(w, "  %-48s %-12s %9d %6d%s\n", c.what, c.where, c.got, c.want, mark)
	}
	if wrong > 0 {
		return fmt.Errorf("%d counts are wrong: the invariant is broken", wrong)
	}
	fmt.Fprint(w, "\nHolds: each committed order became exactly one task and was written to the stock exactly once,\n",
		"through a killed relay, a worker that lost its lease and a lost answer. Nothing was lost, nothing was doubled.\n")
	return nil
}

package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A task over a limit is not accepted. The sender waits, and repeats it with the same
// idempotency key.
var (
	// ErrApplicationFull reports that the application, over all its namespaces, has as
	// many unfinished tasks as it may (ERR-009).
	ErrApplicationFull = errors.New("the application has as many unfinished tasks as its limit allows")
	// ErrQueueFull reports that the queue has as many unfinished tasks as it may (ERR-010).
	ErrQueueFull = errors.New("the queue has as many unfinished tasks as its limit allows")
)

// A Ledger counts the unfinished tasks of some queues and their applications, as far as
// these have a limit, for one transaction. It serves one goroutine.
type Ledger struct {
	Now int64 // the database's time, if OpenNow has read it

	tx           *sqldb.Tx
	owners       map[sqldb.ID]sqldb.ID // application by queue
	queues       map[sqldb.ID]*count   // of those with a limit
	applications map[sqldb.ID]*count
}

// A count is a counter under its lock.
type count struct {
	limit      int64
	unfinished int64
	changed    bool
}

func (c *count) full() bool { return c != nil && c.unfinished >= c.limit }

// add never goes below zero (LIC-018).
func (c *count) add(n int64) {
	if c != nil {
		c.unfinished, c.changed = max(0, c.unfinished+n), true
	}
}

// Open reads the limits of queues and of their applications and locks them until the
// transaction ends. It is called after the identities of commands are inserted and before
// the first resource key or task is locked. Queues that do not exist have no limit. If a
// limit is found where modes expects none, modes learns it and the error wraps
// [sqldb.ErrAgain]: the transaction runs anew with the other lock. Where a limit was
// expected and is gone, this transaction locks more than it needs, and the next does not.
func Open(ctx context.Context, tx *sqldb.Tx, modes *Modes, queues []sqldb.ID) (*Ledger, error) {
	return open(ctx, tx, modes, queues, nil)
}

// OpenNow is Open, and reads the database's clock by the same statement: the time is that
// before the first lock. There must be a queue.
func OpenNow(ctx context.Context, tx *sqldb.Tx, modes *Modes, queues []sqldb.ID) (*Ledger, error) {
	clock := Row{Select: fmt.Sprintf(selectClock, tx.Dialect().Clock)}
	return open(ctx, tx, modes, queues, []Row{clock})
}

func open(ctx context.Context, tx *sqldb.Tx, modes *Modes, queues []sqldb.ID, also []Row) (*Ledger, error) {
	l := &Ledger{tx: tx, queues: make(map[sqldb.ID]*count), applications: make(map[sqldb.ID]*count)}
	queues = inOrder(queues)
	if len(queues) == 0 {
		return l, nil
	}
	var err error
	if l.owners, err = modes.OwnersOf(ctx, tx, queues); err != nil {
		return nil, err
	}
	applications := applicationsOf(l.owners)
	missing, err := l.lock(ctx, modes, applications, queues, also)
	if err == nil && len(missing) > 0 {
		err = l.makeRows(ctx, modes, missing)
	}
	if err != nil {
		return nil, fmt.Errorf("lock quotas: %w", err)
	}
	return l, nil
}

// Kinds of rows that are read.
const (
	queueRow = iota
	applicationRow
	clockRow
)

const (
	selectClock = `
SELECT 2, NULL, %s, 0`

	selectApplication = `
SELECT 1, application_id, max_unfinished, unfinished
FROM application_quota
WHERE application_id = ?`

	selectQueue = `
SELECT 0, id, max_backlog, unfinished
FROM queue
WHERE id = ?`
)

// lock locks rows by the modes that are expected and returns the applications that have
// none. Also are read before them.
func (l *Ledger) lock(ctx context.Context, modes *Modes, applications, queues []sqldb.ID, also []Row) (missing []sqldb.ID, err error) {
	expected := make(map[sqldb.ID]bool)
	rows := append(make([]Row, 0, len(also)+len(applications)+len(queues)), also...)
	for _, id := range applications {
		expected[id] = modes.Expected(l.tx, id)
		rows = append(rows, Row{Select: selectApplication, ID: id, Exclusive: expected[id]})
	}
	for _, id := range queues {
		expected[id] = modes.Expected(l.tx, id)
		rows = append(rows, Row{Select: selectQueue, ID: id, Exclusive: expected[id]})
	}
	surprised := false
	found := make(map[sqldb.ID]bool, len(rows))
	err = Lock(ctx, l.tx, rows, func(scan func(...any) error) error {
		var (
			kind int
			id   sqldb.ID
			c    count
		)
		if err := scan(&kind, &id, &c.limit, &c.unfinished); err != nil {
			return err
		}
		if kind == clockRow {
			l.Now = c.limit
			return nil
		}
		found[id] = true
		if limited := c.limit > 0; limited != expected[id] {
			surprised = surprised || limited
			modes.SetLimited(id, limited)
		}
		l.keep(kind, id, c)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case surprised:
		return nil, fmt.Errorf("a limit was set: %w", sqldb.ErrAgain)
	}
	return slices.DeleteFunc(applications, func(id sqldb.ID) bool { return found[id] }), nil
}

func (l *Ledger) keep(kind int, id sqldb.ID, c count) {
	switch {
	case c.limit <= 0:
	case kind == applicationRow:
		l.applications[id] = &c
	default:
		l.queues[id] = &c
	}
}

// makeRows makes the rows that applications lack. Without one there is nothing to lock,
// and who sets a limit would not wait for this transaction.
func (l *Ledger) makeRows(ctx context.Context, modes *Modes, applications []sqldb.ID) error {
	for _, id := range applications {
		if err := makeRow(ctx, l.tx, id); err != nil {
			return err
		}
	}
	_, err := l.lock(ctx, modes, applications, nil, nil)
	return err
}

const insertApplication = `
INSERT INTO application_quota (application_id, updated_at)
VALUES (?, %s)`

// makeRow makes the row of an application if it has none, and locks it.
func makeRow(ctx context.Context, tx *sqldb.Tx, application sqldb.ID) error {
	d := tx.Dialect()
	query := fmt.Sprintf(insertApplication, d.Clock) + d.OnConflict([]string{"application_id"})
	_, err := tx.ExecContext(ctx, query, application)
	return err
}

// Admit counts one more unfinished task of queue. It returns ErrApplicationFull or
// ErrQueueFull, and counts nothing, if that is one too many.
func (l *Ledger) Admit(queue sqldb.ID) error {
	switch {
	case l.applications[l.owners[queue]].full():
		return ErrApplicationFull
	case l.queues[queue].full():
		return ErrQueueFull
	}
	l.add(queue, 1)
	return nil
}

// Leave counts one unfinished task of queue less: it has ended.
func (l *Ledger) Leave(queue sqldb.ID) { l.add(queue, -1) }

func (l *Ledger) add(queue sqldb.ID, n int64) {
	l.applications[l.owners[queue]].add(n)
	l.queues[queue].add(n)
}

const (
	updateApplications = `
UPDATE application_quota
SET unfinished = CASE application_id%s ELSE unfinished END
WHERE application_id IN `

	updateQueues = `
UPDATE queue
SET unfinished = CASE id%s ELSE unfinished END
WHERE id IN `
)

// AddChanged has the counters written that have changed.
func (l *Ledger) AddChanged(w *sqldb.Writes) {
	add(w, "save quotas of applications", updateApplications, l.applications)
	add(w, "save quotas of queues", updateQueues, l.queues)
}

func add(w *sqldb.Writes, what, query string, counts map[sqldb.ID]*count) {
	var values []any
	var changed []sqldb.ID
	for _, id := range slices.SortedFunc(maps.Keys(counts), compare) {
		if c := counts[id]; c.changed {
			values, changed = append(values, id, c.unfinished), append(changed, id)
			c.changed = false
		}
	}
	if len(changed) == 0 {
		return
	}
	query = fmt.Sprintf(query, strings.Repeat(" WHEN ? THEN ?", len(changed))) + sqldb.Placeholders(len(changed))
	w.Add(what, query, append(values, args(changed)...)...)
}

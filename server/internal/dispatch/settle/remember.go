package settle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/task"
)

// Rows are a task and its live attempt as a node has written them last.
type Rows struct {
	Task    Task
	Attempt Attempt
}

// fit reports whether the hint's rows are those of an attempt and say what the hint says.
// A task with a cancel intent has been written by others, and may be again.
func (h Hint) fit(attempt sqldb.ID) bool {
	if h.Rows == nil {
		return false
	}
	t, a := &h.Rows.Task, &h.Rows.Attempt
	return a.ID == attempt && t.AttemptID == attempt && t.ID == a.Task && t.Epoch == a.Epoch && !t.CancelAt.Valid &&
		h == Hint{Task: t.ID, Queue: t.Queue, Key: t.Key, Keyed: t.Keyed, Rows: h.Rows}
}

// whole reports whether the rows of all attempts are remembered, each of another task.
func (hints Hints) whole(attempts []sqldb.ID) bool {
	of := make(map[sqldb.ID]sqldb.ID, len(attempts))
	for _, id := range attempts {
		h := hints[id]
		if other, twice := of[h.Task]; !h.fit(id) || twice && other != id {
			return false
		}
		of[h.Task] = id
	}
	return true
}

// A memory is how a row was remembered before the settlement changed it.
type memory struct {
	attempt  sqldb.ID
	running  task.AttemptState
	state    task.State
	revision int64
}

// recall makes a settlement of what is remembered, without a lock. The transaction may
// write nothing but these rows, and all of them: each statement that does so matches only
// rows that are still as they are remembered, and if one is not, everything is rolled back
// and runs anew under locks. So what is decided holds for rows that nobody else has written
// meanwhile, as if they had been locked from the time on that is read before.
func recall(tx *sqldb.Tx, hints Hints, attempts []sqldb.ID) *Settlement {
	s := &Settlement{
		tx: tx, tasks: make(map[sqldb.ID]*Task, len(attempts)), attempts: make(map[sqldb.ID]*Attempt, len(attempts)),
		remembered: make(map[sqldb.ID]memory, len(attempts)), recalled: time.Now(),
	}
	for _, id := range attempts {
		if s.attempts[id] != nil {
			continue
		}
		rows := *hints[id].Rows // a copy: the memory stays as it is
		t, a := &rows.Task, &rows.Attempt
		s.tasks[t.ID], s.attempts[id] = t, a
		s.remembered[t.ID] = memory{attempt: id, running: a.State, state: t.State, revision: t.Revision}
	}
	return s
}

// Freshness bounds how old the time may be by which something is judged that was not locked
// before. Rows may be waited for, for seconds behind a node that is stopped in the middle of
// its transaction; then leases pass, and credentials are revoked.
const Freshness = 800 * time.Millisecond

// checkFreshness has what took too long judged anew, under locks.
func (s *Settlement) checkFreshness() error {
	if s.remembered != nil && time.Since(s.recalled) > Freshness {
		return errChanged
	}
	return nil
}

// errChanged tells that a row is not what it was remembered as.
var errChanged = fmt.Errorf("a row has changed since it was remembered: %w", sqldb.ErrAgain)

// prepare begins the writing of remembered rows. What was answered without a change rests
// on memory alone, which is not good enough. Several statements of one table would take
// their locks out of order: then all rows are locked first.
func (s *Settlement) prepare(ctx context.Context) error {
	if s.remembered == nil {
		return nil
	}
	if len(s.started)+len(s.ended) != len(s.attempts) {
		return errChanged
	}
	if len(s.moves) < 2 && len(s.endings()) < 2 {
		return nil
	}
	// They read a column that no index has: MySQL rather goes through all of one that has all columns.
	for _, rows := range []struct {
		query string
		ids   []sqldb.ID
	}{
		{"SELECT state FROM task{by} WHERE id IN ", SortedIDs(slices.Collect(maps.Keys(s.tasks)))},
		{"SELECT state FROM attempt{by} WHERE id IN ", SortedIDs(slices.Collect(maps.Keys(s.attempts)))},
	} {
		query := ByID(s.tx.Dialect(), rows.query, len(rows.ids)) + " ORDER BY id" + s.tx.Dialect().ForUpdate
		err := sqldb.EachRow(ctx, s.tx, query, IDArgs(rows.ids), func(scan func(...any) error) error { return nil })
		if err != nil {
			return fmt.Errorf("lock remembered rows: %w", err)
		}
	}
	return nil
}

// ByID completes a statement that ends in "id IN" for n ids, with what has it find its
// rows by them in place of {by}. In a small table the optimizers rather go through all rows:
// then an update looks at those of others, too, and a lock waits for them.
func ByID(d *sqldb.Dialect, query string, n int) string {
	by := ""
	if d != sqldb.SQLite { // which has no such locks, and another name for the index
		by = d.ByIndex("PRIMARY")
	}
	return strings.Replace(query, "{by}", by, 1) + sqldb.Placeholders(n)
}

// updateTasks has an update run that ends in "WHERE id IN" for locked or remembered tasks.
func (s *Settlement) updateTasks(w *sqldb.Writes, what, query string, args []any, ids []sqldb.ID) {
	query, args = ByID(s.tx.Dialect(), query, len(ids)), append(args, IDArgs(ids)...)
	if s.remembered == nil {
		w.Add(what, query, args...)
		return
	}
	var attempts []sqldb.ID
	states, revisions := make(map[any]bool), make(map[any]bool)
	for _, id := range ids {
		m := s.remembered[id]
		attempts = append(attempts, m.attempt)
		states[m.state], revisions[m.revision] = true, true
	}
	// With its attempt and without a cancel intent a task has one revision in each state.
	query += " AND cancel_requested_at IS NULL AND attempt_id IN " + sqldb.Placeholders(len(attempts)) +
		" AND state IN " + sqldb.Placeholders(len(states)) + " AND revision IN " + sqldb.Placeholders(len(revisions))
	args = append(args, IDArgs(attempts)...)
	args = slices.AppendSeq(slices.AppendSeq(args, maps.Keys(states)), maps.Keys(revisions))
	w.AddMatching(len(ids), what, query, args...)
}

// updateAttempts has an update run that ends in "WHERE id IN" for locked or remembered
// attempts. Still completes the condition under which remembered ones are what they were,
// beside their state. It reads the clock anew: their tasks may have been waited for.
func (s *Settlement) updateAttempts(w *sqldb.Writes, what, query string, args []any, attempts []*Attempt, still string) {
	query = ByID(s.tx.Dialect(), query, len(attempts))
	states := make(map[any]bool)
	for _, a := range attempts {
		args = append(args, a.ID.Arg())
		states[s.remembered[a.Task].running] = true
	}
	if s.remembered == nil {
		w.Add(what, query, args...)
		return
	}
	query += " AND state IN " + sqldb.Placeholders(len(states)) + still
	args = slices.AppendSeq(args, maps.Keys(states))
	w.AddMatching(len(attempts), what, query, args...)
}

// write carries writes out. An update that matches fewer rows tells that a remembered one has
// changed.
func (s *Settlement) write(ctx context.Context, w *sqldb.Writes) error {
	err := w.Run(ctx)
	var mismatch *sqldb.MismatchError
	if errors.As(err, &mismatch) {
		return errChanged
	}
	return err
}

// A column is what an update of several attempts sets: one value if it is the same in all
// of them, else each its own, by id.
func column(attempts []*Attempt, value func(*Attempt) any) (expression string, args []any) {
	first := value(attempts[0])
	if !slices.ContainsFunc(attempts, func(a *Attempt) bool { return !same(value(a), first) }) {
		return "?", []any{first}
	}
	for _, a := range attempts {
		args = append(args, a.ID.Arg(), value(a))
	}
	return "CASE id" + strings.Repeat(" WHEN ? THEN ?", len(attempts)) + " END", args
}

func same(a, b any) bool {
	if text, ok := a.([]byte); ok {
		return string(text) == string(b.([]byte))
	}
	return a == b
}

package migrations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Options tunes Up. The zero value applies every step.
type Options struct {
	// To is the last step to apply. There are no steps back: a number below the
	// database's version changes nothing. Default the newest.
	To int
	// Lease is how long a crashed runner keeps others waiting; at least 1s. Default 15s.
	Lease time.Duration
	// Report is told what happens, one call at a time. Default nobody is told.
	Report func(Event)
}

// An Event is something that happened during Up.
type Event struct {
	Kind       EventKind
	Step       string        // NNNNNN_name, for all kinds but Waiting
	Statement  int           // which statement of the step comes next, from 1
	Statements int           // how many the step has
	Took       time.Duration // for StepApplied
	Holder     string        // for Waiting: the runner that holds the lock
}

// An EventKind says what an Event reports.
type EventKind int

// What happens during Up.
const (
	Waiting          EventKind = iota // another runner holds the lock
	StepBegun                         // a step begins at its first statement
	StepResumed                       // a half-applied step goes on
	StatementRunning                  // a statement is about to run
	StepApplied                       // a step is complete
)

func (o Options) withDefaults(steps []step) (Options, error) {
	if o.To == 0 {
		o.To = len(steps)
	}
	if o.To < 0 || o.To > len(steps) {
		return o, fmt.Errorf("migrations: there is no step %d: this program knows steps 1 to %d", o.To, len(steps))
	}
	if o.Lease == 0 {
		o.Lease = 15 * time.Second
	}
	if o.Lease < time.Second {
		return o, fmt.Errorf("migrations: Lease %v must be at least 1s", o.Lease)
	}
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	return o, nil
}

// Up applies the steps of set that db lacks, in order, and returns their numbers. A
// second call changes nothing. While another runner works, Up waits for it. If ctx ends
// or the process dies, the next Up goes on where this one stopped.
//
// It refuses, before it changes anything, a database with a newer step than this program
// knows ([VersionError]) and one whose applied steps differ from ours ([ChangedError]).
// After a crash in the middle of a statement whose effect it cannot prove it returns an
// [UnresolvedError].
func Up(ctx context.Context, db *sqldb.DB, set Set, opt Options) (applied []int, err error) {
	steps, err := load(files, set, db.Dialect())
	if err != nil {
		return nil, err
	}
	return up(ctx, db, set, steps, opt)
}

func up(ctx context.Context, db *sqldb.DB, set Set, steps []step, opt Options) ([]int, error) {
	opt, err := opt.withDefaults(steps)
	if err != nil {
		return nil, err
	}
	todo, err := pending(ctx, db, set, steps, opt.To)
	if err != nil || len(todo) == 0 {
		return nil, err
	}
	if err := openBooks(ctx, db); err != nil {
		return nil, err
	}
	l, err := acquire(ctx, db, set, opt.Lease, func(holder string) { opt.Report(Event{Kind: Waiting, Holder: holder}) })
	if err != nil {
		return nil, err
	}
	defer l.release(ctx)
	if todo, err = pending(ctx, db, set, steps, opt.To); err != nil { // the one before us may have done it all
		return nil, err
	}
	r := &runner{db: db, set: set, lock: l, report: opt.Report}
	return r.run(ctx, todo)
}

// pending returns the steps up to number to that db lacks or has half.
func pending(ctx context.Context, db *sqldb.DB, set Set, steps []step, to int) ([]step, error) {
	recorded, err := records(ctx, db.Write(), db.Dialect(), set)
	if err != nil {
		return nil, err
	}
	if err := compare(set, steps, recorded); err != nil {
		return nil, err
	}
	first := 0
	for _, r := range recorded {
		if !r.completed.IsZero() {
			first = r.number
		}
	}
	if first >= to {
		return nil, nil
	}
	return steps[first:to], nil
}

// compare holds what the books say against the steps that this program knows.
func compare(set Set, steps []step, recorded []record) error {
	for i, r := range recorded {
		if r.number > len(steps) {
			return &VersionError{Set: set, Found: recorded[len(recorded)-1].number, Min: 0, Max: len(steps)}
		}
		if r.number != i+1 {
			return fmt.Errorf("migrations: the books of set %s list step %s but not step %06d", set, r, i+1)
		}
		if s := steps[r.number-1]; string(s.checksum[:]) != string(r.checksum) {
			return &ChangedError{Set: set, Step: s.String(), Recorded: r.checksum, Known: s.checksum[:]}
		}
	}
	return nil
}

// A runner applies steps under the lock.
type runner struct {
	db     *sqldb.DB
	set    Set
	lock   *lock
	report func(Event)
}

func (r *runner) run(ctx context.Context, todo []step) (applied []int, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { r.lock.keep(ctx, stop) })
	defer keeper.Wait()
	defer stop(nil)
	for _, s := range todo {
		if err := r.apply(ctx, s); err != nil {
			if lost := context.Cause(ctx); errors.Is(lost, ErrLockLost) {
				err = lost
			}
			return applied, fmt.Errorf("migrate %s %s: %w", r.set, s, err)
		}
		applied = append(applied, s.number)
	}
	return applied, nil
}

func (r *runner) apply(ctx context.Context, s step) error {
	begin := time.Now()
	if err := r.record(ctx, func(tx *sqldb.Tx) error { return beginStep(ctx, tx, r.set, s) }); err != nil {
		return err
	}
	journal, err := marks(ctx, r.db.Write(), r.db.Dialect(), r.set, s.number)
	if err != nil {
		return err
	}
	r.report(begins(s, journal))
	for i, st := range s.statements {
		if journal[i+1] == done {
			continue
		}
		r.report(Event{Kind: StatementRunning, Step: s.String(), Statement: i + 1, Statements: len(s.statements)})
		if err := r.statement(ctx, s, i+1, st, journal[i+1] == begun); err != nil {
			return fmt.Errorf("statement %d of %d: %w", i+1, len(s.statements), err)
		}
	}
	if err := r.record(ctx, func(tx *sqldb.Tx) error { return endStep(ctx, tx, r.set, s.number) }); err != nil {
		return err
	}
	r.report(Event{Kind: StepApplied, Step: s.String(), Statements: len(s.statements), Took: time.Since(begin)})
	return nil
}

func begins(s step, journal map[int]mark) Event {
	e := Event{Kind: StepBegun, Step: s.String(), Statement: 1, Statements: len(s.statements)}
	if len(journal) > 0 {
		e.Kind = StepResumed
		for journal[e.Statement] == done {
			e.Statement++
		}
	}
	return e
}

// record runs f and a renewal of the lock in one transaction.
func (r *runner) record(ctx context.Context, f func(*sqldb.Tx) error) error {
	return r.db.Tx(ctx, func(tx *sqldb.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		// Last, so that the lock's row is held for a moment only, even if f takes minutes.
		return r.lock.hold(ctx, tx)
	})
}

func (r *runner) statement(ctx context.Context, s step, ordinal int, st statement, resumed bool) error {
	if st.transactional || r.db.Dialect().TransactionalDDL {
		return r.record(ctx, func(tx *sqldb.Tx) error {
			if _, err := tx.ExecContext(ctx, st.text); err != nil {
				return err
			}
			return writeMark(ctx, tx, r.set, s.number, ordinal, done)
		})
	}
	ran, err := r.alreadyRan(ctx, s, ordinal, st, resumed)
	if err != nil {
		return err
	}
	if !ran {
		if err := r.define(ctx, s, ordinal, st, resumed); err != nil {
			return err
		}
	}
	return r.mark(ctx, s.number, ordinal, done)
}

// alreadyRan decides whether a statement that commits by itself has run. One that was
// never begun must have left no trace: what it is to make belongs to somebody else then.
func (r *runner) alreadyRan(ctx context.Context, s step, ordinal int, st statement, resumed bool) (bool, error) {
	t, err := look(ctx, r.db.Write(), r.db.Dialect(), st)
	switch {
	case err != nil:
		return false, err
	case t == traceNone:
		return false, nil
	case resumed && t == traceWhole:
		return true, nil
	case resumed:
		return false, &UnresolvedError{Set: r.set, Step: s.String(), Ordinal: ordinal, Statement: st.text, effects: st.effects}
	case t == traceUnknown:
		return false, nil
	}
	return false, fmt.Errorf("before it ran, the database was already as the statement makes it, at least in part (%s): these are not Orbit's, give it a database of its own", names(st.effects))
}

// define runs a statement that commits by itself, between its two marks.
func (r *runner) define(ctx context.Context, s step, ordinal int, st statement, resumed bool) error {
	if err := r.mark(ctx, s.number, ordinal, begun); err != nil {
		return err
	}
	_, err := r.db.Write().ExecContext(ctx, st.text)
	if err == nil || !r.db.Dialect().Refused(err) {
		return err // without an answer the mark stays, and the next run looks
	}
	if resumed {
		// The crashed runner's statement may have been at work in the database until now.
		if t, lookErr := look(ctx, r.db.Write(), r.db.Dialect(), st); lookErr == nil && t == traceWhole {
			return nil
		}
		return err
	}
	erase := r.record(ctx, func(tx *sqldb.Tx) error { return eraseMark(ctx, tx, r.set, s.number, ordinal) })
	return errors.Join(err, erase)
}

func (r *runner) mark(ctx context.Context, number, ordinal int, m mark) error {
	return r.record(ctx, func(tx *sqldb.Tx) error { return writeMark(ctx, tx, r.set, number, ordinal, m) })
}

package resourceguard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// A Verdict is what became of a write that was not refused.
type Verdict int

// The verdicts.
const (
	Applied  Verdict = iota + 1 // fn has run and its effects are in the transaction
	Replayed                    // the operation had been applied before; fn has not run
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Applied:
		return "Applied"
	case Replayed:
		return "Replayed"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// A Result is the answer to a write that was not refused.
type Result struct {
	Verdict Verdict
	Receipt []byte // what fn returned when the operation was applied; nil if nothing
}

// A WriteFunc does the business write through tx, the transaction given to Apply, and
// may return a receipt of at most [MaxReceipt] bytes, to be given to repeats. An error
// undoes the write.
//
// It must return every error of the database and neither end the transaction nor run a
// statement that does. On MySQL and MariaDB a deadlock has rolled everything back, and
// what fn does after it is committed at once, statement by statement; CREATE, ALTER, DROP,
// TRUNCATE and LOCK TABLES commit what came before them, the record of the operation
// included, and no error of fn undoes it. With a receipt Apply finds out, see
// [ErrUnknownCommit]; without one it does not.
type WriteFunc func(ctx context.Context, tx Tx) (receipt []byte, err error)

// Apply runs fn in tx if w may be written and has not been: see the package comment
// for the order of the steps. The highest token of the resource, the record of the
// operation and what fn does commit or roll back with tx, which Apply neither begins
// nor commits.
//
// A repeat of an operation with the same content runs nothing and returns the recorded
// receipt. [ErrStale], [ErrTokenCollision] and [ErrOperationConflict] refuse the write
// and leave tx as it was, as do [ErrInvalid], [ErrNotAuthorised] and [ErrNoTransaction],
// which come before any I/O. After any other error, that of fn included, nothing may be
// committed: Apply rolls tx back itself if it has a Rollback method, so that no
// operation can be recorded without its effect. Only with [Config].KeepRaise and
// [ErrRefused] is there something to commit: the raise, and with it what else the caller
// has done in tx, another Apply included. Whoever does more than one Apply there rolls
// back and raises the error's Fence alone, as [Guard.Transact] does.
func (g *Guard) Apply(ctx context.Context, tx Tx, w Write, fn WriteFunc) (Result, error) {
	if err := g.made(); err != nil {
		return Result{}, err
	}
	if err := w.validate(); err != nil {
		return Result{}, err
	}
	if fn == nil {
		return Result{}, invalid("fn", "must be given")
	}
	if err := inTransaction(tx); err != nil {
		return Result{}, err
	}
	if err := allowed(ctx, g.authorise, w.Namespace, w.Key); err != nil {
		return Result{}, err
	}
	res, err := g.apply(ctx, tx, w, fn)
	return res, g.retryable(err)
}

// apply abandons tx if it ends, by an error or a panic, with anything but a verdict.
func (g *Guard) apply(ctx context.Context, tx Tx, w Write, fn WriteFunc) (res Result, err error) {
	fit := false // to be committed
	defer func() {
		if !fit {
			abandon(tx)
		}
	}()
	s, err := g.lock(ctx, tx, w.Namespace, w.Key)
	if err != nil {
		return Result{}, err
	}
	if refusal := s.admit(w.Token, w.Attempt); refusal != nil {
		err = g.tellApplied(ctx, tx, w, refusal)
		fit = err == refusal
		return Result{}, err
	}
	fresh, err := g.record(ctx, tx, w)
	if err != nil {
		return Result{}, err
	}
	if fresh {
		res, fit, err = g.first(ctx, tx, w, s, fn)
		return res, err
	}
	res, err = g.replay(ctx, tx, w, s)
	fit = err == nil || errors.Is(err, ErrOperationConflict)
	return res, err
}

// first does an operation that has just been recorded. fit reports that the transaction
// may be committed, as it may after a refusal that keeps the raise.
func (g *Guard) first(ctx context.Context, tx Tx, w Write, s seen, fn WriteFunc) (res Result, fit bool, err error) {
	if g.cfg.Check != nil {
		if err := g.cfg.Check(ctx, tx, w); err != nil {
			return Result{}, false, err
		}
	}
	if err := g.raise(ctx, tx, s, w.fence()); err != nil {
		return Result{}, false, err
	}
	receipt, kept, err := g.effect(ctx, tx, w, fn)
	if err != nil {
		return Result{}, kept, err
	}
	return Result{Verdict: Applied, Receipt: receipt}, true, nil
}

// effect runs fn and stores its receipt. kept reports that fn's error was undone but
// for the raise.
func (g *Guard) effect(ctx context.Context, tx Tx, w Write, fn WriteFunc) (receipt []byte, kept bool, err error) {
	undo, err := g.savepoint(ctx, tx)
	if err != nil {
		return nil, false, err
	}
	receipt, err = fn(ctx, tx)
	if err == nil {
		receipt, err = validReceipt(receipt)
	}
	if err != nil {
		kept, err = g.keepRaise(ctx, tx, w, err, undo)
		return nil, kept, err
	}
	return receipt, false, g.keepReceipt(ctx, tx, w, receipt)
}

var savepoints atomic.Uint64

// savepoint marks where the business write begins and returns the statement that goes
// back there; none without KeepRaise. Names differ, as fn may apply writes of its own
// and a savepoint replaces an older one of its name.
func (g *Guard) savepoint(ctx context.Context, tx Tx) (undo string, err error) {
	if !g.cfg.KeepRaise {
		return "", nil
	}
	name := fmt.Sprintf("orbit_guard_%d", savepoints.Add(1))
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return "", fmt.Errorf("set savepoint: %w", err)
	}
	return "ROLLBACK TO SAVEPOINT " + name, nil
}

// keepRaise undoes a refused write but for the raise. That the savepoint still exists
// is the proof that the transaction does: after a deadlock both are gone.
func (g *Guard) keepRaise(ctx context.Context, tx Tx, w Write, refusal error, undo string) (kept bool, err error) {
	if undo == "" || g.dialect.Transient(refusal) {
		return false, refusal
	}
	if _, err := tx.ExecContext(ctx, undo); err != nil {
		return false, errors.Join(refusal, fmt.Errorf("go back to savepoint: %w", err))
	}
	if err := g.forget(ctx, tx, w); err != nil {
		return false, errors.Join(refusal, err)
	}
	return true, &RefusedError{Fence: w.fence(), Err: refusal}
}

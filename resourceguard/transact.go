package resourceguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ErrUnknownCommit reports that a transaction may be in force or not: the answer to its
// COMMIT was lost, and running it again gave none either; or it was ended by what ran in
// it, be it a COMMIT, a ROLLBACK or an error of the database that was not returned. Whoever
// needs to know looks the operation up behind a [Guard.Raise], or, if only an answer was
// lost, runs it once more later.
var ErrUnknownCommit = errors.New("resourceguard: whether the transaction was committed is unknown")

const (
	maxRuns    = 12
	firstPause = 5 * time.Millisecond // doubled with each run, jittered
	mostPause  = 500 * time.Millisecond
)

// errEnded is the unknown end of a transaction that something else than Transact ended. To
// run it again would do once more what may have been committed.
var errEnded = fmt.Errorf("%w: it was ended by what ran in it", ErrUnknownCommit)

// Transact runs f in a transaction of db and commits it. f must do nothing but what
// belongs to tx, return every error, leave COMMIT and ROLLBACK to Transact, and write to
// guarded resources through g alone: then it can be run again, which happens at most 12
// times, after [ErrRetryable] and after a COMMIT whose answer was lost. A repeat of what
// was committed is replayed (RG-005). The pauses between the runs add up to a few seconds;
// waits for locks come on top, up to the engine's limit in each run (50 s on MySQL as
// delivered, without end on PostgreSQL). A deadline of ctx bounds the whole.
//
// It returns nil once a run is committed, and an error of f as it is, after a rollback.
// With [ErrRefused] all that f did is rolled back, and the raise alone is committed, in a
// transaction of its own; if that fails, the error holds those of the business write and
// of the raise and is no ErrRefused.
//
// An error that wraps [ErrUnknownCommit] means that a run may be in force: no COMMIT was
// answered, or f ended tx by itself, after which nothing is run again. With every other
// error nothing is. A nil db or f is an [ErrInvalid], before any I/O.
func (g *Guard) Transact(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	if err := g.made(); err != nil {
		return err
	}
	if db == nil {
		return invalid("db", "must be given")
	}
	if f == nil {
		return invalid("f", "must be given")
	}
	err := g.transact(ctx, db, f)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return g.raiseAlone(ctx, db, err, refused)
	}
	return err
}

func (g *Guard) transact(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	var unknown error // a run whose COMMIT was not answered
	for run := 0; ; run++ {
		err := g.transactOnce(ctx, db, f)
		if errors.Is(err, ErrUnknownCommit) {
			unknown = err
		}
		switch again := (unknown != nil || errors.Is(err, ErrRetryable)) && !errors.Is(err, errEnded); {
		case err == nil:
			return nil
		case again && !isVerdict(err) && run+1 < maxRuns && pause(ctx, run):
			continue
		case unknown != nil && !errors.Is(err, ErrUnknownCommit):
			return fmt.Errorf("%w; then: %w", unknown, err)
		}
		return err
	}
}

// raiseAlone keeps the raise of a refused write whose transaction is rolled back, and
// returns err, which told so. A resource that has seen more by now needs no raise.
func (g *Guard) raiseAlone(ctx context.Context, db *sql.DB, err error, refused *RefusedError) error {
	failed := g.transact(ctx, db, func(ctx context.Context, tx *sql.Tx) error { return g.Raise(ctx, tx, refused.Fence) })
	outcome := refused.Err
	if errors.Is(err, ErrUnknownCommit) { // of a run before
		outcome = fmt.Errorf("%w; then: %w", ErrUnknownCommit, refused.Err)
	}
	switch {
	case failed == nil, errors.Is(failed, ErrStale), errors.Is(failed, ErrTokenCollision):
		return err
	case errors.Is(failed, ErrUnknownCommit): // of the raise: nothing of f is in force
		return fmt.Errorf("%w; whether the token is raised is unknown", outcome)
	}
	return fmt.Errorf("%w; the token is not raised: %w", outcome, failed)
}

// isVerdict reports whether err is a refusal, which no repeat changes.
func isVerdict(err error) bool {
	for _, verdict := range []error{ErrStale, ErrTokenCollision, ErrOperationConflict, ErrInvalid, ErrNotAuthorised, ErrRefused} {
		if errors.Is(err, verdict) {
			return true
		}
	}
	return false
}

func (g *Guard) transactOnce(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return g.retryable(fmt.Errorf("begin: %w", err))
	}
	defer tx.Rollback() // no-op after Commit
	if err := f(ctx, tx); err != nil {
		return g.retryable(err)
	}
	switch err := tx.Commit(); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone): // by f, or by the end of ctx: nothing tells which
		return fmt.Errorf("%w: %w", errEnded, err)
	case g.dialect.Transient(err): // the engine has refused it, as PostgreSQL may at SERIALIZABLE
		return g.retryable(err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknownCommit, err)
	}
}

// pause waits before the next run and reports whether there may be one.
func pause(ctx context.Context, run int) bool {
	t := time.NewTimer(rand.N(min(firstPause<<min(run, 10), mostPause)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

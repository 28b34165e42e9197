package resourceguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ErrUnknownCommit reports that the answer to a COMMIT was lost and that running the
// transaction again gave none either: it may be in force or not. Whoever needs to know
// runs it once more later, or looks the operation up behind a [Guard.Raise].
var ErrUnknownCommit = errors.New("resourceguard: whether the transaction was committed is unknown")

const (
	maxRuns    = 12
	firstPause = 5 * time.Millisecond // doubled with each run, jittered
	mostPause  = 500 * time.Millisecond
)

// Transact runs f in a transaction of db and commits it. f must do nothing but what
// belongs to tx, and write to guarded resources through g alone: then it can be run
// again, which happens at most 12 times within a few seconds, after [ErrRetryable] and after a
// COMMIT whose answer was lost. A repeat of what was committed is replayed (RG-005).
//
// It returns nil once a run is committed, and an error of f as it is, after a rollback;
// only with [ErrRefused], which keeps the raise, is there something to commit before.
// An error that wraps [ErrUnknownCommit] means that a run may be in force. With every
// other error nothing is.
func (g *Guard) Transact(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	var unknown error // a run whose COMMIT was not answered
	for run := 0; ; run++ {
		err := g.transactOnce(ctx, db, f)
		if errors.Is(err, ErrUnknownCommit) {
			unknown = err
		}
		switch again := unknown != nil || errors.Is(err, ErrRetryable); {
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
	refusal := f(ctx, tx)
	if refusal != nil && !errors.Is(refusal, ErrRefused) {
		return g.retryable(refusal)
	}
	switch err := tx.Commit(); {
	case errors.Is(err, sql.ErrTxDone): // f or the end of ctx has rolled it back
		return fmt.Errorf("commit: %w", err)
	case g.dialect.Transient(err): // the engine has refused it, as PostgreSQL may at SERIALIZABLE
		return g.retryable(err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnknownCommit, err)
	}
	return refusal
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

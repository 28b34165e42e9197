package resourceguard

import (
	"context"
	"fmt"
	"time"
)

const (
	// PromisedWindow is how long an operation's record is kept at least: as long as the
	// platform answers a repeated submit with the original task.
	PromisedWindow = 90 * 24 * time.Hour

	// MaxPrune is the most records that one call of [Guard.Prune] deletes.
	MaxPrune = 1000
)

// Prune deletes at most limit (1 to [MaxPrune]) records of operations that were applied
// longer than age ago by the database's clock, the oldest first, and returns how many
// are gone; fewer than limit mean that none is left. age must be at least
// [PromisedWindow], and longer than a task of the owner's may live: a repeat that comes
// after its record is gone is applied again. Keys and their highest tokens always stay,
// so whoever has lost a resource is refused for ever.
//
// It is the owner's own upkeep and asks no AuthoriseFunc. db is a *sql.DB or *sql.Conn, on
// which Prune runs a transaction of its own, or a transaction that the caller commits, one
// run by hand as [InTransaction]; errors are those of the database, and [ErrRetryable] and
// [ErrInvalid] as in [Guard.Apply].
func (g *Guard) Prune(ctx context.Context, db Tx, age time.Duration, limit int) (deleted int, err error) {
	if err := g.made(); err != nil {
		return 0, err
	}
	switch {
	case isNil(db):
		return 0, invalid("db", "must be given")
	case age < PromisedWindow:
		return 0, invalid("age", "must be at least 90 days (2160h)")
	case limit < 1 || limit > MaxPrune:
		return 0, invalid("limit", "must be 1 to 1000")
	}
	if begins, is := db.(beginner); is {
		deleted, err = g.pruneAlone(ctx, begins, age, limit)
	} else if inTransaction(db) != nil {
		return 0, invalid("db", "must be a *sql.DB, a *sql.Conn or a transaction")
	} else {
		deleted, err = g.prune(ctx, db, age, limit)
	}
	return deleted, g.retryable(err)
}

// pruneAlone commits what it deletes: a session may have autocommit turned off.
func (g *Guard) pruneAlone(ctx context.Context, db beginner, age time.Duration, limit int) (deleted int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() // no-op after Commit
	if deleted, err = g.prune(ctx, tx, age, limit); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return deleted, nil
}

func (g *Guard) prune(ctx context.Context, tx Tx, age time.Duration, limit int) (deleted int, err error) {
	now, err := g.dialect.ClockNow(ctx, tx)
	if err != nil {
		return 0, fmt.Errorf("read database clock: %w", err)
	}
	res, err := tx.ExecContext(ctx, g.sql.deleteOld, now-age.Microseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("delete old operations: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

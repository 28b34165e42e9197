package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ErrUnknownCommit reports that the answer to COMMIT was lost: the transaction may be
// in force or not. The caller reads an identity that the transaction wrote, on a fresh
// connection, and if that fails too reports the outcome as unknown (ERR-017).
var ErrUnknownCommit = errors.New("outcome of commit is unknown")

// ErrAgain asks for the transaction to be run anew: a function that found something else
// than it had expected, and took the wrong locks for it, returns an error that wraps it.
var ErrAgain = errors.New("transaction is to be run again")

const (
	maxTries  = 8
	retryStep = 5 * time.Millisecond // grows with each try, jittered
)

// A Tx is a transaction in progress. Its function may run more than once, so it must
// keep no state from an earlier run.
type Tx struct {
	*sql.Tx
	dialect *Dialect
	now     int64
	again   int
	joins   bool // the connection takes several statements at once
}

// Again returns how often the transaction's function has asked by [ErrAgain] to be run
// anew. Who asks for other locks takes all that it may need when this grows: else what
// changes faster than transactions run could surprise one without end.
func (tx *Tx) Again() int { return tx.again }

// Dialect returns the dialect of the transaction's database.
func (tx *Tx) Dialect() *Dialect { return tx.dialect }

// Now returns the database's time in microseconds UTC, read once per transaction.
func (tx *Tx) Now(ctx context.Context) (int64, error) {
	if tx.now != 0 {
		return tx.now, nil
	}
	now, err := tx.dialect.ClockNow(ctx, tx.Tx)
	if err != nil {
		return 0, fmt.Errorf("read database clock: %w", err)
	}
	tx.now = now
	return now, nil
}

// Tx runs f in a transaction and commits it. Any error of f rolls back. After a
// deadlock, a lock wait timeout, a record changed since it was read, a busy SQLite file, a
// connection that had ended before a statement was sent, or an ErrAgain of f, the whole of f
// runs again a bounded number of times. An error that wraps ErrUnknownCommit means that the transaction may have committed; every other error
// means that it has not.
func (db *DB) Tx(ctx context.Context, f func(*Tx) error) error {
	var err error
	again := 0
	for try := range maxTries {
		pause := time.Duration(0)
		if errors.Is(err, ErrAgain) {
			again++ // and at once: the function knows what to do otherwise, and waits for nobody
		} else if try > 0 {
			pause = rand.N(retryStep << min(try, 5))
		}
		if try > 0 && !sleep(ctx, pause) {
			return err
		}
		if err = db.tryTx(ctx, again, f); err == nil || errors.Is(err, ErrUnknownCommit) || !db.runsAgain(err) {
			return err
		}
	}
	return fmt.Errorf("gave up after %d tries: %w", maxTries, err)
}

// runsAgain reports whether a transaction that is certainly not in force may succeed anew.
// With driver.ErrBadConn the engine has not seen the statement: a connection that ended while
// it was idle is found out by the first one.
func (db *DB) runsAgain(err error) bool {
	return errors.Is(err, ErrAgain) || errors.Is(err, driver.ErrBadConn) || db.dialect.Transient(err)
}

// TxResolve is Tx for a transaction that wrote an identity: if the answer to COMMIT is
// lost, committed looks the identity up on a fresh connection and reports whether it is
// there. Only if that cannot be read either does the error wrap ErrUnknownCommit. When
// it is provably absent, f runs again.
func (db *DB) TxResolve(ctx context.Context, f func(*Tx) error, committed func(context.Context, Querier) (bool, error)) error {
	for range maxTries {
		err := db.Tx(ctx, f)
		if !errors.Is(err, ErrUnknownCommit) {
			return err
		}
		// The write pool reads the primary, whatever the read pool is.
		there, lookErr := committed(ctx, db.write)
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		if there {
			return nil
		}
	}
	return ErrUnknownCommit
}

func (db *DB) tryTx(ctx context.Context, again int, f func(*Tx) error) error {
	tx, err := db.begin.BeginTx(ctx, nil) // the isolation level is set once per connection
	if err != nil {
		return err
	}
	defer tx.Rollback() // no-op after Commit
	if err := f(&Tx{Tx: tx, dialect: db.dialect, again: again, joins: db.begin != db.write}); err != nil {
		return err
	}
	return db.commit(ctx, tx)
}

// commit tells the three ends of a COMMIT apart: done, refused by the server (rolled
// back), and unknown.
func (db *DB) commit(ctx context.Context, tx *sql.Tx) error {
	err := tx.Commit()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err // database/sql rolled back instead of sending COMMIT
	case errors.Is(err, driver.ErrBadConn):
		return err // the connection had ended before COMMIT was sent
	case db.dialect.classify(err) == classUnknown:
		return fmt.Errorf("%w: %w", ErrUnknownCommit, err)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

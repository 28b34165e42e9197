package resourceguard

import (
	"context"
	"database/sql"
)

// A Tx is the caller's transaction: *sql.Tx, or what a library built on database/sql
// hands out. A pool or a plain connection is none, see [InTransaction].
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Querier reads. *sql.DB and every [Tx] are one.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// InTransaction vouches for conn, a connection on which the caller runs a transaction
// by hand. A failed write has to be rolled back there: the guard cannot do it.
func InTransaction(conn Tx) Tx { return byHand{conn} }

// byHand hides every other method of a connection, so that it is not taken for one
// that begins transactions.
type byHand struct{ Tx }

// inTransaction refuses what would run each statement in a transaction of its own. A
// *sql.DB and a *sql.Conn are told by the exact form of their BeginTx, the pool of an
// ORM by what only a pool has; the transaction of an ORM may have a BeginTx of another
// form.
func inTransaction(tx Tx) error {
	type beginner interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	}
	type pool interface{ Stats() sql.DBStats }
	if tx == nil {
		return ErrNoTransaction
	}
	if _, begins := tx.(beginner); begins {
		return ErrNoTransaction
	}
	if _, is := tx.(pool); is {
		return ErrNoTransaction
	}
	if t, is := tx.(*sql.Tx); is && t == nil {
		return ErrNoTransaction
	}
	if h, is := tx.(byHand); is && h.Tx == nil {
		return ErrNoTransaction
	}
	return nil
}

// abandon rolls tx back if it can be, so that its owner cannot commit half an
// operation by overlooking an error.
func abandon(tx Tx) {
	if t, can := tx.(interface{ Rollback() error }); can {
		_ = t.Rollback() // the error that led here says more
	}
}

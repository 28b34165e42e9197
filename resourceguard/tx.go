package resourceguard

import (
	"context"
	"database/sql"
	"reflect"
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

// A beginner is what a *sql.DB and a *sql.Conn are told by.
type beginner interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}

// inTransaction refuses what would run each statement in a transaction of its own. A
// *sql.DB and a *sql.Conn are told by the exact form of their BeginTx, the pool of an
// ORM by what only a pool has; the transaction of an ORM may have a BeginTx of another
// form.
func inTransaction(tx Tx) error {
	type pool interface{ Stats() sql.DBStats }
	if isNil(tx) {
		return ErrNoTransaction
	}
	if h, is := tx.(byHand); is {
		return vouchedFor(h)
	}
	if _, begins := tx.(beginner); begins {
		return ErrNoTransaction
	}
	if _, is := tx.(pool); is {
		return ErrNoTransaction
	}
	return nil
}

// vouchedFor refuses what InTransaction was given if it is nothing, at whatever depth.
func vouchedFor(h byHand) error {
	if inner, is := h.Tx.(byHand); is {
		return vouchedFor(inner)
	}
	if isNil(h.Tx) {
		return ErrNoTransaction
	}
	return nil
}

// isNil reports whether v is nothing, or a nil pointer in an interface, such as a *sql.DB
// that was never opened.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// abandon rolls tx back if it can be, so that its owner cannot commit half an
// operation by overlooking an error.
func abandon(tx Tx) {
	if t, can := tx.(interface{ Rollback() error }); can {
		_ = t.Rollback() // the error that led here says more
	}
}

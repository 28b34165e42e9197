package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
)

// A Tx is the caller's transaction: a *sql.Tx, or what sqlx, GORM, ent and bun hand
// out for one. It must also have QueryContext or QueryRowContext as database/sql
// declares them; Enqueue needs one of them to read back after a duplicate.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

type rowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Conn is a connection on which the caller runs a transaction by hand.
type Conn interface {
	Tx
	rowsQuerier
}

// InTransaction says that conn, such as a *sql.Conn, is inside a transaction that the
// caller has begun with a statement of its own. Nobody can check this: without BEGIN
// the row is in force at once. A pool is refused by [CheckTx]: its statements take any
// connection.
func InTransaction(conn Conn) Tx { return manualTx{conn} }

// manualTx hides every other method of the connection, BeginTx above all.
type manualTx struct{ conn Conn }

func (m manualTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.conn.ExecContext(ctx, query, args...)
}

func (m manualTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return m.conn.QueryContext(ctx, query, args...)
}

// CheckTx refuses, with [ErrNoTransaction] and before any I/O, what would write outside a
// transaction: pools, connections that were not named by [InTransaction], and what cannot be
// read from. Enqueue calls it; it is for those who stand in for an Outbox.
func CheckTx(tx Tx) error {
	manual, byHand := tx.(manualTx)
	switch {
	case isNil(tx):
		return fmt.Errorf("%w: tx is nil", ErrNoTransaction)
	case byHand && isNil(manual.conn):
		return fmt.Errorf("%w: connection is nil", ErrNoTransaction)
	case byHand && isPool(manual.conn):
		return fmt.Errorf("%w: %T is a pool, whose statements take any connection", ErrNoTransaction, manual.conn)
	case byHand:
		return nil
	}
	if t, is := tx.(*sql.Tx); is {
		if reflect.ValueOf(t).Elem().IsZero() {
			return fmt.Errorf("%w: tx was never begun", ErrNoTransaction)
		}
		return nil
	}
	// What database/sql's own pool and connection have. A transaction of an ORM may
	// have a BeginTx too, which returns the ORM's type.
	if _, is := tx.(interface {
		BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	}); is {
		return fmt.Errorf("%w: %T can begin one; pass the transaction, or use InTransaction", ErrNoTransaction, tx)
	}
	// The pool of an ORM begins transactions of a type of its own, which we cannot name, and
	// unlike that transaction it commits nothing: GORM with prepared statements.
	_, commits := tx.(interface{ Commit() error })
	if _, begins := reflect.TypeOf(tx).MethodByName("BeginTx"); begins && !commits {
		return fmt.Errorf("%w: %T can begin one; pass the transaction, or use InTransaction", ErrNoTransaction, tx)
	}
	if isPool(tx) {
		return fmt.Errorf("%w: %T is a pool", ErrNoTransaction, tx)
	}
	_, rows := tx.(rowsQuerier)
	_, row := tx.(rowQuerier)
	if !rows && !row {
		return fmt.Errorf("%w: %T has neither QueryContext nor QueryRowContext of database/sql", ErrNoTransaction, tx)
	}
	return nil
}

// isNil sees a nil pointer in an interface too.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// isPool tells by what only a pool has. Pools of ORMs embed *sql.DB, and with it this.
func isPool(v any) bool {
	_, is := v.(interface{ Stats() sql.DBStats })
	return is
}

// scanRow reads the first row of a query; without one it returns sql.ErrNoRows.
func scanRow(ctx context.Context, tx Tx, query string, args []any, dest ...any) error {
	if q, is := tx.(rowQuerier); is {
		return q.QueryRowContext(ctx, query, args...).Scan(dest...)
	}
	rows, err := tx.(rowsQuerier).QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

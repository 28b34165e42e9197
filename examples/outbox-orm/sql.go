package orm

import (
	"context"
	"database/sql"

	"github.com/orbitkit/orbit/outbox"
)

// A SQLShop uses database/sql: the transaction is what Enqueue takes.
type SQLShop struct {
	DB  *sql.DB
	Box *outbox.Outbox
}

// Place takes an order.
func (s SQLShop) Place(ctx context.Context, o Order) error {
	m, err := shipping(o)
	if err != nil {
		return err
	}
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, insertOrder, o.ID, o.Quantity); err != nil {
		return err
	}
	if _, err := s.Box.Enqueue(ctx, tx, m); err != nil {
		return err
	}
	if err := o.inStock(); err != nil {
		return err
	}
	return tx.Commit()
}

// A ConnShop begins its transactions by hand, on a *sql.Conn, and says so with InTransaction.
type ConnShop struct {
	DB  *sql.DB
	Box *outbox.Outbox
}

// Place takes an order.
func (s ConnShop) Place(ctx context.Context, o Order) (err error) {
	m, err := shipping(o)
	if err != nil {
		return err
	}
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	if _, err := conn.ExecContext(ctx, insertOrder, o.ID, o.Quantity); err != nil {
		return err
	}
	if _, err := s.Box.Enqueue(ctx, outbox.InTransaction(conn), m); err != nil {
		return err
	}
	if err := o.inStock(); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

package orm

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/orbitkit/orbit/outbox"
)

// A SQLXShop uses sqlx: a *sqlx.Tx is what Enqueue takes.
type SQLXShop struct {
	DB  *sqlx.DB
	Box *outbox.Outbox
}

// Place takes an order.
func (s SQLXShop) Place(ctx context.Context, o Order) error {
	m, err := shipping(o)
	if err != nil {
		return err
	}
	tx, err := s.DB.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id, quantity) VALUES (:id, :quantity)", o); err != nil {
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

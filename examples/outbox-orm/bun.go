package orm

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/orbitkit/orbit/outbox"
)

// A BunShop uses bun: the *sql.Tx inside a bun.Tx is what Enqueue takes. The bun.Tx itself
// would do as well, but would write the values into the statement itself.
type BunShop struct {
	DB  *bun.DB
	Box *outbox.Outbox
}

// Place takes an order.
func (s BunShop) Place(ctx context.Context, o Order) error {
	m, err := shipping(o)
	if err != nil {
		return err
	}
	return s.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&o).Exec(ctx); err != nil {
			return err
		}
		if _, err := s.Box.Enqueue(ctx, tx.Tx, m); err != nil {
			return err
		}
		return o.inStock()
	})
}

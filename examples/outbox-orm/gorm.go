package orm

import (
	"context"

	"gorm.io/gorm"

	"github.com/orbitkit/orbit/outbox"
)

// A GORMShop uses GORM: the connection of the transaction is what Enqueue takes. Outside a
// transaction that would be the pool, which Enqueue refuses.
type GORMShop struct {
	DB  *gorm.DB
	Box *outbox.Outbox
}

// Place takes an order.
func (s GORMShop) Place(ctx context.Context, o Order) error {
	m, err := shipping(o)
	if err != nil {
		return err
	}
	return s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		if _, err := s.Box.Enqueue(ctx, tx.Statement.ConnPool, m); err != nil {
			return err
		}
		return o.inStock()
	})
}

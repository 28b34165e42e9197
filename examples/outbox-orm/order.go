// Package orm shows outbox.Enqueue in the transactions of database/sql, sqlx, GORM and bun.
// Each file has one of them and does the same: an order and the request to ship it are
// committed together, or neither is. It is a module of its own, so that Orbit needs none of
// these libraries.
package orm

import (
	"encoding/json"
	"errors"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// An Order is the business row.
type Order struct {
	ID       string `json:"order_id" db:"id" gorm:"primaryKey" bun:"id,pk"`
	Quantity int    `json:"quantity" db:"quantity"`
}

// ErrSoldOut reports that there is not enough in stock. It is found out last, so that a
// rollback takes back both rows.
var ErrSoldOut = errors.New("sold out")

const stock = 10

func (o Order) inStock() error {
	if o.Quantity > stock {
		return ErrSoldOut
	}
	return nil
}

const insertOrder = "INSERT INTO orders (id, quantity) VALUES (?, ?)"

// queueID is that of a queue of the task server, from the service's settings.
const queueID = "0123456789abcdef0123456789abcdef"

// shipping is what the platform is to do for an order.
func shipping(o Order) (outbox.Message, error) {
	key, err := outbox.Key("order", o.ID, "ship") // from the business operation, never random
	if err != nil {
		return outbox.Message{}, err
	}
	payload, err := json.Marshal(o)
	if err != nil {
		return outbox.Message{}, err
	}
	return outbox.Message{
		Key:    key,
		Target: "warehouse",
		Request: orbit.SubmitTaskRequest{
			QueueID: queueID, Handler: "order.ship", HandlerVersion: "v1", PayloadVersion: "v1", Payload: payload,
		},
	}, nil
}

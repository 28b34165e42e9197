package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// target names the task server and namespace that orders are meant for.
const target = "warehouse"

// handlerName is what the business asks for; a worker has registered it.
const handlerName = "stock.reserve"

// errPaymentFailed makes a business transaction roll back.
var errPaymentFailed = errors.New("payment failed")

// An order is what the customer wants.
type order struct {
	ID       string `json:"order_id"`
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
}

// A business takes orders. It knows the outbox and nothing else of Orbit: no
// connection to the task server is open while it works.
type business struct {
	db    *database
	box   *outbox.Outbox
	queue string
}

func newBusiness(ctx context.Context, db *database, queue string) (*business, error) {
	box, err := outbox.New(db.dialect, outbox.Config{})
	if err != nil {
		return nil, err
	}
	const create = "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, product VARCHAR(64) NOT NULL, quantity INTEGER NOT NULL)"
	if _, err := db.ExecContext(ctx, create); err != nil {
		return nil, err
	}
	return &business{db: db, box: box, queue: queue}, nil
}

// take takes an order: the order and the request for its work are one transaction. If
// the payment fails, neither exists.
func (b *business) take(ctx context.Context, o order, paid bool) error {
	return inTx(ctx, b.db.DB, func(tx *sql.Tx) error {
		const insert = "INSERT INTO orders (id, product, quantity) VALUES (?, ?, ?)"
		if _, err := tx.ExecContext(ctx, insert, o.ID, o.Product, o.Quantity); err != nil {
			return err
		}
		if _, err := b.box.Enqueue(ctx, tx, b.message(o)); err != nil {
			return err
		}
		if !paid {
			return errPaymentFailed
		}
		return nil
	})
}

func (b *business) message(o order) outbox.Message {
	payload, err := json.Marshal(o)
	if err != nil {
		panic(err) // an order is always valid JSON
	}
	return outbox.Message{
		Key:    "reserve-" + o.ID, // from the business operation, never random
		Target: target,
		Request: orbit.SubmitTaskRequest{
			QueueID:        b.queue,
			Handler:        handlerName,
			HandlerVersion: "v1",
			PayloadVersion: "v1",
			Payload:        payload,
			BusinessKey:    o.ID,
			ConcurrencyKey: "product/" + o.Product, // one writer per product at a time
			RecoverySafety: orbit.RecoveryIdempotent,
			Retry:          orbit.RetryPolicy{MaxAttempts: 5, InitialDelayMS: 50, MaxDelayMS: 200},
		},
	}
}

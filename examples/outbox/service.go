package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

// target is the name under which the relay knows the task server and namespace.
const target = "shipping"

// An order is what a customer posts. The id is the customer's, so that a repeated request is
// the same order.
type order struct {
	ID       string `json:"order_id"`
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
}

var (
	errChanged = errors.New("this order has been placed with other content")
	errSoldOut = errors.New("not enough in stock")
)

// A service takes orders: POST /orders.
type service struct {
	*http.ServeMux
	db    *database
	box   *outbox.Outbox
	queue string // where shipping is to be done
}

func newService(db *database, queue string) (*service, error) {
	box, err := outbox.New(db.dialect, outbox.Config{})
	if err != nil {
		return nil, err
	}
	s := &service{ServeMux: http.NewServeMux(), db: db, box: box, queue: queue}
	s.HandleFunc("POST /orders", s.post)
	return s, nil
}

func (s *service) post(w http.ResponseWriter, r *http.Request) {
	var o order
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	in.DisallowUnknownFields()
	if err := in.Decode(&o); err != nil || o.ID == "" || len(o.ID) > 128 || o.Product == "" || len(o.Product) > 128 || o.Quantity < 1 {
		http.Error(w, "order_id and product must have 1 to 128 bytes, quantity must be at least 1", http.StatusBadRequest)
		return
	}
	isNew, err := s.place(r.Context(), o)
	switch {
	case err == nil && isNew:
		w.WriteHeader(http.StatusCreated)
	case err == nil:
		w.WriteHeader(http.StatusOK)
	case errors.Is(err, errChanged):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, errSoldOut):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	default: // nothing is known of a commit without an answer: the same order may be posted again
		http.Error(w, "the order may not have been placed: post it again", http.StatusServiceUnavailable)
	}
}

// place makes an order and the request to ship it, or neither. It calls nobody: the task server
// may be away, and the order is placed all the same (OUT-002, EX-009).
func (s *service) place(ctx context.Context, o order) (isNew bool, err error) {
	m, err := s.shipping(o)
	if err != nil {
		return false, err
	}
	err = s.db.inTx(ctx, func(tx *sql.Tx) error {
		isNew, err = insertOrder(ctx, tx, o)
		if err != nil || !isNew {
			return err
		}
		if _, err := s.box.Enqueue(ctx, tx, m); err != nil {
			return err
		}
		return takeFromStock(ctx, tx, o) // if it fails, the order and its message are gone too
	})
	return isNew, err
}

// insertOrder tells whether the order is a new one.
func insertOrder(ctx context.Context, tx *sql.Tx, o order) (bool, error) {
	first := order{ID: o.ID}
	err := tx.QueryRowContext(ctx, "SELECT product, quantity FROM orders WHERE id = ?", o.ID).Scan(&first.Product, &first.Quantity)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (id, product, quantity) VALUES (?, ?, ?)", o.ID, o.Product, o.Quantity)
		return true, err
	case err == nil && first != o:
		return false, errChanged
	}
	return false, err
}

func takeFromStock(ctx context.Context, tx *sql.Tx, o order) error {
	const take = "UPDATE stock SET quantity = quantity - ? WHERE product = ? AND quantity >= ?"
	result, err := tx.ExecContext(ctx, take, o.Quantity, o.Product, o.Quantity)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errSoldOut
}

// shippingKey names the business operation, so the same order always has the same key.
func shippingKey(o order) (string, error) { return outbox.Key("order", o.ID, "ship") }

// shipping is what the platform is to do for an order. Two orders for one product are not
// shipped at one time.
func (s *service) shipping(o order) (outbox.Message, error) {
	key, err := shippingKey(o)
	if err != nil {
		return outbox.Message{}, err
	}
	payload, err := json.Marshal(o)
	if err != nil {
		return outbox.Message{}, err
	}
	return outbox.Message{
		Key:    key,
		Target: target,
		Request: orbit.SubmitTaskRequest{
			QueueID: s.queue, Handler: shipHandler, HandlerVersion: "v1", PayloadVersion: "v1", Payload: payload,
			BusinessKey: o.ID, ConcurrencyKey: "product/" + o.Product,
		},
	}, nil
}

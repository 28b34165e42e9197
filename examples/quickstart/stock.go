package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

const initialStock = 1000

// A stock is the guarded resource: how many of each product are left. Its owner checks
// every write with resourceguard, in the transaction of the write.
type stock struct {
	db    *database
	guard *resourceguard.Guard
}

func newStock(ctx context.Context, db *database, namespace string) (*stock, error) {
	// A token is no credential: the owner decides who may write what.
	authorise := func(_ context.Context, ns, key string) error {
		if ns != namespace {
			return fmt.Errorf("namespace %q does not own this stock", ns)
		}
		return nil
	}
	guard, err := resourceguard.New(db.dialect, authorise, resourceguard.Config{})
	if err != nil {
		return nil, err
	}
	for _, create := range []string{
		"CREATE TABLE stock (product VARCHAR(64) PRIMARY KEY, quantity INTEGER NOT NULL)",
		"CREATE TABLE stock_incident (operation VARCHAR(128) NOT NULL, attempt VARCHAR(64) NOT NULL, kind VARCHAR(16) NOT NULL)",
	} {
		if _, err := db.ExecContext(ctx, create); err != nil {
			return nil, err
		}
	}
	return &stock{db: db, guard: guard}, nil
}

// reserve is the worker's handler: it takes the ordered quantity out of the stock.
func (s *stock) reserve(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	var o order
	if err := json.Unmarshal(e.Task.Payload, &o); err != nil {
		return nil, worker.Failed(err)
	}
	return s.write(ctx, e, o)
}

// write reserves the stock in one transaction with the guard's checks.
func (s *stock) write(ctx context.Context, e worker.Execution, o order) (json.RawMessage, error) {
	w := resourceguard.Write{
		Namespace: e.Task.NamespaceID,
		Key:       e.Task.ConcurrencyKey,
		Token:     e.ConcurrencyToken,
		Attempt:   e.AttemptID,
		Operation: "reserve/" + o.ID, // the same in every attempt
		Content:   e.Task.Payload,
	}
	var result resourceguard.Result
	apply := func() error {
		return inTx(ctx, s.db.DB, func(tx *sql.Tx) (err error) {
			result, err = s.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
				return s.takeOut(ctx, tx, o)
			})
			return err
		})
	}
	err := apply()
	for errors.Is(err, resourceguard.ErrRetryable) {
		err = apply()
	}
	switch {
	case errors.Is(err, resourceguard.ErrStale):
		return nil, errors.Join(err, s.note(ctx, w, "stale"))
	case err != nil:
		return nil, err
	case result.Verdict == resourceguard.Replayed:
		return result.Receipt, s.note(ctx, w, "repeat")
	}
	return result.Receipt, nil
}

// takeOut is the business write itself.
func (s *stock) takeOut(ctx context.Context, tx resourceguard.Tx, o order) ([]byte, error) {
	const update = "UPDATE stock SET quantity = quantity - ? WHERE product = ?"
	if _, err := tx.ExecContext(ctx, update, o.Quantity, o.Product); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"reserved":%d}`, o.Quantity), nil
}

// note keeps what the guard refused or answered from its record, so that it can be
// counted afterwards.
func (s *stock) note(ctx context.Context, w resourceguard.Write, kind string) error {
	const insert = "INSERT INTO stock_incident (operation, attempt, kind) VALUES (?, ?, ?)"
	_, err := s.db.ExecContext(ctx, insert, w.Operation, w.Attempt, kind)
	return err
}

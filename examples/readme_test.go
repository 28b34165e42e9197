package examples_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardworker"
	"github.com/orbitkit/orbit/worker"
)

// The code of the README at the module's root. A test of internal/docstest finds each part
// of it here, so that what the README shows compiles: change both.

// Example_outbox puts an order and its request into one transaction.
func Example_outbox() {
	_ = func(ctx context.Context, db *sql.DB, order struct{ ID string }, queueID string) error {
		box, err := outbox.New(outbox.MySQL, outbox.Config{})

		tx, err := db.BeginTx(ctx, nil)
		// … the business change, through tx …
		_, err = box.Enqueue(ctx, tx, outbox.Message{
			Key:    "reserve-" + order.ID, // from the business operation, never random
			Target: "warehouse",           // name of the task server and namespace that is meant
			Request: orbit.SubmitTaskRequest{
				QueueID: queueID, Handler: "stock.reserve", HandlerVersion: "v1", PayloadVersion: "v1",
				Payload:        json.RawMessage(`{"order_id":"17","product":"pen","quantity":2}`),
				ConcurrencyKey: "product/pen", // one writer per product at a time
			},
		})
		err = tx.Commit()
		return err
	}
}

// Example_client submits a task and waits for its end.
func Example_client() {
	_ = func(ctx context.Context) error {
		creds, err := orbit.LoadCredentials("/etc/orbit/admin.credentials.json") // or ORBIT_TOKEN and a queue id of your own
		api, err := orbit.NewClient("http://127.0.0.1:8080", creds.Token, orbit.ClientConfig{})
		accepted, err := api.SubmitTask(ctx, "update-object-42-operation-001", orbit.SubmitTaskRequest{
			QueueID: creds.QueueID, Handler: "object.update", HandlerVersion: "v1", PayloadVersion: "v1",
			Payload: json.RawMessage(`{"object_ref":"objects/42"}`), ConcurrencyKey: "object/42",
		})
		task, err := api.WaitTask(ctx, accepted.Task.ID) // final, or in NEEDS_REVIEW: look at task.State
		fmt.Println(task.State)
		return err
	}
}

var stock *guardworker.Resource

func onlyProducts(ctx context.Context, namespace, key string) error { // says who may write what: an error refuses
	if !strings.HasPrefix(key, "product/") {
		return errors.New("not a product")
	}
	return nil
}

// Example_worker runs a worker whose writes the guard of the resource holds.
func Example_worker() {
	_ = func(ctx context.Context, stockDB *sql.DB, creds orbit.Credentials) error {
		guard, err := resourceguard.New(resourceguard.MySQL, onlyProducts, resourceguard.Config{})
		stock, err := guardworker.New(guard, stockDB)

		w, err := worker.NewWorker("http://127.0.0.1:8080", creds.Token, worker.Config{ // a credential with workers:connect and workers:consume
			Queues:   []string{creds.QueueID},
			Capacity: 4,
			Handlers: map[worker.Handler]worker.HandlerFunc{
				{Name: "stock.reserve", Version: "v1"}: worker.Wrap(reserve, stock.Fence), // shuts earlier attempts out first
			},
		})
		err = w.Run(ctx) // nil after a clean drain
		return err
	}
}

func reserve(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
	return stock.Apply(ctx, e, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		done, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 2 WHERE product = 'pen' AND quantity >= 2")
		if err != nil {
			return nil, err
		}
		n, err := done.RowsAffected()
		if err == nil && n == 0 {
			err = worker.Failed(errors.New("sold out")) // nothing is written
		}
		return []byte(`{"reserved":2}`), err // kept: a repeat gets it without a second write
	})
}

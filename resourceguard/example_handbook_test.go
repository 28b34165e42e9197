package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// What docs/resource-guard.md shows under "A guarded write" stands here: internal/docstest
// holds the document to it.

// onlyStock says who may write what, by whom the owner has authenticated and put into ctx.
func onlyStock(ctx context.Context, namespace, key string) error {
	if !strings.HasPrefix(key, "stock/") {
		return errors.New("not a resource of this service")
	}
	return nil
}

var errSoldOut = errors.New("sold out")

// reserve takes n pieces out of the stock, once for each order.
func reserve(ctx context.Context, db *sql.DB, guard *resourceguard.Guard, e worker.Execution, order, product string, n int) ([]byte, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // does nothing after Commit
	res, err := guard.Apply(ctx, tx, resourceguard.Write{
		Namespace: e.Task.NamespaceID,
		Key:       e.Task.ConcurrencyKey,
		Token:     e.ConcurrencyToken,
		Attempt:   e.AttemptID,
		Operation: "reserve/" + order, // the same in every retry
		Content:   e.Task.Payload,     // the same bytes in every retry
	}, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		done, err := tx.ExecContext(ctx,
			"UPDATE stock SET quantity = quantity - ? WHERE product = ? AND quantity >= ?", n, product, n)
		if err != nil {
			return nil, err
		}
		rows, err := done.RowsAffected()
		if err == nil && rows == 0 {
			err = errSoldOut // the guard rolls everything back
		}
		return []byte(`{"reserved":true}`), err // the receipt: a repeat gets it without a second write
	})
	if err != nil {
		return nil, err
	}
	return res.Receipt, tx.Commit()
}

func ExampleGuard_Apply() {
	ctx := context.Background()
	h := openWarehouse(ctx)
	defer h.closes()
	guard, err := resourceguard.New(resourceguard.SQLite, onlyStock, resourceguard.Config{})
	check(err)
	e := worker.Execution{AttemptID: "attempt-1", ConcurrencyToken: 7}
	e.Task.NamespaceID, e.Task.ConcurrencyKey, e.Task.Payload = "shop", "stock/tea", []byte(`{"quantity":60}`)
	for _, order := range []string{"order-1", "order-1", "order-2"} {
		receipt, err := reserve(ctx, h.db, guard, e, order, "tea", 60)
		fmt.Printf("%s: %s %v\n", order, receipt, err)
	}
	// Output:
	// order-1: {"reserved":true} <nil>
	// order-1: {"reserved":true} <nil>
	// order-2:  sold out
}

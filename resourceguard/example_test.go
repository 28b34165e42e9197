package resourceguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
)

// A warehouse is a resource owner: a table of its own beside the guard's tables.
type warehouse struct {
	db     *sql.DB
	guard  *resourceguard.Guard
	closes func()
}

func openWarehouse(ctx context.Context) *warehouse {
	dir, err := os.MkdirTemp("", "warehouse")
	check(err)
	db, err := drivers.Open(ctx, "sqlite:"+filepath.Join(dir, "warehouse.db"))
	check(err)
	_, err = migrations.Up(ctx, db, migrations.Guard, migrations.Options{})
	check(err)
	_, err = db.Write().ExecContext(ctx, "CREATE TABLE stock (product TEXT PRIMARY KEY, quantity INTEGER NOT NULL)")
	check(err)
	_, err = db.Write().ExecContext(ctx, "INSERT INTO stock VALUES ('tea', 100)")
	check(err)

	// The platform's token is no credential: the owner decides whom it serves.
	authorise := func(_ context.Context, namespace, key string) error {
		if namespace != "shop" {
			return errors.New("unknown namespace")
		}
		return nil
	}
	guard, err := resourceguard.New(resourceguard.SQLite, authorise, resourceguard.Config{})
	check(err)
	return &warehouse{db: db.Write(), guard: guard, closes: func() { db.Close(); os.RemoveAll(dir) }}
}

// reserve is what a worker's handler does for a task: one transaction that holds the
// guard's check and the business write. A real one runs it again on ErrRetryable.
func (h *warehouse) reserve(ctx context.Context, token uint64, attempt, operation string) (resourceguard.Result, error) {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return resourceguard.Result{}, err
	}
	defer tx.Rollback()
	w := resourceguard.Write{
		Namespace: "shop", Key: "stock/tea",
		Token: token, Attempt: attempt,
		Operation: operation, Content: []byte(`{"product":"tea","quantity":3}`),
	}
	res, err := h.guard.Apply(ctx, tx, w, func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		var left int
		err := tx.QueryRowContext(ctx, "UPDATE stock SET quantity = quantity - 3 WHERE product = 'tea' RETURNING quantity").Scan(&left)
		return fmt.Appendf(nil, "%d left", left), err
	})
	if err != nil {
		return res, err
	}
	return res, tx.Commit()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func Example() {
	ctx := context.Background()
	h := openWarehouse(ctx)
	defer h.closes()
	say := func(res resourceguard.Result, err error) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v: %s\n", res.Verdict, res.Receipt)
	}

	say(h.reserve(ctx, 7, "attempt-1", "order-1"))
	say(h.reserve(ctx, 7, "attempt-1", "order-1")) // the answer was lost, the worker repeats
	say(h.reserve(ctx, 9, "attempt-2", "order-1")) // so does the task's next attempt
	say(h.reserve(ctx, 9, "attempt-2", "order-2"))
	say(h.reserve(ctx, 7, "attempt-1", "order-3")) // the first attempt wakes up late
	// Output:
	// Applied: 97 left
	// Replayed: 97 left
	// Replayed: 97 left
	// Applied: 94 left
	// resourceguard: token 7 is stale, the resource has seen 9
}

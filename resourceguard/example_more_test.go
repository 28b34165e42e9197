package resourceguard_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/orbitkit/orbit/resourceguard"
)

func (h *warehouse) raise(ctx context.Context, token uint64, attempt string) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := h.guard.Raise(ctx, tx, resourceguard.Fence{Namespace: "shop", Key: "stock/tea", Token: token, Attempt: attempt}); err != nil {
		return err
	}
	return tx.Commit()
}

// A reconciler fences the attempt that ended unknown, and then the record tells for
// certain whether the operation was done.
func ExampleGuard_Raise() {
	ctx := context.Background()
	h := openWarehouse(ctx)
	defer h.closes()

	const fenceToken = 8 // of the attempt with token 7: its own token + 1
	err := h.raise(ctx, fenceToken, "")
	if err != nil && !errors.Is(err, resourceguard.ErrStale) { // stale: fenced by a later attempt already
		log.Fatal(err)
	}
	_, applied, err := h.guard.Lookup(ctx, h.db, "shop", "stock/tea", "order-1")
	fmt.Println("applied:", applied, err)

	_, err = h.reserve(ctx, 7, "attempt-1", "order-1") // too late: the answer above stays true
	fmt.Println(err)
	// Output:
	// applied: false <nil>
	// resourceguard: token 7 is stale, the resource has seen 8
}

// An in-memory guard shows the place of the atomic check. It is no production store.
func ExampleMemory() { // RG-016
	ctx := context.Background()
	everyone := func(context.Context, string, string) error { return nil }
	guard, err := resourceguard.NewMemory(everyone)
	check(err)

	stock := 100
	take := func(context.Context) ([]byte, error) {
		stock -= 3
		return nil, nil
	}
	w := resourceguard.Write{
		Namespace: "shop", Key: "stock/tea", Token: 9, Attempt: "attempt-2", Operation: "order-1", Content: []byte("3"),
	}
	res, err := guard.Apply(ctx, w, take)
	fmt.Println(res.Verdict, err, stock)

	late := w
	late.Token, late.Attempt, late.Operation = 7, "attempt-1", "order-0"
	_, err = guard.Apply(ctx, late, take)
	fmt.Println(errors.Is(err, resourceguard.ErrStale), stock)
	// Output:
	// Applied <nil> 97
	// true 97
}

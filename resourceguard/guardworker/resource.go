package guardworker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// Write returns the write of an attempt: its namespace, key and token, the operation that
// stays the same over all attempts and manual retries of the task, and the payload as its
// content. A handler that writes several times adds a part to Operation for each. Of a
// task without a key the write is invalid: there is nothing to guard it with.
func Write(e worker.Execution) resourceguard.Write {
	return resourceguard.Write{
		Namespace: e.Task.NamespaceID, Key: e.Task.ConcurrencyKey, Token: e.ConcurrencyToken,
		Attempt: e.AttemptID, Operation: e.OperationRoot, Content: e.Task.Payload,
	}
}

// A Resource is a guarded database as the handlers of a worker use it. It is safe for
// concurrent use.
type Resource struct {
	guard *resourceguard.Guard
	db    *sql.DB
}

// New returns the resource that lies in db and is guarded by guard. Both are required.
func New(guard *resourceguard.Guard, db *sql.DB) (*Resource, error) {
	switch {
	case guard == nil:
		return nil, errors.New("guardworker: guard must be given")
	case db == nil:
		return nil, errors.New("guardworker: db must be given")
	}
	return &Resource{guard: guard, db: db}, nil
}

// Fence is a [worker.Middleware] that raises the resource to the attempt's token, and
// commits, before next is called. From then on no earlier attempt can write. If the
// resource refuses, next is not called and the attempt ends by [Outcome]; a task without a
// concurrency_key ends as a final failure.
func (r *Resource) Fence(next worker.HandlerFunc) worker.HandlerFunc {
	return func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		w := Write(e)
		fence := resourceguard.Fence{Namespace: w.Namespace, Key: w.Key, Token: w.Token, Attempt: w.Attempt}
		err := r.guard.Transact(ctx, r.db, func(ctx context.Context, tx *sql.Tx) error {
			return r.guard.Raise(ctx, tx, fence)
		})
		if errors.Is(err, resourceguard.ErrUnknownCommit) {
			return nil, worker.Retryable(err) // raised or not, it is no effect of the task
		}
		if err != nil {
			return nil, Outcome(err)
		}
		return next(ctx, e)
	}
}

// Apply does the write of an attempt by fn, in a transaction of its own, and returns its
// receipt as the task's result: of the write now, or on record of an earlier one. fn's
// receipt must be JSON that [worker.CheckResult] takes, or empty for no result; one that
// is not fails before anything is committed. Errors are those of [Outcome].
//
// fn may run more than once, each time in another transaction: see
// [resourceguard.Guard.Transact].
func (r *Resource) Apply(ctx context.Context, e worker.Execution, fn resourceguard.WriteFunc) (json.RawMessage, error) {
	var result resourceguard.Result
	err := r.guard.Transact(ctx, r.db, func(ctx context.Context, tx *sql.Tx) (err error) {
		result, err = r.guard.Apply(ctx, tx, Write(e), reportable(fn))
		return err
	})
	if err != nil {
		return nil, Outcome(err)
	}
	return result.Receipt, nil
}

// reportable refuses a receipt that could not be reported once it is committed.
func reportable(fn resourceguard.WriteFunc) resourceguard.WriteFunc {
	if fn == nil {
		return nil // refused by Apply
	}
	return func(ctx context.Context, tx resourceguard.Tx) ([]byte, error) {
		receipt, err := fn(ctx, tx)
		if err != nil || len(receipt) == 0 {
			return nil, err
		}
		if err := worker.CheckResult(receipt); err != nil {
			return nil, worker.Failed(fmt.Errorf("receipt cannot be a result: %w", err))
		}
		return receipt, nil
	}
}

package guardworker

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// Write returns the write of an attempt: its namespace, key and token, the operation that
// stays the same over all attempts and manual retries of the task, and the payload as its
// content. A handler that writes several times adds a part to Operation for each, and runs
// them in [Resource.Transact]. Of a task without a key the write is invalid: there is
// nothing to guard it with.
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

// New returns the resource that lies in db and is guarded by guard. Both are required: the
// error is a [resourceguard.ErrInvalid].
func New(guard *resourceguard.Guard, db *sql.DB) (*Resource, error) {
	switch {
	case guard == nil:
		return nil, missing("guard")
	case reflect.ValueOf(guard).Elem().IsZero():
		return nil, &resourceguard.InvalidError{Field: "guard", Rule: "must be made by resourceguard.New"}
	case db == nil:
		return nil, missing("db")
	}
	return &Resource{guard: guard, db: db}, nil
}

func missing(field string) error {
	return &resourceguard.InvalidError{Field: field, Rule: "must be given"}
}

// Fence is a [worker.Middleware] that raises the resource to the attempt's token, and
// commits, before next is called. From then on no earlier attempt can write. If the
// resource refuses, next is not called and the attempt ends by [Outcome]; whether the
// operation of [Write] is on record is looked up for that. A task without a concurrency_key
// ends as a final failure. A nil next gives nil, which worker.NewWorker refuses.
func (r *Resource) Fence(next worker.HandlerFunc) worker.HandlerFunc {
	if next == nil {
		return nil
	}
	return func(ctx context.Context, e worker.Execution) (json.RawMessage, error) {
		err := r.transact(ctx, func(ctx context.Context, tx *sql.Tx) error { return r.raise(ctx, tx, Write(e)) })
		if errors.Is(err, resourceguard.ErrUnknownCommit) {
			return nil, worker.Retryable(err) // raised or not, it is no effect of the task
		}
		if err != nil {
			return nil, outcome(err)
		}
		return next(ctx, e)
	}
}

// raise raises to the token of w. A refusal tells, as that of a write does, whether w's
// operation is on record: nobody writes to the key meanwhile, since its row is locked.
func (r *Resource) raise(ctx context.Context, tx *sql.Tx, w resourceguard.Write) error {
	refusal := r.guard.Raise(ctx, tx, resourceguard.Fence{Namespace: w.Namespace, Key: w.Key, Token: w.Token, Attempt: w.Attempt})
	var stale *resourceguard.StaleError
	var collision *resourceguard.CollisionError
	if !errors.As(refusal, &stale) && !errors.As(refusal, &collision) {
		return refusal
	}
	record, there, err := r.guard.Lookup(ctx, tx, w.Namespace, w.Key, w.Operation)
	applied := there && record.Digest == sha256.Sum256(w.Content)
	switch {
	case err != nil:
		return err
	case stale != nil:
		stale.AlreadyApplied = applied
	default:
		collision.AlreadyApplied = applied
	}
	return refusal
}

// Apply does the write of an attempt by fn, in a transaction of its own, and returns its
// receipt as the task's result: of the write now, or on record of an earlier one. fn's
// receipt must be JSON that [worker.CheckResult] takes, or empty for no result; one that
// is not fails before anything is committed. Errors are those of [Resource.Transact].
//
// fn may run more than once, each time in another transaction: see
// [resourceguard.Guard.Transact].
func (r *Resource) Apply(ctx context.Context, e worker.Execution, fn resourceguard.WriteFunc) (json.RawMessage, error) {
	if fn == nil {
		return nil, outcome(missing("fn"))
	}
	var result resourceguard.Result
	err := r.transact(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		result, err = r.guard.Apply(ctx, tx, Write(e), reportable(fn))
		return err
	})
	if err != nil {
		return nil, outcome(err)
	}
	return result.Receipt, nil
}

// Transact is [resourceguard.Guard.Transact] on the resource's database, for a handler that
// writes more than once. Its error ends the attempt as [Outcome] says, except that a plain
// error is FAILED, retryable: Transact knows that nothing is in force.
func (r *Resource) Transact(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	return outcome(r.transact(ctx, f))
}

func (r *Resource) transact(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	if r == nil || r.guard == nil {
		return &resourceguard.InvalidError{Field: "resource", Rule: "must be made by New"}
	}
	return r.guard.Transact(ctx, r.db, f)
}

// reportable refuses a receipt that could not be reported once it is committed.
func reportable(fn resourceguard.WriteFunc) resourceguard.WriteFunc {
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

package resourceguard

import (
	"errors"
	"fmt"
)

// What callers branch on, with errors.Is.
var (
	// ErrStale reports a token below the highest that the resource has seen. The
	// writer no longer owns the resource and must stop. The error is a [*StaleError].
	ErrStale = errors.New("resourceguard: stale token")

	// ErrTokenCollision reports the highest token from another attempt than the one
	// it belongs to. A server issues no token twice: someone presents a foreign
	// token, or the server was restored from a backup. Raise an alarm. The error is
	// a [*CollisionError].
	ErrTokenCollision = errors.New("resourceguard: token belongs to another attempt")

	// ErrOperationConflict reports an operation that was applied with other content.
	// Nothing has changed, not even the highest token. The writer has a bug; trying
	// again does not help. The error is a [*ConflictError].
	ErrOperationConflict = errors.New("resourceguard: operation was applied with other content")

	// ErrInvalid reports input or configuration that breaks a rule, before any I/O.
	// The error is an [*InvalidError].
	ErrInvalid = errors.New("resourceguard: invalid argument")

	// ErrNotAuthorised reports that the owner's AuthoriseFunc refused the namespace
	// or key, before any I/O of the guard. The function's error is in the chain.
	ErrNotAuthorised = errors.New("resourceguard: namespace or key not allowed")

	// ErrNoTransaction reports a value that is no transaction, before any I/O.
	ErrNoTransaction = errors.New("resourceguard: needs the caller's transaction, not a pool or connection (see InTransaction)")

	// ErrRefused reports that fn refused and that the token is raised all the same,
	// as [Config].KeepRaise wants. The error is a [*RefusedError], with the error of
	// fn in its chain.
	ErrRefused = errors.New("resourceguard: refused by the business write, token raised")

	// ErrRetryable reports that the database could not judge: a deadlock, a lock
	// wait timeout, a snapshot that is too old, a busy file. Nothing is changed once
	// the transaction is rolled back; then run the whole of it again. The database's
	// error is in the chain.
	ErrRetryable = errors.New("resourceguard: run the transaction again")
)

// A StaleError tells the presented token and the one that fences it.
type StaleError struct {
	Presented, Highest uint64

	// AlreadyApplied is true if this operation is recorded with this content, so
	// that the late writer's work is done although this write is refused. False
	// proves nothing.
	AlreadyApplied bool
}

// Error returns both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("resourceguard: token %d is stale, the resource has seen %d", e.Presented, e.Highest)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// A CollisionError tells the token and the attempts that claim it.
type CollisionError struct {
	Token     uint64
	Presented string // attempt that was refused
	Holder    string // attempt on record; empty if a reconciler raised the resource

	// AlreadyApplied is as in a [StaleError].
	AlreadyApplied bool
}

// Error returns token and attempts.
func (e *CollisionError) Error() string {
	return fmt.Sprintf("resourceguard: token %d of attempt %q belongs to attempt %q", e.Token, e.Presented, e.Holder)
}

// Is reports whether target is [ErrTokenCollision].
func (e *CollisionError) Is(target error) bool { return target == ErrTokenCollision }

// A ConflictError tells the operation and the SHA-256 of both contents.
type ConflictError struct {
	Operation          string
	Presented, Applied [32]byte
}

// Error returns the operation and both digests.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("resourceguard: operation %q was applied with content %x, not %x", e.Operation, e.Applied, e.Presented)
}

// Is reports whether target is [ErrOperationConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrOperationConflict }

// A RefusedError tells what fn refused and which token is raised all the same. The raise
// is in the transaction, beside whatever else the caller did there: commit to keep all of
// it, or roll back and raise Fence in a transaction of its own, as [Guard.Transact] does.
type RefusedError struct {
	Fence Fence
	Err   error // of fn
}

// Error returns the error of fn with what became of the token.
func (e *RefusedError) Error() string { return ErrRefused.Error() + ": " + e.Err.Error() }

// Is reports whether target is [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the error of fn.
func (e *RefusedError) Unwrap() error { return e.Err }

// An InvalidError tells which field breaks which rule. It never holds the value.
type InvalidError struct {
	Field, Rule string
}

// Error returns the field and the rule.
func (e *InvalidError) Error() string { return "resourceguard: " + e.Field + " " + e.Rule }

// Is reports whether target is [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, rule string) error { return &InvalidError{Field: field, Rule: rule} }

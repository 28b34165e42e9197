package guardworker

import (
	"errors"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// Outcome turns the error of a guarded transaction, which has been rolled back or whose
// refusal is committed, into the end of the attempt:
//
//	resourceguard.ErrUnknownCommit               UNKNOWN
//	ErrStale of an operation on record           UNKNOWN: it is done, and this attempt cannot show its receipt
//	ErrTokenCollision, ErrOperationConflict,
//	ErrInvalid, ErrNotAuthorised                 FAILED, final: a repeat would fail too
//	any other, ErrStale and ErrRetryable too     what it says by worker.Failed and the like, else FAILED, retryable
//
// Nothing is written in the last two cases. Of nil it makes nil. The error stays in the
// chain.
func Outcome(err error) error {
	var stale *resourceguard.StaleError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resourceguard.ErrUnknownCommit), errors.As(err, &stale) && stale.AlreadyApplied:
		return worker.Unknown(err)
	case final(err):
		return worker.Failed(err)
	}
	return &undone{err}
}

func final(err error) bool {
	for _, refusal := range []error{
		resourceguard.ErrTokenCollision, resourceguard.ErrOperationConflict,
		resourceguard.ErrInvalid, resourceguard.ErrNotAuthorised,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// undone is an error that left nothing behind. The end that it asks for itself comes
// first in the chain, and then the one of what may be tried again.
type undone struct{ err error }

func (e *undone) Error() string   { return e.err.Error() }
func (e *undone) Unwrap() []error { return []error{e.err, worker.Retryable(e.err)} }

package guardworker

import (
	"errors"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/worker"
)

// Outcome turns the error of a guarded transaction that a handler runs by itself, which has
// been rolled back or whose refusal is committed, into the end of the attempt:
//
//	resourceguard.ErrUnknownCommit               UNKNOWN
//	ErrStale or ErrTokenCollision of an
//	operation on record                          UNKNOWN: it is done, and this attempt cannot show its receipt
//	ErrTokenCollision, ErrOperationConflict,
//	ErrInvalid, ErrNotAuthorised                 FAILED, final: a repeat would fail too
//	ErrStale, ErrRefused, ErrRetryable           what it says by worker.Failed and the like, else FAILED, retryable
//	any other                                    what it says by worker.Failed and the like, else UNKNOWN
//
// Nothing is written where the end is FAILED, unless the handler itself says otherwise. A
// plain error is UNKNOWN, since it may be that of a COMMIT whose answer was lost: run the
// transaction by [Resource.Transact], which knows. Of nil Outcome makes nil. The error
// stays in the chain.
func Outcome(err error) error {
	if end, known := verdict(err); known {
		return end
	}
	for _, nothing := range []error{resourceguard.ErrStale, resourceguard.ErrRefused, resourceguard.ErrRetryable} {
		if errors.Is(err, nothing) {
			return &undone{err}
		}
	}
	return err
}

// outcome is Outcome for an error of Guard.Transact, which says of an unknown end that it is
// one: after any other error nothing is in force.
func outcome(err error) error {
	if end, known := verdict(err); known {
		return end
	}
	return &undone{err}
}

// verdict returns the end of an attempt that err alone decides.
func verdict(err error) (end error, known bool) {
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, resourceguard.ErrUnknownCommit), alreadyApplied(err):
		return worker.Unknown(err), true
	case final(err):
		return worker.Failed(err), true
	}
	return nil, false
}

func alreadyApplied(err error) bool {
	var stale *resourceguard.StaleError
	var collision *resourceguard.CollisionError
	return errors.As(err, &stale) && stale.AlreadyApplied || errors.As(err, &collision) && collision.AlreadyApplied
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

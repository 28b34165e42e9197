package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
)

var (
	// ErrNoTransaction reports that Enqueue was given something that is no
	// transaction, such as a *sql.DB: the row would be in force whether or not the
	// business change commits. Nothing was written. Pass the transaction, or say with
	// [InTransaction] that a connection is inside one.
	ErrNoTransaction = errors.New("outbox: not a transaction")

	// ErrConflict reports that the key is in the outbox already with other content.
	// Nothing was changed, and the caller's transaction can go on. The key was built
	// from too little, or the business operation has changed since. The error is a
	// [*ConflictError].
	ErrConflict = errors.New("outbox: key is already enqueued with other content")

	// ErrRetry reports that the engine gave way to another transaction (deadlock,
	// lock wait timeout, busy SQLite file). Nothing is wrong with the message: roll
	// back and run the whole business transaction again.
	ErrRetry = errors.New("outbox: run the transaction again")

	// ErrLeaseHeld reports that another relay leads the shard. Try again when its
	// lease may have ended. The error is a [*LeaseHeldError].
	ErrLeaseHeld = errors.New("outbox: shard is led by another relay")

	// ErrLeaseLost reports that the shard's lease ended and another relay may lead it
	// now. The caller must drop its results: the new leader sends again.
	ErrLeaseLost = errors.New("outbox: lease lost")

	// ErrNotFound reports that there is no row with this seq (any more).
	ErrNotFound = errors.New("outbox: no such row")

	// ErrState reports that an operator's act does not fit the state of the row. The
	// error tells which.
	ErrState = errors.New("outbox: act does not fit the state of the row")

	// ErrTooOld reports that the promise of the server to know the row's key ends or
	// has ended. Sending it again might make a second task: only with DuplicateRisk is
	// such a row requeued.
	ErrTooOld = errors.New("outbox: row is too old to be sent again without the risk of a second task")

	// ErrTooLate reports that the latest time to send the row has passed: only with
	// LateRisk is it requeued.
	ErrTooLate = errors.New("outbox: latest time to send has passed")

	// ErrUnknownOutcome reports that a send of the row may have been accepted. Nobody
	// can say that no task exists, so the row is not discarded: requeue it, and the
	// answer to the same key tells.
	ErrUnknownOutcome = errors.New("outbox: a send of the row has an unknown outcome, a task may exist")

	// ErrNoHold reports that there is no hold with exactly this scope.
	ErrNoHold = errors.New("outbox: no such hold")
)

// A ConflictError tells which row holds the key. It wraps [ErrConflict].
type ConflictError struct {
	Seq       int64        // the row that holds the key; 0 if another message of the same batch does
	Stored    orbit.Digest // content digest of that row
	Presented orbit.Digest // content digest of the refused message
}

// Error returns the holder of the key and both digests.
func (e *ConflictError) Error() string {
	holder := "another message of the batch"
	if e.Seq != 0 {
		holder = fmt.Sprintf("row %d", e.Seq)
	}
	return fmt.Sprintf("%v: %s holds %v, presented %v", ErrConflict, holder, e.Stored, e.Presented)
}

// Unwrap returns [ErrConflict].
func (e *ConflictError) Unwrap() error { return ErrConflict }

// A LeaseHeldError tells who leads a shard. It wraps [ErrLeaseHeld].
type LeaseHeldError struct {
	Shard  int
	Leader string
	Left   time.Duration // until the lease ends unless it is renewed, by the database's clock
}

// Error returns shard, leader and what is left of the lease.
func (e *LeaseHeldError) Error() string {
	return fmt.Sprintf("%v: shard %d, leader %q, lease ends in %v", ErrLeaseHeld, e.Shard, e.Leader, e.Left)
}

// Unwrap returns [ErrLeaseHeld].
func (e *LeaseHeldError) Unwrap() error { return ErrLeaseHeld }

// failed names the act, and marks an error after which the whole transaction is to be
// run again.
func failed(d *sqldb.Dialect, act string, err error) error {
	if d.Transient(err) {
		return fmt.Errorf("outbox: %s: %w: %w", act, ErrRetry, err)
	}
	return fmt.Errorf("outbox: %s: %w", act, err)
}

package handoff

import (
	"context"
	"time"
)

// A Store is the hand-over point. Its implementations belong to hosts, and must keep to
// the following; package handofftest tests all of it.
//
//   - Each operation judges and writes in one atomic step.
//   - It judges time by its own clock alone. A ticket that is offered or accepted and
//     whose deadline has come is expired for every operation, whether or not that is
//     written already. It may be written lazily, but Snapshot must not hide the ticket.
//   - Reply and Cancel go by credentials alone, the token or the source's identity. A
//     mismatch is always an error.
//   - Refusals are the sentinels of this package, and change nothing. Any other error is a
//     fault, whose outcome may be unknown.
//   - Keys, identities, addresses, payloads and artifacts are bytes, and are neither
//     changed nor shared with the caller's memory.
type Store interface {
	// Offer puts up a ticket. If the key has one that has not ended, that one is returned
	// unchanged, whatever t says (a replay); the caller can compare. If it has ended, the
	// next generation begins; otherwise generation 1. An invalid t is an error. Only the
	// fields from Key to TTL of t are read.
	Offer(ctx context.Context, t Ticket) (Ticket, error)

	// Take makes to responsible, and mints the token in the same step. The first that
	// applies of: ErrUnknownKey; ErrNotAddressee; ErrAlreadySettled if closed or withdrawn;
	// ErrExpired if the deadline has passed; ErrTaken.
	Take(ctx context.Context, key Key, to Agent) (Handle, error)

	// Reply closes the ticket with a receipt, on the token that Take minted. The first that
	// applies of: ErrUnknownKey; ErrLeaseLost if the token is not that of the current
	// generation, ended or not; ErrAlreadySettled if closed; ErrExpired; the error of
	// [Receipt.Validate].
	Reply(ctx context.Context, key Key, token string, r Receipt) error

	// Cancel takes an offered ticket back. The first that applies of: ErrUnknownKey;
	// ErrNotSource; ErrAlreadySettled if it has ended in any way, by time too; ErrTaken.
	Cancel(ctx context.Context, key Key, by Agent) error

	// Snapshot returns all tickets, each in its current generation, as they stood together
	// at one instant.
	Snapshot(ctx context.Context) ([]Ticket, error)
}

// A Handle is what a successful Take gives.
type Handle struct {
	Token string    // minted by the store: the only credential for the receipt
	Fence uint64    // the ticket's Generation when it was taken
	Until time.Time // the ticket's Deadline
}

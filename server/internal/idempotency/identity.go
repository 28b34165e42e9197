// Package idempotency holds what a command that was given an idempotency key is known by,
// and the records of commands on a single task, queue or application. Submits come in
// batches and have statements of their own, in package accept.
package idempotency

import (
	"crypto/sha256"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// An Operation is the stored code of what a command does. It is part of the scope of its
// key (IDEM-002): codes are never given a new meaning.
type Operation byte

// The operations.
const (
	Submit            Operation = 1
	Cancel            Operation = 2
	Review            Operation = 3
	Retry             Operation = 4
	CreateQueue       Operation = 5
	UpdateQueue       Operation = 6
	UpdateApplication Operation = 7
)

// An Identity is the primary key of a command's record.
type Identity [sha256.Size]byte

// NewIdentity returns the identity of the command that has key. Subject is the task or
// queue that the command acts on, zero for a command that makes something new: it is part
// of the scope, so the same key may be used once for each (IDEM-002).
func NewIdentity(namespace sqldb.ID, op Operation, subject sqldb.ID, key string) Identity {
	h := sha256.New()
	h.Write(namespace[:])
	h.Write([]byte{byte(op)})
	h.Write(subject[:])
	h.Write([]byte(key))
	return Identity(h.Sum(nil))
}

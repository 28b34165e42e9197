package outbox

import (
	"crypto/sha256"
	"encoding/binary"
)

// An Operation is the kind of a frozen command.
type Operation int8

// Operations.
const (
	OperationSubmit Operation = 1 // asks for a task
	OperationCancel Operation = 2 // asks for the cancellation of one (OUT-022)
)

// String returns "submit", "cancel" or "invalid".
func (op Operation) String() string {
	switch op {
	case OperationSubmit:
		return "submit"
	case OperationCancel:
		return "cancel"
	}
	return "invalid"
}

// identityOf returns the digest that is unique in the outbox: target, operation, task
// id or empty, key (OUT-007). Each part but the last is preceded by its length, so
// that no two lists of parts look alike. The form is stored and must never change.
func identityOf(target string, op Operation, taskID []byte, key string) [sha256.Size]byte {
	b := make([]byte, 0, 3+MaxTarget+16+128)
	b = append(b, byte(len(target)))
	b = append(b, target...)
	b = append(b, byte(op), byte(len(taskID)))
	b = append(b, taskID...)
	b = append(b, key...)
	return sha256.Sum256(b)
}

// shardOf spreads identities over n shards.
func shardOf(identity [sha256.Size]byte, n int) int {
	return int(binary.BigEndian.Uint32(identity[:4]) % uint32(n))
}

// LaneOf returns the lane of a target's queue: rows that wait for the same thing, so
// that a full queue delays no other. The queue is given as 32 hexadecimal characters; that of
// cancels is empty.
func LaneOf(target, queueID string) int64 {
	b := make([]byte, 0, 1+MaxTarget+32)
	b = append(b, byte(len(target)))
	b = append(b, target...)
	b = append(b, queueID...)
	sum := sha256.Sum256(b)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

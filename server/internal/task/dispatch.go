package task

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A DispatchState says how a WAITING task waits. It is internal: a move changes
// neither revision nor updated_at (STATE-027).
type DispatchState int

// How a task waits. READY is a hint that a claim may take the task; whether its key is
// free, the key's row decides.
const (
	DispatchNone       DispatchState = 0 // not WAITING
	DispatchReady      DispatchState = 1 // in the claim index
	DispatchDelayed    DispatchState = 2 // in the timer until available_at
	DispatchKeyBlocked DispatchState = 3 // parked behind its busy resource key
)

// TimerLane is the dispatch lane of every DELAYED task. No lane has this value.
const TimerLane int64 = 0

// PriorityStep is the advantage of one priority level (SUB-012): 30 s in microseconds.
const PriorityStep = 30_000_000

// Lane returns the lane of a task: what a worker must be able to take to be given it.
// Keyed tasks have lanes of their own, so that a worker without support for resource
// keys never meets one (WRK-004).
func Lane(queue sqldb.ID, handler, version string, keyed bool) int64 {
	h := sha256.New()
	h.Write(queue[:])
	h.Write([]byte(handler))
	h.Write([]byte{0}) // names contain no NUL
	h.Write([]byte(version))
	if keyed {
		h.Write([]byte{0, 1})
	}
	lane := int64(binary.BigEndian.Uint64(h.Sum(nil)[:8]))
	if lane == TimerLane {
		return 1
	}
	return lane
}

// OrderValue returns the place of a READY task in its lane: the lowest is claimed
// first. One priority level outweighs 30 s of waiting (REF-PRI-002).
func OrderValue(availableAt int64, priority int) int64 {
	return availableAt - int64(priority)*PriorityStep
}

// Kinds of rows in the resource table.
const (
	ResourceQueue byte = 1
	ResourceKey   byte = 2
)

// KeyDigest returns the primary key of the resource row of a concurrency key
// (KEY-015). Keys are compared as bytes, per namespace.
func KeyDigest(namespace sqldb.ID, key string) [32]byte {
	h := sha256.New()
	h.Write([]byte{ResourceKey})
	h.Write(namespace[:])
	h.Write([]byte(key))
	return [32]byte(h.Sum(nil))
}

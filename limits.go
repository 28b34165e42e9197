package orbit

import "time"

// Bounds of the interface (LIMIT-001 … LIMIT-013). Characters are Unicode code
// points.
const (
	MaxBodyBytes            = 512 << 10 // of a request, single or batch
	MaxPayloadBytes         = 256 << 10 // of payload or result as received, without outer white space
	MaxDepth                = 32        // levels of a task object, itself the first
	MaxBatchItems           = 100
	MaxIdempotencyKey       = 128 // printable ASCII characters
	MaxHandler              = 128
	MaxHandlerVersion       = 64
	MaxPayloadVersion       = 32
	MaxBusinessKey          = 191
	MaxConcurrencyKey       = 191
	MaxPriority             = 9
	MaxAttempts             = 100
	MaxTaskTimeoutMS        = 2_592_000_000     // 30 days
	MaxRetryDelayMS         = 9_223_372_036_854 // whole milliseconds in an int64 of nanoseconds
	DefaultTaskTimeoutMS    = 86_400_000        // 24 hours
	DefaultAttemptTimeoutMS = 30_000
	DefaultInitialDelayMS   = 1_000  // with several attempts; 0 with one
	DefaultMaxRetryDelayMS  = 30_000 // with several attempts; 0 with one
)

const (
	// AvailableAtTolerance is how far available_at may lie in the past.
	AvailableAtTolerance = time.Second
	// PriorityStep is the ordering advantage of one level of priority.
	PriorityStep = 30 * time.Second
	// IdempotencyRetention is how long an idempotency key is promised to be known.
	IdempotencyRetention = 90 * 24 * time.Hour
)

const (
	maxSingleAnswer = 1 << 20 // bytes that a client reads of one answer
	maxBatchAnswer  = 2 << 20
)

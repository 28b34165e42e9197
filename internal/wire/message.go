// Package wire holds the messages of the worker protocol orbit.worker.v1, shared by
// the server and the worker SDK.
//
// Each WebSocket text frame carries one strict JSON object, an [Envelope]. Durations
// travel, never timestamps that a peer's clock would have to agree with. Every client
// message may be repeated: the answer is the stored receipt.
package wire

import "encoding/json"

// Protocol is the WebSocket subprotocol.
const Protocol = "orbit.worker.v1"

// Path is where workers connect (REF-WRK-002).
const Path = "/v1/worker/connect"

// MaxFrame is the largest frame either side accepts, in bytes.
const MaxFrame = 512 << 10

// Bounds of a worker's words, in bytes (LIMIT-019).
const (
	MaxResult   = 256 << 10
	MaxError    = 4 << 10
	MaxProgress = 4 << 10
)

// Message types. Those of the client come first (REF-WRK-003).
const (
	TypeHello  = "hello"
	TypeCredit = "credit"
	TypeStart  = "task.start"
	TypeResume = "task.resume"
	TypeRenew  = "task.renew"
	TypeFinish = "task.finish"
	TypeReturn = "task.return"
	TypeDrain  = "drain"

	TypeHelloOK        = "hello.ok"
	TypeAssign         = "task.assign"
	TypeStarted        = "task.started"
	TypeResumed        = "task.resumed"
	TypeRenewed        = "task.renewed"
	TypeFinished       = "task.finished"
	TypeReturned       = "task.returned"
	TypeCancel         = "task.cancel"
	TypeServerDraining = "server.draining"
	TypeDrainOK        = "drain.ok"
	TypeError          = "error"
)

// An Envelope is the outer object of every frame. ID names a message of its sender;
// Ref, in an answer, is the ID of the message answered.
//
// Here and in all messages below a member that is always written is also required by
// strict reading: a message that lacks it is refused, never read as zero.
type Envelope struct {
	Type string          `json:"type" strict:"required"`
	ID   string          `json:"id,omitempty"`
	Ref  string          `json:"ref,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Close codes of the protocol's own, beside those of RFC 6455.
const (
	CloseUnauthenticated = 4401 // credential revoked or expired: do not come back with it
	CloseReplaced        = 4409 // the same process connected again
	CloseProtocolError   = 4400 // a message broke the protocol
)

// A Handler names what a worker can run.
type Handler struct {
	Name    string `json:"name" strict:"required"`
	Version string `json:"version" strict:"required"`
}

// Hello opens a session. ProcessID is the identity of the worker process, 32
// hexadecimal characters, made anew at each start of the process; the registration is
// fixed for its life (WRK-003).
type Hello struct {
	ProcessID       string    `json:"process_id" strict:"required"`
	Handlers        []Handler `json:"handlers" strict:"required"`
	Queues          []string  `json:"queues" strict:"required"`   // queue ids
	Capacity        int       `json:"capacity" strict:"required"` // attempts held at one time
	ConcurrencyKeys bool      `json:"concurrency_keys,omitempty"` // understands resource keys (WRK-029)
	Held            []Held    `json:"held,omitempty"`             // attempts this process still holds
}

// Held names an attempt that the worker believes to hold.
type Held struct {
	AttemptID string `json:"attempt_id" strict:"required"`
	Epoch     uint64 `json:"epoch" strict:"required"`
}

// HelloOK accepts a session. Attempts are the process's live attempts on the server, so
// that both sides agree before the first assignment.
type HelloOK struct {
	NodeID     string `json:"node_id" strict:"required"`
	LeaseMS    uint64 `json:"lease_ms" strict:"required"`
	PingMS     uint64 `json:"ping_ms" strict:"required"`
	Attempts   []Held `json:"attempts,omitempty"`
	MaxFrame   int    `json:"max_frame" strict:"required"`
	ServerTime string `json:"server_time" strict:"required"` // for people reading logs; nothing is decided by it
}

// Credit sets how many more assignments the worker takes now; each one replaces all that
// was said before. Limits bound it further for some queues and handlers: an assignment
// counts against Slots and against each limit that is about it.
type Credit struct {
	Slots  int           `json:"slots" strict:"required"`
	Limits []CreditLimit `json:"limits,omitempty"` // at most 256, no two about the same
	// Seen is how many assignments of this connection the worker had received when it
	// counted. What was under way is then taken off, and the worker never gets more than it
	// asked for. Without it the worker hands back what is too much.
	Seen *uint64 `json:"seen,omitempty"`
}

// A CreditLimit bounds assignments of a queue, of a handler, of one version of a handler,
// or of a handler in a queue. Queue and handler must be registered.
type CreditLimit struct {
	QueueID        string `json:"queue_id,omitempty"`
	Handler        string `json:"handler,omitempty"`
	HandlerVersion string `json:"handler_version,omitempty"` // only with Handler; without it any version
	Slots          int    `json:"slots" strict:"required"`
}

// Task is what a worker is told of a task. Payload is the accepted text, byte for byte.
type Task struct {
	ID              string          `json:"id" strict:"required"`
	NamespaceID     string          `json:"namespace_id" strict:"required"`
	QueueID         string          `json:"queue_id" strict:"required"`
	Handler         string          `json:"handler" strict:"required"`
	HandlerVersion  string          `json:"handler_version" strict:"required"`
	PayloadVersion  string          `json:"payload_version" strict:"required"`
	Payload         json.RawMessage `json:"payload" strict:"required"`
	BusinessKey     string          `json:"business_key,omitempty"`
	ConcurrencyKey  string          `json:"concurrency_key,omitempty"`
	Priority        int             `json:"priority,omitempty"`
	RecoverySafety  string          `json:"recovery_safety" strict:"required"`
	DeadlineMS      uint64          `json:"deadline_ms" strict:"required"` // time left until the task's deadline, when sent
	AttemptNumber   uint64          `json:"attempt_number" strict:"required"`
	EffectUncertain bool            `json:"effect_uncertain,omitempty"`
	RetryOf         string          `json:"retry_of,omitempty"`
}

// Assign offers one attempt. The handler runs only after Start is confirmed (WRK-013).
// ConcurrencyToken is a non-zero decimal uint64 if and only if the task has a key.
type Assign struct {
	AttemptID        string `json:"attempt_id" strict:"required"`
	Epoch            uint64 `json:"epoch" strict:"required"`
	LeaseMS          uint64 `json:"lease_ms" strict:"required"` // left when sent
	Task             Task   `json:"task" strict:"required"`
	ConcurrencyToken string `json:"concurrency_token,omitempty"`
	OperationRoot    string `json:"operation_root" strict:"required"` // stable over manual retries (AMB-073)
	Traceparent      string `json:"traceparent,omitempty"`
}

// Attempt names the attempt that a message acts on: the data of task.start,
// task.resume and task.return.
type Attempt struct {
	AttemptID string `json:"attempt_id" strict:"required"`
	Epoch     uint64 `json:"epoch" strict:"required"`
}

// Started confirms the right to execute now.
type Started struct {
	AttemptID       string `json:"attempt_id" strict:"required"`
	Epoch           uint64 `json:"epoch" strict:"required"`
	LeaseMS         uint64 `json:"lease_ms" strict:"required"`
	TimeoutMS       uint64 `json:"timeout_ms" strict:"required"` // left of the attempt timeout; it is never renewed past
	CancelRequested bool   `json:"cancel_requested,omitempty"`
}

// Resumed answers task.resume. Status is one of the Resume constants; with ResumeKeep
// the rest is filled as in Started.
type Resumed struct {
	AttemptID       string `json:"attempt_id" strict:"required"`
	Epoch           uint64 `json:"epoch" strict:"required"`
	Status          string `json:"status" strict:"required"`
	Running         bool   `json:"running,omitempty"` // Start had been confirmed
	LeaseMS         uint64 `json:"lease_ms,omitempty"`
	TimeoutMS       uint64 `json:"timeout_ms,omitempty"`
	CancelRequested bool   `json:"cancel_requested,omitempty"`
}

// Answers of a resume.
const (
	ResumeKeep     = "keep"
	ResumeLost     = "lost"
	ResumeFinished = "finished"
)

// Renew extends the lease. Progress, at most MaxProgress bytes, is shown to people.
type Renew struct {
	AttemptID string `json:"attempt_id" strict:"required"`
	Epoch     uint64 `json:"epoch" strict:"required"`
	Progress  string `json:"progress,omitempty"`
}

// Renewed confirms a renewal.
type Renewed struct {
	AttemptID       string `json:"attempt_id" strict:"required"`
	Epoch           uint64 `json:"epoch" strict:"required"`
	LeaseMS         uint64 `json:"lease_ms" strict:"required"`
	CancelRequested bool   `json:"cancel_requested,omitempty"`
}

// Outcomes a worker may report.
const (
	OutcomeSucceeded = "SUCCEEDED"
	OutcomeFailed    = "FAILED"
	OutcomeUnknown   = "UNKNOWN"
	OutcomeCancelled = "CANCELLED"
)

// Finish ends an attempt. Receipt is the worker's identity of this result, 1 to 64
// printable ASCII characters: the same receipt and content may be sent again.
type Finish struct {
	AttemptID string          `json:"attempt_id" strict:"required"`
	Epoch     uint64          `json:"epoch" strict:"required"`
	Receipt   string          `json:"receipt" strict:"required"`
	Outcome   string          `json:"outcome" strict:"required"`
	Retryable bool            `json:"retryable,omitempty"` // only with FAILED
	Result    json.RawMessage `json:"result,omitempty"`    // only with SUCCEEDED, at most MaxResult
	Error     string          `json:"error,omitempty"`     // at most MaxError
}

// Finished confirms a result. TaskState is the state of the task after it.
type Finished struct {
	AttemptID string `json:"attempt_id" strict:"required"`
	Epoch     uint64 `json:"epoch" strict:"required"`
	Status    string `json:"status" strict:"required"`
	TaskState string `json:"task_state,omitempty"`
}

// Answers of a finish. Each of them ends the worker's duty to repeat it.
const (
	FinishRecorded = "recorded"         // the result decided the task, now or when it was first sent
	FinishFinished = "already_finished" // another result had been recorded: kept as evidence
	FinishExpired  = "lease_expired"    // the attempt had been ended by expiry: kept as evidence
	FinishReplaced = "superseded"       // a later attempt exists: kept as evidence
)

// Returned confirms that an un-started assignment was handed back.
type Returned struct {
	AttemptID string `json:"attempt_id" strict:"required"`
	Epoch     uint64 `json:"epoch" strict:"required"`
}

// Cancel tells that a cancel intent exists for a running attempt.
type Cancel struct {
	AttemptID string `json:"attempt_id" strict:"required"`
	Epoch     uint64 `json:"epoch" strict:"required"`
	Reason    string `json:"reason,omitempty"`
}

// ServerDraining asks the worker to connect elsewhere: the node stops.
type ServerDraining struct {
	RetryAfterMS uint64 `json:"retry_after_ms" strict:"required"`
}

// Codes of an Error beside those of the HTTP contract.
const (
	CodeLeaseExpired = "lease_expired" // the lease ended; execution is not authorised
	CodeSuperseded   = "superseded"    // a later attempt of the task exists
	CodeEnded        = "already_finished"

	// CodeStartDeadline refuses a start after the task's deadline or start deadline: the
	// task has ended, the assignment is void.
	CodeStartDeadline = "start_deadline"
)

// Error refuses a message. AttemptID is set when it concerns an attempt.
type Error struct {
	Code      string `json:"code" strict:"required"`
	Message   string `json:"message" strict:"required"`
	AttemptID string `json:"attempt_id,omitempty"`
}

package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Causes of a cancelled handler context, see [context.Cause]. The handler should
// stop and return; what it returns is still reported.
var (
	// ErrLeaseLost reports that the right to execute has ended: the lease could
	// not be renewed in time, or the server said that it has expired. Another
	// attempt may run now. The handler must not begin another effect.
	ErrLeaseLost = errors.New("worker: the right to execute was lost")

	// ErrAttemptTimeout reports that the attempt's timeout or the task's deadline
	// is reached. The lease is not renewed past it.
	ErrAttemptTimeout = errors.New("worker: attempt timeout or task deadline reached")

	// ErrCancelRequested reports that somebody asked for the task's cancel. The
	// handler still has the right to execute: it may finish, or stop cleanly and
	// return [Cancelled].
	ErrCancelRequested = errors.New("worker: cancel requested")

	// ErrDraining reports that the worker stops and Config.DrainTimeout is over.
	ErrDraining = errors.New("worker: drain timeout is over")
)

// ErrClosed reports that a connection is over. Whether a message that was being
// answered has been taken is unknown: it may be repeated on the next connection.
var ErrClosed = errors.New("worker: connection closed")

// errUnanswered ends a connection that has gone silent.
var errUnanswered = errors.New("the server has gone silent")

// A ProtocolError reports a message of the server that breaks the protocol, such
// as a keyed task without a token. The connection is closed with close code 4400
// and no handler runs for the message. Rule names the message, the field and the
// rule, and never a value.
type ProtocolError struct {
	Rule string
}

// Error returns the rule.
func (e *ProtocolError) Error() string { return "worker: the server broke the protocol: " + e.Rule }

func broken(format string, args ...any) error {
	return &ProtocolError{Rule: fmt.Sprintf(format, args...)}
}

// A RefusedError is the server's exact refusal of one message. Code is a code of
// the HTTP contract (orbit.CodeUnavailable means: not now, repeat it) or one of
// lease_expired, superseded and already_finished.
type RefusedError struct {
	Act     string // the message refused, such as task.start
	Code    string
	Message string // for people
	// AttemptID is the attempt concerned, or empty.
	AttemptID string
}

// Error returns the message refused, the code and the server's words.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("worker: server refused %s: %s: %s", e.Act, printable(e.Code), printable(e.Message))
}

// A HandshakeError reports that the server did not open a connection. With status
// 401 the credential is missing, expired or revoked; with 403 it lacks
// workers:connect or workers:consume.
type HandshakeError struct {
	Status        int
	Code          string // of Orbit's error envelope, or empty
	Message       string // for people, or empty
	RequestID     string // names the request in the server's log, or empty
	RetryAfter    time.Duration
	HasRetryAfter bool
}

// Error returns status, code, message and request id.
func (e *HandshakeError) Error() string {
	text := fmt.Sprintf("worker: server answered %d to the connection request", e.Status)
	if e.Code != "" {
		text += ": " + e.Code + ": " + printable(e.Message)
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// A ClosedError reports that the server has closed the connection, with the close
// code and reason that it gave. It wraps [ErrClosed].
type ClosedError struct {
	Code   int
	Reason string
}

// Error returns the close code and the reason.
func (e *ClosedError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("worker: server closed the connection with code %d: %s", e.Code, printable(e.Reason)), ": ")
}

// Unwrap returns ErrClosed.
func (e *ClosedError) Unwrap() error { return ErrClosed }

// A StuckError reports a handler that still runs although its context was
// cancelled at least Config.StopTimeout ago. It occupies one slot of the capacity
// until it returns.
type StuckError struct {
	TaskID, AttemptID string
	Handler           Handler
	Cause             error // why the context was cancelled
}

// Error names the handler, the attempt and the cause.
func (e *StuckError) Error() string {
	return fmt.Sprintf("worker: handler %s %s ignores its cancelled context (attempt %s of task %s): %v",
		e.Handler.Name, e.Handler.Version, e.AttemptID, e.TaskID, e.Cause)
}

// Unwrap returns the cause.
func (e *StuckError) Unwrap() error { return e.Cause }

// A DrainError reports that Run gave up: these attempts were not over after
// Config.DrainTimeout plus Config.StopTimeout. Their leases end by themselves and
// the server treats their outcome as unknown.
type DrainError struct {
	Running        []string // attempts whose handler ignores its cancelled context: it still runs
	Unacknowledged []string // attempts whose end the server has not confirmed
}

// Error counts and names the attempts.
func (e *DrainError) Error() string {
	return fmt.Sprintf("worker: not drained: %d handlers still run %q, %d attempts are not confirmed %q",
		len(e.Running), e.Running, len(e.Unacknowledged), e.Unacknowledged)
}

// printable makes text of another party safe for one line of a log.
func printable(text string) string {
	const most = 256
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

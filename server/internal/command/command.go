package command

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/dispatch/settle"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// Config tunes Commands. The zero value is ready to use.
type Config struct {
	// Modes is what the node remembers of limits. Default: the commands remember alone.
	Modes *quota.Modes
	// Wake is called after a commit with the lanes that have got READY tasks by it, the
	// timer's among them. It must not block. Default: nobody is told.
	Wake func(lanes []int64)
	// Cancelled is called after the commit of a cancel of a running task, so that the
	// worker of the attempt can be told. It must not block. Default: nobody is told; a
	// worker hears of the intent with its next renewal.
	Cancelled func(attempt sqldb.ID, epoch int64, reason string)
	// Reopened is called after the commit of a change of a queue, or with a zero queue of an
	// application: it may have been paused, stopped or full before. It must not block.
	// Default: nobody is told; nodes notice within a second.
	Reopened func(application, queue sqldb.ID)
	// Settled is called after a commit with what it did to attempts, which may be nothing.
	// It must not block. Default: nobody is told.
	Settled func(settle.Tally)
	// Log gets what is swallowed. Default: nothing is logged.
	Log *slog.Logger
}

// Commands carries out the commands of one node. It is safe for concurrent use.
type Commands struct {
	db  *sqldb.DB
	cfg Config
}

// New returns the commands on db.
func New(db *sqldb.DB, cfg Config) *Commands {
	if cfg.Modes == nil {
		cfg.Modes = &quota.Modes{}
	}
	if cfg.Wake == nil {
		cfg.Wake = func([]int64) {}
	}
	if cfg.Reopened == nil {
		cfg.Reopened = func(application, queue sqldb.ID) {}
	}
	if cfg.Cancelled == nil {
		cfg.Cancelled = func(sqldb.ID, int64, string) {}
	}
	if cfg.Settled == nil {
		cfg.Settled = func(settle.Tally) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Commands{db: db, cfg: cfg}
}

// A Caller is who gives a command. That it may give it at all has been checked.
type Caller struct {
	Namespace   sqldb.ID
	Application sqldb.ID
	Credential  sqldb.ID // zero if there is none
	Request     sqldb.ID // id of the request, unlike any other; zero means that one is made
	// Key is the idempotency key. Empty means that the command is given by hand: there is
	// no record and no repeat.
	Key string
	// Actor names the person, for the audit, at most 128 bytes. Empty means the credential
	// itself.
	Actor string
	// MayUse reports whether a queue lies in the caller's scope. Nil means every queue.
	MayUse func(queue sqldb.ID) bool
}

func (c *Caller) mayUse(queue sqldb.ID) bool { return c.MayUse == nil || c.MayUse(queue) }

// A Receipt is the answer to a command.
type Receipt struct {
	Status   int    // of HTTP; that of the first command, for a repeat
	Data     []byte // a JSON object: {"deduplicated":…,"task":…}, or a queue or application
	Replayed bool   // the key was known: this is what the first command was answered
}

// ErrNotFound reports that there is no such thing in the scope of the caller.
var ErrNotFound = errors.New("no such thing")

// A StateConflictError reports that the revision or the state of a thing does not allow
// the command. Nothing was changed. The sender has to look at the thing again (ERR-006).
type StateConflictError struct {
	Message string // for people; holds nothing that the caller may not know
}

// Error returns the message.
func (e *StateConflictError) Error() string { return e.Message }

func conflictf(format string, args ...any) error {
	return &StateConflictError{fmt.Sprintf(format, args...)}
}

// checkRevision holds a command to the revision that its sender has seen (CAN-020).
func checkRevision(present int64, expected uint64) error {
	if uint64(present) == expected {
		return nil
	}
	return conflictf("expected_revision: is %d, but the present revision is %d", expected, present)
}

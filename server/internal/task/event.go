package task

import (
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Kinds of task events. Each visible change of a task writes its event in the same
// transaction (STATE-018).
const (
	EventAccepted      = "accepted"
	EventClaimed       = "claimed"
	EventStarted       = "started"
	EventReturned      = "returned"       // an un-started claim handed back or expired
	EventSucceeded     = "succeeded"      // a verified result
	EventFailed        = "failed"         // final
	EventRetryWaiting  = "retry_waiting"  // back in WAITING for another attempt
	EventNeedsReview   = "needs_review"   // effect unknown, a person decides
	EventCancelAsked   = "cancel_asked"   // intent recorded on a running task
	EventCancelled     = "cancelled"      // ended by a cancel
	EventReviewDecided = "review_decided" // NEEDS_REVIEW left
)

// An Event is one line of a task's history.
type Event struct {
	Task       sqldb.ID
	Revision   int64 // revision of the task after the change
	Kind       string
	Attempt    sqldb.ID // zero if no attempt is concerned
	Credential sqldb.ID // zero if the server acted by itself
	Reason     string   // short machine-readable cause, or empty
	At         int64
}

const eventColumns = 7

const insertEvents = `
INSERT INTO task_event (task_id, revision, kind, attempt_id, credential_id, reason, created_at)
VALUES `

// AddEvents has events appended, in one statement.
func AddEvents(w *sqldb.Writes, events []Event) {
	if len(events) == 0 {
		return
	}
	args := make([]any, 0, len(events)*eventColumns)
	for i := range events {
		e := &events[i]
		args = append(args, e.Task.Arg(), e.Revision, []byte(e.Kind), e.Attempt.Arg(), e.Credential.Arg(), []byte(e.Reason), e.At)
	}
	w.Add("insert events", strings.TrimSpace(insertEvents)+" "+sqldb.Rows(len(events), eventColumns), args...)
}

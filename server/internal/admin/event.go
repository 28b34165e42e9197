package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// An Event is one line of the history of a task, with what the audit tells of it.
type Event struct {
	Revision   uint64    `json:"revision,string"` // of the task after the change
	Kind       string    `json:"kind"`
	At         time.Time `json:"at"`
	Reason     string    `json:"reason,omitempty"`     // short code
	AttemptID  string    `json:"attempt_id,omitempty"` // if an attempt is concerned
	Credential string    `json:"credential,omitempty"` // name of the one that asked for it
	Actor      string    `json:"actor,omitempty"`      // the person that the audit names
	Note       string    `json:"note,omitempty"`       // why, in the words of that person
}

const selectEvents = `
SELECT e.seq, e.revision, e.kind, e.created_at, e.reason, e.attempt_id, COALESCE(c.name, '')
FROM task_event e
LEFT JOIN credential c ON c.id = e.credential_id
WHERE e.task_id = ?
  AND e.seq > ?
ORDER BY e.seq
LIMIT ?`

// Events lists at most limit events of a task after one, the oldest first; next is the
// last one if there are more, or 0. A task that does not exist has none.
func (o *Operator) Events(ctx context.Context, id sqldb.ID, after int64, limit int) (events []Event, next int64, err error) {
	audits, err := o.auditsOf(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	events = []Event{}
	var last int64
	err = sqldb.EachRow(ctx, o.db.Read(), selectEvents, []any{id, after, limit + 1}, func(scan func(...any) error) error {
		var e Event
		var seq, at int64
		var attempt sqldb.ID
		err := scan(&seq, &e.Revision, &e.Kind, &at, &e.Reason, &attempt, &e.Credential)
		if len(events) == limit {
			next = last
			return err
		}
		last = seq
		e.At, e.AttemptID = sqldb.Time(at), hexOf(attempt)
		e.Actor, e.Note = audits[at].actor, audits[at].note
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read events of task: %w", err)
	}
	return events, next, nil
}

// maxAudits bounds how many audit rows of a task are read: submit, cancel and review leave
// one each.
const maxAudits = 100

const selectAudits = `
SELECT created_at, actor, note
FROM audit
WHERE target_id = ?
ORDER BY seq
LIMIT ?`

// auditsOf returns who acted on a task, by the time of the act: event and audit row of one
// transaction have the same.
func (o *Operator) auditsOf(ctx context.Context, id sqldb.ID) (map[int64]act, error) {
	audits := map[int64]act{}
	err := sqldb.EachRow(ctx, o.db.Read(), selectAudits, []any{id, maxAudits}, func(scan func(...any) error) error {
		var at int64
		var a act
		err := scan(&at, &a.actor, &a.note)
		audits[at] = a
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read audit of task: %w", err)
	}
	return audits, nil
}

// An act is who did something, and why.
type act struct{ actor, note string }

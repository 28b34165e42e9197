package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/accept"
	"github.com/orbitkit/orbit/server/internal/command"
)

// A ConflictError reports that the state of a thing does not allow a command. Nothing was
// changed.
type ConflictError struct{ Message string }

// Error returns the message.
func (e *ConflictError) Error() string { return e.Message }

// Cancel cancels a task that is as the operator has seen it. Of a running one only the
// intent is recorded. Its errors are [*InvalidError], [*ConflictError] or the database's,
// which leave the outcome unknown.
func (o *Operator) Cancel(ctx context.Context, seen orbit.Task, reason string) error {
	request, digest, err := parse(orbit.ParseCancel, seen, map[string]any{"reason": reason})
	if err != nil {
		return err
	}
	id, caller, err := o.caller(ctx, seen)
	if err != nil {
		return err
	}
	_, err = o.commands.Cancel(ctx, caller, id, request, digest)
	return refused(id, err)
}

// A Decision ends the review of a task.
type Decision struct {
	State    string // SUCCEEDED, FAILED or CANCELLED
	Note     string // why; required
	Result   json.RawMessage
	Evidence json.RawMessage // what it rests on
}

// Review decides about a task in NEEDS_REVIEW that is as the operator has seen it. Its
// errors are those of Cancel.
func (o *Operator) Review(ctx context.Context, seen orbit.Task, d Decision) error {
	members := map[string]any{"decision": d.State, "note": d.Note}
	for name, text := range map[string]json.RawMessage{"result": d.Result, "evidence": d.Evidence} {
		if len(text) > 0 {
			if !json.Valid(text) {
				return &InvalidError{name, "must be JSON"}
			}
			members[name] = text
		}
	}
	request, digest, err := parse(orbit.ParseReview, seen, members)
	if err != nil {
		return err
	}
	id, caller, err := o.caller(ctx, seen)
	if err != nil {
		return err
	}
	_, err = o.commands.Review(ctx, caller, id, request, digest)
	return refused(id, err)
}

// Retry makes a new task out of one that is FAILED or CANCELLED and as the operator has
// seen it, and returns the new one's id. The command has a key of its own, so that it
// cannot be repeated: to give it again makes another task. Its errors are those of Cancel,
// and [*ConflictError] for a limit that leaves no room.
func (o *Operator) Retry(ctx context.Context, seen orbit.Task, reason string) (string, error) {
	request, digest, err := parse(orbit.ParseRetry, seen, map[string]any{"reason": reason})
	if err != nil {
		return "", err
	}
	id, caller, err := o.caller(ctx, seen)
	if err != nil {
		return "", err
	}
	// A task has a credential that submitted it: the new one has that of the old one. The
	// audit names who really asked for it.
	if caller.Credential, err = o.submitter(ctx, id); err != nil {
		return "", err
	}
	caller.Request = sqldb.NewID()
	caller.Key = "orbit-admin:" + caller.Request.String()
	item, err := o.commands.Retry(ctx, caller, id, request, digest)
	if err != nil {
		return "", refused(id, err)
	}
	item.Minimal = true
	outcome := accept.New(o.db, accept.Config{Alone: true}).Submit(ctx, []accept.Item{item})[0]
	if outcome.Err != nil {
		return "", refused(id, outcome.Err)
	}
	text, err := outcome.Receipt.AppendMinimalTask(nil)
	if err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"id"`
	}
	return made.ID, json.Unmarshal(text, &made)
}

// parse holds a command to the rules of its HTTP form.
func parse[R any](rules func([]byte) (R, orbit.Digest, error), seen orbit.Task, members map[string]any) (R, orbit.Digest, error) {
	members["expected_revision"] = strconv.FormatUint(seen.Revision, 10)
	body, err := json.Marshal(members)
	if err != nil {
		var none R
		return none, orbit.Digest{}, &InvalidError{"command", err.Error()}
	}
	request, digest, err := rules(body)
	var argument *orbit.InvalidArgumentError
	if errors.As(err, &argument) {
		err = &InvalidError{argument.Field, argument.Rule}
	}
	return request, digest, err
}

// submitter reads the credential that submitted a task.
func (o *Operator) submitter(ctx context.Context, id sqldb.ID) (credential sqldb.ID, err error) {
	err = o.db.Read().QueryRowContext(ctx, "SELECT credential_id FROM task WHERE id = ?", id).Scan(&credential)
	if err != nil {
		return credential, fmt.Errorf("look up the credential of task: %w", err)
	}
	return credential, nil
}

const selectApplicationOf = `
SELECT application_id
FROM namespace
WHERE id = ?`

// caller gives commands on a task in the name of the operator.
func (o *Operator) caller(ctx context.Context, seen orbit.Task) (id sqldb.ID, c command.Caller, err error) {
	if id, err = sqldb.ParseID(seen.ID); err != nil {
		return id, c, err
	}
	if c.Namespace, err = sqldb.ParseID(seen.NamespaceID); err != nil {
		return id, c, err
	}
	c.Actor = o.actor
	err = o.db.Read().QueryRowContext(ctx, selectApplicationOf, c.Namespace).Scan(&c.Application)
	if err != nil {
		return id, c, fmt.Errorf("look up namespace of task: %w", err)
	}
	return id, c, nil
}

// refused turns what commands say into what an operator is told.
func refused(id sqldb.ID, err error) error {
	var conflict *command.StateConflictError
	var argument *orbit.InvalidArgumentError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, command.ErrNotFound):
		return fmt.Errorf("task %s %w", id, ErrMissing)
	case errors.As(err, &conflict):
		return &ConflictError{conflict.Message}
	case errors.As(err, &argument):
		return &ConflictError{argument.Error()}
	case errors.Is(err, accept.ErrUnavailable):
		return fmt.Errorf("it is not known whether the new task was made, look before you try again: %w", err)
	}
	return err
}

package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/command"
)

// A write is a command on one thing, whose body is read into an R.
type write[R any] struct {
	parse       func(body []byte) (R, orbit.Digest, error)
	permissions []string // each of them is needed
	allQueues   bool     // so is a scope of all queues
	missing     *refusal // answers a thing that is not there or lies out of scope
	run         func(context.Context, command.Caller, R, orbit.Digest) (command.Receipt, error)
}

// serve answers a command in the order of IDEM-019: what can be said of the request alone
// comes first, then what the credential may, then what depends on what is stored (AMB-071).
func (w write[R]) serve(c *call) error {
	request, content, key, release, err := readCommand(c, w.parse)
	defer release()
	if err != nil {
		return err
	}
	if err := c.requireAll(w.permissions, w.allQueues); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	r, err := w.run(ctx, c.caller(key), request, content)
	if err != nil {
		return commandRefusal(err, w.missing)
	}
	if r.Replayed {
		c.w.Header().Set(orbit.HeaderReplayed, "true")
	}
	return c.respond(r.Status, r.Data)
}

// readCommand reads the key and the body of a command. Release is readBody's.
func readCommand[R any](c *call, parse func([]byte) (R, orbit.Digest, error)) (r R, content orbit.Digest, key string, release func(), err error) {
	body, release, err := c.readBody()
	if err != nil {
		return r, content, "", release, err
	}
	if err := c.noQuery(); err != nil {
		return r, content, "", release, err
	}
	if key, err = idempotencyKey(c.r.Header); err != nil {
		return r, content, "", release, err
	}
	r, content, err = parse(body)
	return r, content, key, release, err
}

// requireAll refuses a credential that lacks one of permissions or, if that is needed, may
// not use every queue.
func (c *call) requireAll(permissions []string, allQueues bool) error {
	for _, permission := range permissions {
		if err := c.require(permission); err != nil {
			return err
		}
	}
	if allQueues && !c.principal.AllQueues {
		return denied("the credential is restricted to some queues")
	}
	return nil
}

// caller is who gives the command.
func (c *call) caller(key string) command.Caller {
	return command.Caller{
		Namespace: c.principal.Namespace, Application: c.principal.Application, Credential: c.principal.Credential,
		Request: c.id, Key: key, MayUse: c.principal.MayUse,
	}
}

// onSubject gives run the id in the path. What is no id names nothing (AMB-071).
func onSubject[R any](c *call, run func(context.Context, command.Caller, sqldb.ID, R, orbit.Digest) (command.Receipt, error)) func(context.Context, command.Caller, R, orbit.Digest) (command.Receipt, error) {
	return func(ctx context.Context, caller command.Caller, r R, content orbit.Digest) (command.Receipt, error) {
		id, err := sqldb.ParseID(c.subject)
		if err != nil {
			return command.Receipt{}, command.ErrNotFound
		}
		return run(ctx, caller, id, r, content)
	}
}

// commandRefusal is how an error of a command is answered.
func commandRefusal(err error, missing *refusal) error {
	var state *command.StateConflictError
	switch {
	case errors.Is(err, command.ErrNotFound):
		return missing
	case errors.As(err, &state):
		return &refusal{status: http.StatusConflict, code: orbit.CodeStateConflict, message: state.Message}
	}
	return err
}

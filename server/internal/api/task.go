package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
	"github.com/orbitkit/orbit/server/internal/query"
)

// getTask serves GET /v1/tasks/{id}.
func (c *call) getTask() error {
	return c.readOfTask(errNoTask, func(ctx context.Context, id sqldb.ID) ([]byte, error) {
		t, err := c.reader().Task(ctx, c.scope(), id)
		return t.AppendJSON(nil), err
	})
}

// getSource serves GET /v1/tasks/{id}/source.
func (c *call) getSource() error {
	return c.readOfTask(errNoTask, func(ctx context.Context, id sqldb.ID) ([]byte, error) {
		source, err := c.reader().Source(ctx, c.scope(), id)
		return source.AppendJSON(nil), err
	})
}

// readOfTask answers with what read makes of the task that the path names. What is not
// there, is not to be seen or has a malformed id is missing alike (GET-003, AMB-071).
func (c *call) readOfTask(missing *refusal, read func(ctx context.Context, id sqldb.ID) ([]byte, error)) error {
	if err := c.require(auth.TasksRead); err != nil {
		return err
	}
	if err := c.noQuery(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestTimeout)
	defer cancel()
	id, err := sqldb.ParseID(c.subject)
	if err != nil {
		return missing
	}
	data, err := read(ctx, id)
	if err != nil {
		return orNotFound(err, missing)
	}
	return c.respond(http.StatusOK, data)
}

// readOfPart is readOfTask for a part of it, such as an attempt.
func (c *call) readOfPart(missing *refusal, read func(ctx context.Context, id, part sqldb.ID) ([]byte, error)) error {
	return c.readOfTask(missing, func(ctx context.Context, id sqldb.ID) ([]byte, error) {
		part, err := sqldb.ParseID(c.part)
		if err != nil {
			return nil, missing
		}
		return read(ctx, id, part)
	})
}

// reader reads what is stored.
func (c *call) reader() *query.Reader { return query.New(c.cfg.DB) }

// scope is what the caller may see.
func (c *call) scope() query.Scope {
	s := query.Scope{Namespace: c.principal.Namespace, MayUse: c.principal.MayUse}
	if !c.principal.AllQueues {
		s.Credential = c.principal.Credential
	}
	return s
}

// orNotFound answers what is not found with missing.
func orNotFound(err error, missing *refusal) error {
	if errors.Is(err, query.ErrNotFound) {
		return missing
	}
	return err
}

package command

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// Actions, as the audit names them.
const (
	actionCancel            = "task.cancel"
	actionReview            = "task.review"
	actionCreateQueue       = "queue.create"
	actionUpdateQueue       = "queue.update"
	actionUpdateApplication = "application.update"
)

// An audit is what one command leaves for those who ask later who did what.
type audit struct {
	action         string
	actor          string // empty means the caller's
	target         sqldb.ID
	queue          sqldb.ID // zero if none is concerned
	handler        string
	handlerVersion string
	note           string // reason given, or what was changed
	at             int64
}

const insertAudit = `
INSERT INTO audit (namespace_id, credential_id, actor, action, target_id, queue_id, handler,
	handler_version, request_id, created_at, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// insert writes the row. It copies nothing of the business but what a person wrote.
func (a audit) insert(ctx context.Context, tx *sqldb.Tx, c *Caller) error {
	actor := c.Actor
	if actor == "" {
		actor = a.actor
	}
	_, err := tx.ExecContext(ctx, insertAudit, c.Namespace, c.Credential, []byte(actor), []byte(a.action), a.target, a.queue,
		[]byte(a.handler), []byte(a.handlerVersion), c.Request, a.at, []byte(a.note))
	if err != nil {
		return fmt.Errorf("insert audit row: %w", err)
	}
	return nil
}

package command

import (
	"context"
	"fmt"
	"net/http"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/idempotency"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// UpdateApplication changes the caller's application, which all its namespaces share
// (REF-QRES-002). A stale revision is a [*StateConflictError]; the other errors are those
// of [Commands.Cancel].
func (c *Commands) UpdateApplication(ctx context.Context, caller Caller, r orbit.UpdateApplicationRequest, content orbit.Digest) (Receipt, error) {
	w := newWork(&caller, idempotency.UpdateApplication, caller.Application, content)
	w.told = func() { c.cfg.Reopened(caller.Application, sqldb.ID{}) }
	w.write = func(ctx context.Context, tx *sqldb.Tx) (idempotency.Receipt, error) {
		if err := updateApplication(ctx, tx, &caller, r); err != nil {
			return idempotency.Receipt{}, err
		}
		return applicationReceipt(ctx, tx, caller.Application)
	}
	return c.run(ctx, w)
}

const (
	lockApplication = `
SELECT dispatch_stopped, revision
FROM application
WHERE id = ?`

	selectLimits = `
SELECT max_unfinished, max_active_attempts
FROM application_quota
WHERE application_id = ?`

	saveApplication = `
UPDATE application
SET dispatch_stopped = ?, revision = revision + 1, updated_at = ?
WHERE id = ?`

	saveActiveLimit = `
UPDATE application_quota
SET max_active_attempts = ?, updated_at = ?
WHERE application_id = ?`
)

// updateApplication locks the application and then its quotas: the claims, which read both,
// meet them in that order.
func updateApplication(ctx context.Context, tx *sqldb.Tx, caller *Caller, r orbit.UpdateApplicationRequest) error {
	var (
		id                 = caller.Application
		stopped            bool
		revision           int64
		unfinished, active uint64
		note               changes
	)
	err := tx.QueryRowContext(ctx, lockApplication+tx.Dialect().ForUpdate, id).Scan(&stopped, &revision)
	if err != nil {
		return fmt.Errorf("lock application: %w", err)
	}
	if err := checkRevision(revision, r.ExpectedRevision); err != nil {
		return err
	}
	// Only who holds the application changes its limits.
	if err := tx.QueryRowContext(ctx, selectLimits, id).Scan(&unfinished, &active); err != nil {
		return fmt.Errorf("read limits of application: %w", err)
	}
	setTo(&note, "dispatch_stopped", &stopped, r.DispatchStopped)
	if setTo(&note, "max_unfinished", &unfinished, r.MaxUnfinished) {
		if err := quota.LimitApplication(ctx, tx, id, int64(unfinished)); err != nil {
			return err
		}
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	if setTo(&note, "max_active_attempts", &active, r.MaxActiveAttempts) {
		if _, err := tx.ExecContext(ctx, saveActiveLimit, int64(active), now, id); err != nil {
			return fmt.Errorf("save limit of attempts: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, saveApplication, stopped, now, id); err != nil {
		return fmt.Errorf("update application: %w", err)
	}
	return audit{action: actionUpdateApplication, target: id, note: note.String(), at: now}.insert(ctx, tx, caller)
}

const selectApplication = `
SELECT a.name, a.state, a.dispatch_stopped, a.revision, a.created_at, a.updated_at,
       x.max_unfinished, x.max_active_attempts, x.unfinished,
       (SELECT COUNT(*) FROM attempt t WHERE t.application_id = a.id AND t.live = 1)
FROM application a
JOIN application_quota x ON x.application_id = a.id
WHERE a.id = ?`

// stateActive is the stored state of an application in use.
const stateActive = 1

// applicationReceipt renders the application as the transaction leaves it.
func applicationReceipt(ctx context.Context, tx *sqldb.Tx, id sqldb.ID) (idempotency.Receipt, error) {
	var (
		a                = orbit.Application{ID: id.String(), State: "DISABLED"}
		state            int
		created, updated int64
		unfinished       uint64
	)
	err := tx.QueryRowContext(ctx, selectApplication, id).Scan(&a.Name, &state, &a.DispatchStopped, &a.Revision, &created, &updated,
		&a.MaxUnfinished, &a.MaxActiveAttempts, &unfinished, &a.ActiveAttempts)
	if err != nil {
		return idempotency.Receipt{}, fmt.Errorf("read application: %w", err)
	}
	if state == stateActive {
		a.State = "ACTIVE"
	}
	if a.MaxUnfinished > 0 {
		a.Unfinished = &unfinished
	}
	a.CreatedAt, a.UpdatedAt = sqldb.Time(created), sqldb.Time(updated)
	return idempotency.Receipt{Status: http.StatusOK, Body: a.AppendJSON(nil)}, nil
}

package admin

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/quota"
)

// stateDisabled is the state of an application whose credentials count no more.
const stateDisabled = 2

const selectApplications = `
SELECT id
FROM application
WHERE name > ?
ORDER BY name
LIMIT ?`

// Applications lists at most limit applications whose names come after a name, and reports
// whether there are more.
func (o *Operator) Applications(ctx context.Context, after string, limit int) (list []orbit.Application, more bool, err error) {
	var ids []sqldb.ID
	err = sqldb.EachRow(ctx, o.db.Read(), selectApplications, []any{[]byte(after), limit + 1}, func(scan func(...any) error) error {
		var id sqldb.ID
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("list applications: %w", err)
	}
	for _, id := range ids[:min(len(ids), limit)] {
		a, err := o.reader.Application(ctx, id)
		if err != nil {
			return nil, false, err
		}
		list = append(list, a)
	}
	return list, len(ids) > limit, nil
}

// Application reads an application.
func (o *Operator) Application(ctx context.Context, name string) (orbit.Application, error) {
	id, err := o.application(ctx, name)
	if err != nil {
		return orbit.Application{}, err
	}
	return o.reader.Application(ctx, id)
}

// An ApplicationChange says what of an application is to be another. What is nil stays.
type ApplicationChange struct {
	DispatchStopped   *bool  // nothing is dispatched; what runs goes on (AMB-061)
	Disabled          *bool  // each request with one of its credentials is answered 401
	MaxUnfinished     *int64 // most unfinished tasks over all queues, 0 for any number
	MaxActiveAttempts *int64 // most attempts at one time, 0 for any number
}

// ChangeApplication changes an application and returns it as it is then. A change to what
// the application is already writes nothing.
func (o *Operator) ChangeApplication(ctx context.Context, name string, c ApplicationChange, reason string) (orbit.Application, error) {
	err := checkLimits(reason, limit{"max-unfinished", c.MaxUnfinished}, limit{"max-active-attempts", c.MaxActiveAttempts})
	if err != nil {
		return orbit.Application{}, err
	}
	id, err := o.application(ctx, name)
	if err != nil {
		return orbit.Application{}, err
	}
	err = o.change(ctx, func(w *writer) error {
		n, err := w.changeApplication(id, c)
		if err != nil || len(n) == 0 {
			return err
		}
		w.audits = append(w.audits, audit{action: "application.update", target: id, note: n.because(reason)})
		return nil
	})
	if err != nil {
		return orbit.Application{}, err
	}
	return o.reader.Application(ctx, id)
}

const (
	lockApplication = `
SELECT state = 2, dispatch_stopped
FROM application
WHERE id = ?`

	saveApplication = `
UPDATE application
SET state = ?, dispatch_stopped = ?, revision = revision + 1, updated_at = ?
WHERE id = ?`
)

// changeApplication locks the application and then its quotas, in the order of the claims.
func (w *writer) changeApplication(id sqldb.ID, c ApplicationChange) (n note, err error) {
	var disabled, stopped bool
	row := w.tx.QueryRowContext(w.ctx, lockApplication+w.tx.Dialect().ForUpdate, id)
	if err := row.Scan(&disabled, &stopped); err != nil {
		return nil, fmt.Errorf("lock application: %w", err)
	}
	setTo(&n, "disabled", &disabled, c.Disabled)
	setTo(&n, "dispatch_stopped", &stopped, c.DispatchStopped)
	if err := w.limitApplication(&n, id, c); err != nil || len(n) == 0 {
		return nil, err
	}
	state := stateActive
	if disabled {
		state = stateDisabled
	}
	if _, err := w.tx.ExecContext(w.ctx, saveApplication, state, stopped, w.now, id); err != nil {
		return nil, fmt.Errorf("update application: %w", err)
	}
	return n, nil
}

const (
	selectLimits = `
SELECT max_unfinished, max_active_attempts
FROM application_quota
WHERE application_id = ?`

	saveActiveLimit = `
UPDATE application_quota
SET max_active_attempts = ?, updated_at = ?
WHERE application_id = ?`
)

// limitApplication changes limits. Only who holds the application does.
func (w *writer) limitApplication(n *note, id sqldb.ID, c ApplicationChange) error {
	var unfinished, active int64
	if err := w.tx.QueryRowContext(w.ctx, selectLimits, id).Scan(&unfinished, &active); err != nil {
		return fmt.Errorf("read limits of application: %w", err)
	}
	if setTo(n, "max_unfinished", &unfinished, c.MaxUnfinished) {
		if err := quota.LimitApplication(w.ctx, w.tx, id, unfinished); err != nil {
			return err
		}
	}
	if setTo(n, "max_active_attempts", &active, c.MaxActiveAttempts) {
		if _, err := w.tx.ExecContext(w.ctx, saveActiveLimit, active, w.now, id); err != nil {
			return fmt.Errorf("save limit of attempts: %w", err)
		}
	}
	return nil
}

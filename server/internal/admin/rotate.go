package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// MaxOverlap bounds how long a rotated credential goes on.
const MaxOverlap = 90 * 24 * time.Hour

// Rotate makes a credential that takes the place of another one, with its name, namespace,
// permissions and queues, and returns it; its token is stored nowhere else. The old one
// goes on for the overlap, or until it would have expired anyway; with no overlap it is
// revoked at once. A new one expires after as long a life as the old one was given. All
// that is one transaction. Its errors are [*InvalidError], [*ConflictError] for an old
// credential that has ended or is being replaced already, ErrMissing, or the database's.
func (o *Operator) Rotate(ctx context.Context, id sqldb.ID, overlap time.Duration, reason string) (orbit.Credentials, error) {
	if overlap < 0 || overlap > MaxOverlap {
		return orbit.Credentials{}, &InvalidError{"overlap", fmt.Sprintf("must be between 0 and %d days", MaxOverlap/(24*time.Hour))}
	}
	if err := checkReason(reason); err != nil {
		return orbit.Credentials{}, err
	}
	c := newCredential("", nil)
	var made scope
	err := o.db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		w, err := newWriter(ctx, tx, o.actor)
		if err != nil {
			return err
		}
		if made, err = w.rotate(id, &c, overlap, reason); err != nil {
			return err
		}
		return w.insertAudits()
	}, c.exists)
	if err != nil {
		return orbit.Credentials{}, err
	}
	return c.file(made), nil
}

// rotate fills c with what the old credential is and puts it in its place.
func (w *writer) rotate(old sqldb.ID, c *credential, overlap time.Duration, reason string) (scope, error) {
	made, expires, err := w.lockCredential(old, c)
	if err != nil {
		return scope{}, err
	}
	if made.queue, err = w.firstQueue(made.namespace, c); err != nil {
		return scope{}, err
	}
	about := note{replacesPrefix + old.String()}
	if err := w.insertCredential(made.namespace, *c, append(about, c.about()...).because(reason)); err != nil {
		return scope{}, err
	}
	end := "revoked"
	if overlap == 0 {
		err = w.revoke(old)
	} else {
		until := w.now + overlap.Microseconds()
		if expires.Valid {
			until = min(until, expires.Int64)
		}
		end = "valid until " + sqldb.Time(until).Format(time.RFC3339)
		err = w.expire(old, until)
	}
	n := note{replacedByPrefix + c.id.String(), end}
	w.audits = append(w.audits, audit{action: actionRotate, namespace: made.namespace, target: old, note: n.because(reason)})
	return made, err
}

const lockCredential = `
SELECT c.namespace_id, n.application_id, n.environment, c.name, c.permissions, c.all_queues, c.created_at, c.expires_at, c.revoked_at
FROM credential c
JOIN namespace n ON n.id = c.namespace_id
WHERE c.id = ?`

// lockCredential reads the credential that c is to replace, locked, and refuses one that
// has ended: who rotates it would give it new life.
func (w *writer) lockCredential(id sqldb.ID, c *credential) (s scope, expires sql.NullInt64, err error) {
	var environment, name, permissions []byte
	var all bool
	var created int64
	var revoked sql.NullInt64
	err = w.tx.QueryRowContext(w.ctx, lockCredential+w.tx.Dialect().ForUpdate, id).Scan(
		&s.namespace, &s.application, &environment, &name, &permissions, &all, &created, &expires, &revoked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s, expires, fmt.Errorf("credential %s %w", id, ErrMissing)
	case err != nil:
		return s, expires, fmt.Errorf("look up credential: %w", err)
	case revoked.Valid:
		return s, expires, &ConflictError{fmt.Sprintf("credential %s has been revoked: make a new one with create", id)}
	case expires.Valid && expires.Int64 <= w.now:
		return s, expires, &ConflictError{fmt.Sprintf("credential %s has expired: make a new one with create", id)}
	}
	if err := w.refuseReplaced(id); err != nil {
		return s, expires, err
	}
	s.environment, c.name = string(environment), string(name)
	c.permissions, c.queues, c.queueNames, c.expires = auth.Permissions(strings.Split(string(permissions), ",")), nil, nil, nil
	if expires.Valid {
		until := w.now + expires.Int64 - created
		c.expires = &until
	}
	if !all {
		err = c.readQueues(w.ctx, w.tx, id)
	}
	return s, expires, err
}

const selectQueuesOf = `
SELECT c.queue_id, q.name
FROM credential_queue c
JOIN queue q ON q.id = c.queue_id
WHERE c.credential_id = ?
ORDER BY c.queue_id`

// readQueues gives c the queues of another credential.
func (c *credential) readQueues(ctx context.Context, q sqldb.Querier, other sqldb.ID) error {
	c.queues, c.queueNames = nil, nil
	err := sqldb.EachRow(ctx, q, selectQueuesOf, []any{other}, func(scan func(...any) error) error {
		var queue sqldb.ID
		var name string
		err := scan(&queue, &name)
		c.queues, c.queueNames = append(c.queues, queue), append(c.queueNames, name)
		return err
	})
	if err != nil {
		return fmt.Errorf("look up queues of credential: %w", err)
	}
	return nil
}

// firstQueue is the one that a credentials file names.
func (w *writer) firstQueue(namespace sqldb.ID, c *credential) (sqldb.ID, error) {
	if len(c.queues) > 0 {
		return c.queues[0], nil
	}
	return w.oldestQueue(namespace)
}

const expireCredential = `
UPDATE credential
SET expires_at = ?
WHERE id = ?`

func (w *writer) expire(id sqldb.ID, at int64) error {
	if _, err := w.tx.ExecContext(w.ctx, expireCredential, at, id); err != nil {
		return fmt.Errorf("end credential: %w", err)
	}
	return nil
}

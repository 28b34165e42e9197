package admin

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// A CredentialView is what may be told of a credential: nothing of its secret.
type CredentialView struct {
	ID          string     `json:"id"`
	Application string     `json:"application"`
	Namespace   string     `json:"namespace"`
	Name        string     `json:"name"`
	State       string     `json:"state"` // "active", "expired" or "revoked"
	Permissions []string   `json:"permissions"`
	AllQueues   bool       `json:"all_queues"`
	Queues      []string   `json:"queues"` // names; empty with AllQueues
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	RevokedAt   *time.Time `json:"revoked_at,omitempty"`
	Replaces    string     `json:"replaces,omitempty"`    // id of the one that a rotation put it in the place of
	ReplacedBy  string     `json:"replaced_by,omitempty"` // id of the one that a rotation put in its place
}

const selectCredentials = `
SELECT c.id, a.name, n.name, c.name, c.permissions, c.all_queues, c.created_at, c.expires_at, c.revoked_at
FROM credential c
JOIN namespace n ON n.id = c.namespace_id
JOIN application a ON a.id = n.application_id
WHERE `

// Credentials lists at most limit credentials, the oldest first, whose ids are above
// after. Without the name of an application it lists those of all, without the name of a
// namespace those of all in the application. A name that is not known is ErrMissing.
func (o *Operator) Credentials(ctx context.Context, application, namespace string, after sqldb.ID, limit int) ([]CredentialView, error) {
	where, of, err := o.credentialsOf(ctx, application, namespace)
	if err != nil {
		return nil, err
	}
	query := selectCredentials + "c.id > ?" + where + "\nORDER BY c.id\nLIMIT ?"
	return o.readCredentials(ctx, query, slices.Concat([]any{after[:]}, of, []any{limit}))
}

// Credential reads one credential. Its error wraps ErrMissing if there is none.
func (o *Operator) Credential(ctx context.Context, id sqldb.ID) (CredentialView, error) {
	views, err := o.readCredentials(ctx, selectCredentials+"c.id = ?", []any{id})
	switch {
	case err != nil:
		return CredentialView{}, err
	case len(views) == 0:
		return CredentialView{}, fmt.Errorf("credential %s %w", id, ErrMissing)
	}
	return views[0], nil
}

func (o *Operator) readCredentials(ctx context.Context, query string, args []any) ([]CredentialView, error) {
	now, err := o.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read database clock: %w", err)
	}
	views := []CredentialView{}
	var ids []sqldb.ID
	err = sqldb.EachRow(ctx, o.db.Read(), query, args, func(scan func(...any) error) error {
		id, v, err := scanCredential(scan, now)
		views, ids = append(views, v), append(ids, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	related, err := successions(ctx, o.db.Dialect(), o.db.Read(), ids...)
	if err != nil {
		return nil, err
	}
	for i := range views {
		s := related[ids[i]]
		views[i].Replaces, views[i].ReplacedBy = hexOf(s.replaces), hexOf(s.replacedBy)
		if views[i].AllQueues {
			continue
		}
		if views[i].Queues, err = o.queueNames(ctx, ids[i]); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// credentialsOf returns the condition that confines a list, and what it binds.
func (o *Operator) credentialsOf(ctx context.Context, application, namespace string) (where string, args []any, err error) {
	switch {
	case application == "" && namespace == "":
		return "", nil, nil
	case namespace == "":
		id, err := o.application(ctx, application)
		return "\n  AND n.application_id = ?", []any{id}, err
	}
	found, err := o.namespace(ctx, Place{Application: application, Namespace: namespace})
	return "\n  AND c.namespace_id = ?", []any{found.namespace}, err
}

func scanCredential(scan func(...any) error, now int64) (id sqldb.ID, v CredentialView, err error) {
	var (
		permissions      string
		created          int64
		expires, revoked sql.NullInt64
	)
	err = scan(&id, &v.Application, &v.Namespace, &v.Name, &permissions, &v.AllQueues, &created, &expires, &revoked)
	v.ID, v.Permissions, v.Queues = id.String(), strings.Split(permissions, ","), []string{}
	v.CreatedAt, v.ExpiresAt, v.RevokedAt = sqldb.Time(created), timeOf(expires), timeOf(revoked)
	switch {
	case revoked.Valid:
		v.State = "revoked"
	case expires.Valid && expires.Int64 <= now:
		v.State = "expired"
	default:
		v.State = "active"
	}
	return id, v, err
}

const selectQueueNames = `
SELECT q.name
FROM credential_queue c
JOIN queue q ON q.id = c.queue_id
WHERE c.credential_id = ?
ORDER BY q.name`

func (o *Operator) queueNames(ctx context.Context, id sqldb.ID) ([]string, error) {
	names := []string{}
	err := sqldb.EachRow(ctx, o.db.Read(), selectQueueNames, []any{id}, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list queues of credential: %w", err)
	}
	return names, nil
}

package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// A CredentialRequest asks for a credential of a namespace that exists.
type CredentialRequest struct {
	Application string
	Namespace   string
	Name        string        // for people; default "credential"
	Permissions []string      // at least one
	Queues      []string      // names; none means all queues of the namespace
	ExpiresIn   time.Duration // from now by the database's clock; zero means never
	Actor       string        // who does it, for the audit
	Reason      string        // why, for the audit; at most 1,024 bytes
}

// Run makes the credential and returns it; its token is stored nowhere else. QueueID is
// the first of Queues or, for a credential over all queues, the oldest queue of the
// namespace. Its errors are [*InvalidError], ErrMissing, or the database's.
func (r CredentialRequest) Run(ctx context.Context, db *sqldb.DB) (orbit.Credentials, error) {
	permissions, err := r.validate()
	if err != nil {
		return orbit.Credentials{}, err
	}
	c := newCredential(r.Name, permissions)
	var made scope
	err = db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		w, err := newWriter(ctx, tx, r.Actor)
		if err != nil {
			return err
		}
		if made, err = r.write(w, c); err != nil {
			return err
		}
		return w.insertAudits()
	}, c.exists)
	if err != nil {
		return orbit.Credentials{}, err
	}
	return c.file(made), nil
}

func (r *CredentialRequest) validate() (auth.Permissions, error) {
	if r.Name == "" {
		r.Name = "credential"
	}
	names := []struct{ field, name string }{
		{"application", r.Application}, {"namespace", r.Namespace}, {"name", r.Name},
	}
	for _, n := range names {
		if err := checkName(n.field, n.name, maxName); err != nil {
			return nil, err
		}
	}
	if err := checkReason(r.Reason); err != nil {
		return nil, err
	}
	if r.ExpiresIn < 0 {
		return nil, &InvalidError{"expires-in", "must not be negative"}
	}
	permissions, err := auth.NewPermissions(r.Permissions)
	if err != nil {
		return nil, &InvalidError{"permission", err.Error()}
	}
	return permissions, nil
}

func (r CredentialRequest) write(w *writer, c credential) (scope, error) {
	found, err := find(w.ctx, w.tx, r.Application, r.Namespace)
	if err != nil {
		return scope{}, err
	}
	if err := found.mustExist(r.Application, r.Namespace); err != nil {
		return scope{}, err
	}
	if r.ExpiresIn > 0 {
		expires := w.now + r.ExpiresIn.Microseconds()
		c.expires = &expires
	}
	for _, name := range r.Queues {
		queue, err := findQueue(w.ctx, w.tx, found.namespace, name)
		if err != nil {
			return scope{}, err
		}
		if !slices.Contains(c.queues, queue) {
			c.queues, c.queueNames = append(c.queues, queue), append(c.queueNames, name)
		}
	}
	if len(c.queues) > 0 {
		found.queue = c.queues[0]
	} else if found.queue, err = w.oldestQueue(found.namespace); err != nil {
		return scope{}, err
	}
	return found, w.insertCredential(found.namespace, c, c.about().because(r.Reason))
}

const selectOldestQueue = `
SELECT id
FROM queue
WHERE namespace_id = ?
ORDER BY created_at, id
LIMIT 1`

func (w *writer) oldestQueue(namespace sqldb.ID) (id sqldb.ID, err error) {
	if err := w.tx.QueryRowContext(w.ctx, selectOldestQueue, namespace).Scan(&id); err != nil {
		return id, fmt.Errorf("look up a queue of the namespace: %w", err)
	}
	return id, nil
}

// A credential is one to be made. Its token exists here and in the file only.
type credential struct {
	id          sqldb.ID
	name        string
	token       string
	digest      [32]byte
	permissions auth.Permissions
	queues      []sqldb.ID // none means all
	queueNames  []string   // of queues, in their order
	expires     *int64
}

// maxNamed bounds what the audit tells of the names of a credential's queues.
const maxNamed = 1024 // bytes

// about is what the audit tells of a new credential: what it may do, where, and until when.
func (c credential) about() note {
	n := note{"permissions " + strings.Join(c.permissions, " "), "all queues", "no end"}
	if len(c.queues) > 0 {
		n[1] = "queues " + listed(c.queueNames, maxNamed)
	}
	if c.expires != nil {
		n[2] = "valid until " + sqldb.Time(*c.expires).Format(time.RFC3339)
	}
	return n
}

// listed quotes names, as many as fit, and tells how many more there are.
func listed(names []string, most int) string {
	text := ""
	for i, name := range names {
		quoted := strconv.Quote(name)
		if len(text)+len(quoted) >= most {
			return fmt.Sprintf("%s and %d more", text, len(names)-i)
		}
		if i > 0 {
			text += " "
		}
		text += quoted
	}
	return text
}

func newCredential(name string, permissions auth.Permissions) credential {
	c := credential{id: sqldb.NewID(), name: name, permissions: permissions}
	c.token, c.digest = auth.NewToken(c.id)
	return c
}

const selectCredential = `
SELECT COUNT(*)
FROM credential
WHERE id = ?`

// exists reports whether the transaction that made c is in force.
func (c credential) exists(ctx context.Context, q sqldb.Querier) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, selectCredential, c.id).Scan(&n)
	return n == 1, err
}

// file is what a credentials file says of c (REF-AUTH-003).
func (c credential) file(s scope) orbit.Credentials {
	return orbit.Credentials{
		Token:         c.token,
		ApplicationID: s.application.String(),
		NamespaceID:   s.namespace.String(),
		QueueID:       s.queue.String(),
		Permissions:   c.permissions,
		Environment:   s.environment,
	}
}

// insertCredential makes a credential; about is what the audit tells of it.
func (w *writer) insertCredential(namespace sqldb.ID, c credential, about string) error {
	err := w.insert("credential", "credential",
		"id, namespace_id, name, secret_digest, permissions, all_queues, expires_at, created_at",
		c.id, namespace, []byte(c.name), c.digest[:], c.permissions.Column(), len(c.queues) == 0, c.expires, w.now)
	if err != nil {
		return err
	}
	for _, queue := range c.queues {
		err := w.insert("queue of credential", "credential_queue", "credential_id, queue_id", c.id, queue)
		if err != nil {
			return err
		}
	}
	w.audits = append(w.audits, audit{action: actionCreate, namespace: namespace, target: c.id, note: about})
	return nil
}

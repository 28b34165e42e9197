package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/auth"
)

// Permissions of a first credential (CLI-008).
var (
	ownerPermissions = []string{
		auth.QueuesManage, auth.TasksSubmit, auth.TasksRead, auth.TasksCancel, auth.ReviewsDecide, auth.ApplicationsRead,
	}
	workerPermissions = []string{auth.WorkersConnect, auth.WorkersConsume}
)

// A Bootstrap asks for what a new installation needs to be used: an application, a
// namespace in it, a queue and a credential over all queues.
type Bootstrap struct {
	Application string // may exist already, with other namespaces
	Namespace   string
	Environment string // label of a new namespace, such as "test"
	Queue       string
	// WorkerAccess adds the permissions that a worker needs.
	WorkerAccess bool
	// NewCredential asks for another credential of a namespace and queue that exist.
	NewCredential bool
	Actor         string // who does it, for the audit
}

// ErrExists reports that application and namespace exist. Nothing was changed.
var ErrExists = errors.New("the namespace exists already in this application")

// ErrMissing reports that what a new credential is to belong to does not exist. Nothing
// was changed.
var ErrMissing = errors.New("does not exist")

// Run makes what b asks for in one transaction and returns the credential, whose token
// is stored nowhere else. Its errors are [*InvalidError], ErrExists, ErrMissing, or the
// database's.
func (b Bootstrap) Run(ctx context.Context, db *sqldb.DB) (orbit.Credentials, error) {
	if err := b.validate(); err != nil {
		return orbit.Credentials{}, err
	}
	permissions, err := auth.NewPermissions(b.permissions())
	if err != nil {
		return orbit.Credentials{}, err
	}
	c := newCredential("bootstrap", permissions)
	// Somebody may make a part of it at this moment: application, namespace or queue. The
	// next run sees it.
	const tries = 4
	var made scope
	for range tries {
		if made, err = b.run(ctx, db, c); !db.Dialect().Duplicate(err) {
			break
		}
	}
	if err != nil {
		return orbit.Credentials{}, err
	}
	return c.file(made), nil
}

func (b Bootstrap) run(ctx context.Context, db *sqldb.DB, c credential) (made scope, err error) {
	err = db.TxResolve(ctx, func(tx *sqldb.Tx) error {
		w, err := newWriter(ctx, tx, b.Actor)
		if err != nil {
			return err
		}
		if made, err = b.write(w, c); err != nil {
			return err
		}
		return w.insertAudits()
	}, c.exists)
	return made, err
}

func (b Bootstrap) permissions() []string {
	if b.WorkerAccess {
		return slices.Concat(ownerPermissions, workerPermissions)
	}
	return ownerPermissions
}

func (b Bootstrap) validate() error {
	fields := []struct {
		field, name string
		most        int
	}{
		{"application", b.Application, maxName},
		{"namespace", b.Namespace, maxName},
		{"queue", b.Queue, maxName},
		{"environment", b.Environment, maxEnvironment},
	}
	for _, f := range fields {
		if f.field == "environment" && b.NewCredential && f.name == "" {
			continue // the namespace has one
		}
		if err := checkName(f.field, f.name, f.most); err != nil {
			return err
		}
	}
	return nil
}

func (b Bootstrap) write(w *writer, c credential) (scope, error) {
	found, err := find(w.ctx, w.tx, b.Application, b.Namespace)
	switch {
	case err != nil:
		return scope{}, err
	case b.NewCredential:
		return b.add(w, found, c)
	case !found.namespace.IsZero():
		return scope{}, ErrExists
	}
	if found.application.IsZero() {
		if found.application, err = w.insertApplication(b.Application); err != nil {
			return scope{}, err
		}
	}
	found.environment = b.Environment
	if found.namespace, err = w.insertNamespace(found.application, b.Namespace, b.Environment); err != nil {
		return scope{}, err
	}
	if found.queue, err = w.insertQueue(found.namespace, b.Queue); err != nil {
		return scope{}, err
	}
	return found, w.insertCredential(found.namespace, c, c.about().because(""))
}

// add makes another credential of what exists.
func (b Bootstrap) add(w *writer, found scope, c credential) (scope, error) {
	if err := found.mustExist(b.Application, b.Namespace); err != nil {
		return scope{}, err
	}
	if b.Environment != "" && b.Environment != found.environment {
		return scope{}, &InvalidError{"environment", fmt.Sprintf("is %q for this namespace", found.environment)}
	}
	var err error
	if found.queue, err = findQueue(w.ctx, w.tx, found.namespace, b.Queue); err != nil {
		return scope{}, err
	}
	return found, w.insertCredential(found.namespace, c, c.about().because(""))
}

// A scope is an application, a namespace in it and a queue in that, as far as they exist.
type scope struct {
	application sqldb.ID
	namespace   sqldb.ID
	environment string
	queue       sqldb.ID
}

func (s scope) mustExist(application, namespace string) error {
	if s.application.IsZero() {
		return fmt.Errorf("application %q %w", application, ErrMissing)
	}
	if s.namespace.IsZero() {
		return fmt.Errorf("namespace %q of application %q %w", namespace, application, ErrMissing)
	}
	return nil
}

const selectScope = `
SELECT a.id, n.id, n.environment
FROM application a
LEFT JOIN namespace n ON n.application_id = a.id AND n.name = ?
WHERE a.name = ?`

func find(ctx context.Context, q sqldb.Querier, application, namespace string) (s scope, err error) {
	row := q.QueryRowContext(ctx, selectScope, []byte(namespace), []byte(application))
	var environment []byte
	err = row.Scan(&s.application, &s.namespace, &environment)
	s.environment = string(environment)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return scope{}, fmt.Errorf("look up application and namespace: %w", err)
	}
	return s, nil
}

const selectQueue = `
SELECT id
FROM queue
WHERE namespace_id = ?
  AND name = ?`

func findQueue(ctx context.Context, q sqldb.Querier, namespace sqldb.ID, name string) (id sqldb.ID, err error) {
	err = q.QueryRowContext(ctx, selectQueue, namespace, []byte(name)).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, fmt.Errorf("queue %q %w", name, ErrMissing)
	case err != nil:
		return id, fmt.Errorf("look up queue: %w", err)
	}
	return id, nil
}

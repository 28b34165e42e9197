package admin

import (
	"context"
	"fmt"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// stateActive is the state of an application and of a namespace in use.
const stateActive = 1

// A writer makes rows within one transaction and keeps the audit of them.
type writer struct {
	ctx    context.Context
	tx     *sqldb.Tx
	now    int64
	actor  string
	audits []audit
}

type audit struct {
	action    string
	namespace sqldb.ID
	target    sqldb.ID
	queue     sqldb.ID
	note      string
}

func newWriter(ctx context.Context, tx *sqldb.Tx, actor string) (*writer, error) {
	now, err := tx.Now(ctx)
	return &writer{ctx: ctx, tx: tx, now: now, actor: actor}, err
}

// insert runs one INSERT of one row.
func (w *writer) insert(what, table, columns string, args ...any) error {
	query := "INSERT INTO " + table + " (" + columns + ") VALUES " + sqldb.Placeholders(len(args))
	if _, err := w.tx.ExecContext(w.ctx, query, args...); err != nil {
		return fmt.Errorf("insert %s: %w", what, err)
	}
	return nil
}

// insertApplication makes an application and its row of quotas, which has no limits yet.
func (w *writer) insertApplication(name string) (sqldb.ID, error) {
	id := sqldb.NewID()
	err := w.insert("application", "application", "id, name, state, created_at, updated_at",
		id, []byte(name), stateActive, w.now, w.now)
	if err != nil {
		return id, err
	}
	w.audits = append(w.audits, audit{action: "application.create", target: id})
	return id, w.insert("application quota", "application_quota", "application_id, updated_at", id, w.now)
}

func (w *writer) insertNamespace(application sqldb.ID, name, environment string) (sqldb.ID, error) {
	id := sqldb.NewID()
	w.audits = append(w.audits, audit{action: "namespace.create", namespace: id, target: id})
	return id, w.insert("namespace", "namespace", "id, application_id, name, environment, state, created_at, updated_at",
		id, application, []byte(name), []byte(environment), stateActive, w.now, w.now)
}

func (w *writer) insertQueue(namespace sqldb.ID, name string) (sqldb.ID, error) {
	id := sqldb.NewID()
	w.audits = append(w.audits, audit{action: "queue.create", namespace: namespace, target: id, queue: id})
	return id, w.insert("queue", "queue", "id, namespace_id, name, created_at, updated_at",
		id, namespace, []byte(name), w.now, w.now)
}

func (w *writer) insertAudits() error {
	for _, a := range w.audits {
		err := w.insert("audit row", "audit", "namespace_id, actor, action, target_id, queue_id, note, created_at",
			a.namespace, []byte(w.actor), []byte(a.action), a.target, a.queue, []byte(a.note), w.now)
		if err != nil {
			return err
		}
	}
	return nil
}

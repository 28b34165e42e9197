package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/command"
	"github.com/orbitkit/orbit/server/internal/query"
)

// An Operator is somebody who works on a server's database by hand. What it reads and
// changes is confined by nothing but the rights of its database user; each change is
// audited with the operator's name.
type Operator struct {
	db       *sqldb.DB
	actor    string
	reader   *query.Reader
	commands *command.Commands
}

// NewOperator returns an operator. actor is who it is, for the audit, at most 128 bytes.
func NewOperator(db *sqldb.DB, actor string) *Operator {
	return &Operator{db: db, actor: actor, reader: query.New(db), commands: command.New(db, command.Config{})}
}

// A Place names a queue, or a namespace if Queue is empty, by the names of people.
type Place struct {
	Application string
	Namespace   string
	Queue       string
}

// namespace looks the namespace of p up. Its error wraps ErrMissing if there is none.
func (o *Operator) namespace(ctx context.Context, p Place) (scope, error) {
	if err := p.validate(false); err != nil {
		return scope{}, err
	}
	found, err := find(ctx, o.db.Read(), p.Application, p.Namespace)
	if err != nil {
		return scope{}, err
	}
	return found, found.mustExist(p.Application, p.Namespace)
}

// queue looks the queue of p up. Its error wraps ErrMissing if there is none.
func (o *Operator) queue(ctx context.Context, p Place) (scope, error) {
	if err := p.validate(true); err != nil {
		return scope{}, err
	}
	found, err := o.namespace(ctx, p)
	if err != nil {
		return scope{}, err
	}
	found.queue, err = findQueue(ctx, o.db.Read(), found.namespace, p.Queue)
	return found, err
}

func (p Place) validate(queue bool) error {
	for _, n := range []struct{ field, name string }{{"application", p.Application}, {"namespace", p.Namespace}} {
		if err := checkName(n.field, n.name, maxName); err != nil {
			return err
		}
	}
	if queue {
		return checkName("queue", p.Queue, maxName)
	}
	return nil
}

// application looks an application up by name.
func (o *Operator) application(ctx context.Context, name string) (id sqldb.ID, err error) {
	if err := checkName("application", name, maxName); err != nil {
		return id, err
	}
	err = o.db.Read().QueryRowContext(ctx, "SELECT id FROM application WHERE name = ?", []byte(name)).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, fmt.Errorf("application %q %w", name, ErrMissing)
	case err != nil:
		return id, fmt.Errorf("look up application: %w", err)
	}
	return id, nil
}

// maxReason bounds why an operator did something.
const maxReason = 1024 // bytes

func checkReason(reason string) error {
	if reason == "" {
		return nil
	}
	return checkName("reason", reason, maxReason)
}

// change runs f in a transaction that ends with its audit rows. To do it twice, should the
// answer to the commit be lost, must change nothing but the audit.
func (o *Operator) change(ctx context.Context, f func(*writer) error) error {
	run := func(tx *sqldb.Tx) error {
		w, err := newWriter(ctx, tx, o.actor)
		if err != nil {
			return err
		}
		if err := f(w); err != nil {
			return err
		}
		return w.insertAudits()
	}
	err := o.db.Tx(ctx, run)
	if errors.Is(err, sqldb.ErrUnknownCommit) {
		return o.db.Tx(ctx, run)
	}
	return err
}

// A note is what has been set, and why, as the audit tells it.
type note []string

func (n *note) set(field string, from, to any) {
	*n = append(*n, fmt.Sprintf("%s %v -> %v", field, from, to))
}

func (n note) because(reason string) string {
	text := strings.Join(n, ", ")
	if reason != "" && text != "" {
		text += "; "
	}
	return text + reason
}

// setTo gives *present the value that is wanted, if one is, and notes it if it is another.
func setTo[T comparable](n *note, field string, present, wanted *T) bool {
	if wanted == nil || *wanted == *present {
		return false
	}
	n.set(field, *present, *wanted)
	*present = *wanted
	return true
}

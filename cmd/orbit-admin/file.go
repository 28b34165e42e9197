package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

// A credentialsFile is where a command writes the credential that it makes, and how it tells
// of it.
type credentialsFile struct {
	out       cli.Format
	path, url string
}

func (f *credentialsFile) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.path, "output", "", "credentials `file` to be made; required")
	flags.StringVar(&f.url, "url", "", "`address` of the task server, to be put into the file")
	f.out.Register(flags)
}

// write makes a credential with create, in the place of old unless that is zero, writes it
// to the file and tells of it. The id of a credential is no secret, its token is told to
// nobody.
func (f *credentialsFile) write(ctx context.Context, old sqldb.ID, create func(*sqldb.DB) (orbit.Credentials, error)) error {
	if f.path == "" {
		return cli.Usage(errors.New("--output is required: the token is written to this file and shown nowhere else"))
	}
	return withDatabase(ctx, f.out.Env, func(db *sqldb.DB) error {
		c, err := server.CreateFile(ctx, db, f.path, func() (orbit.Credentials, error) {
			c, err := create(db)
			c.URL = f.url
			return c, err
		})
		if err != nil {
			return err
		}
		m, err := f.made(ctx, server.NewOperator(db, actor()), c, old)
		if err != nil {
			return fmt.Errorf("the credential is made and in %s, but its end could not be read: %w", f.path, err)
		}
		return f.out.Print(m, m.print)
	})
}

// A madeCredential is a new credential, in the form that --json prints.
type madeCredential struct {
	ID          string     `json:"id"`
	NamespaceID string     `json:"namespace_id"`
	QueueID     string     `json:"queue_id"`
	File        string     `json:"file"`
	Permissions []string   `json:"permissions"`
	ExpiresAt   *time.Time `json:"expires_at"` // null: it has no end
	Replaced    *replaced  `json:"replaced,omitempty"`
}

// A replaced is the credential that a new one takes the place of.
type replaced struct {
	ID        string     `json:"id"`
	ExpiresAt *time.Time `json:"expires_at"` // the end of the overlap
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

func (f *credentialsFile) made(ctx context.Context, o *server.Operator, c orbit.Credentials, old sqldb.ID) (m madeCredential, err error) {
	id, err := server.CredentialID(c.Token)
	if err != nil {
		return m, err
	}
	view, err := o.Credential(ctx, id)
	if err != nil {
		return m, err
	}
	m = madeCredential{view.ID, c.NamespaceID, c.QueueID, f.path, view.Permissions, view.ExpiresAt, nil}
	if old.IsZero() {
		return m, nil
	}
	before, err := o.Credential(ctx, old)
	m.Replaced = &replaced{before.ID, before.ExpiresAt, before.RevokedAt}
	return m, err
}

func (m *madeCredential) print(w io.Writer) {
	fmt.Fprintf(w, "credential %s of namespace %s written to %s\nqueue %s\n", m.ID, m.NamespaceID, m.File, m.QueueID)
	fmt.Fprintf(w, "the new credential %s\n", until(m.ExpiresAt))
	switch r := m.Replaced; {
	case r == nil:
	case r.RevokedAt != nil:
		fmt.Fprintf(w, "the old credential %s was revoked at %s\n", r.ID, at(*r.RevokedAt))
	default:
		fmt.Fprintf(w, "the old credential %s %s\n", r.ID, until(r.ExpiresAt))
	}
}

func until(end *time.Time) string {
	if end == nil {
		return "has no end"
	}
	return "is valid until " + at(*end)
}

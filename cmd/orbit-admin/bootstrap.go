package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

const bootstrapLong = `bootstrap makes an application (unless it exists), a namespace in it, a queue, and a
credential over all queues of the namespace that may submit, read and cancel tasks, manage
queues, decide reviews and read the application; with --worker-access it may connect
workers too.

A namespace that exists is refused; --new-credential makes another credential of it.`

func newBootstrap(env cli.Environment) *cobra.Command {
	var r server.BootstrapRequest
	file := credentialsFile{out: cli.Format{Env: env}}
	c := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make an application, a namespace, a queue and a credential",
		Long:  bootstrapLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Actor = actor()
			return file.write(cmd.Context(), sqldb.ID{}, func(db *sqldb.DB) (orbit.Credentials, error) {
				c, err := server.Bootstrap(cmd.Context(), db, r)
				if errors.Is(err, server.ErrExists) {
					err = fmt.Errorf("application %q, namespace %q: %w (--new-credential makes another credential of it)",
						r.Application, r.Namespace, err)
				}
				return c, err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.Application, "application", "", "`name` of the application; required")
	f.StringVar(&r.Namespace, "namespace", "", "`name` of the namespace; required")
	f.StringVar(&r.Environment, "environment", "", "`label` of the namespace, such as test; required for a new one")
	f.StringVar(&r.Queue, "queue", "", "`name` of the queue; required")
	f.BoolVar(&r.WorkerAccess, "worker-access", false, "let the credential connect workers and consume tasks")
	f.BoolVar(&r.NewCredential, "new-credential", false, "make another credential of a namespace that exists")
	file.register(f)
	return c
}

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

func newCredential(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "credential",
		Short: "Make and revoke credentials",
	}
	c.AddCommand(newCreate(env), newRevoke(env))
	return c
}

func newCreate(env cli.Environment) *cobra.Command {
	var r server.CredentialRequest
	var output, url string
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a credential of a namespace that exists",
		Long: "create makes a credential with the given permissions, over the given queues or, without\n--queue, over all queues of the namespace.\n\nPermissions: " +
			strings.Join(server.KnownPermissions(), ", "),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Actor = actor()
			return writeFile(cmd.Context(), env, output, func(db *sqldb.DB) (orbit.Credentials, error) {
				c, err := server.CreateCredential(cmd.Context(), db, r)
				c.URL = url
				return c, err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.Application, "application", "", "`name` of the application; required")
	f.StringVar(&r.Namespace, "namespace", "", "`name` of the namespace; required")
	f.StringVar(&r.Name, "name", "", "`name` of the credential, for people")
	f.StringArrayVar(&r.Permissions, "permission", nil, "`permission` to give; may be repeated, at least one")
	f.StringArrayVar(&r.Queues, "queue", nil, "`name` of a queue that it may use; may be repeated (default all)")
	f.DurationVar(&r.ExpiresIn, "expires-in", 0, "how long it is valid, such as 720h (default for good)")
	f.StringVar(&output, "output", "", "credentials `file` to be made; required")
	f.StringVar(&url, "url", "", "`address` of the task server, to be put into the file")
	return c
}

func newRevoke(env cli.Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <credential id>",
		Short: "End a credential at once",
		Long: `revoke ends a credential: each later request with it is answered 401. The id is what create
and bootstrap have told, and the part of the token between its underscores.`,
		Args: cli.OneArgument("the id of one credential"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sqldb.ParseID(args[0])
			if err != nil {
				return cli.Usage(fmt.Errorf("credential id: %w", err))
			}
			return withDatabase(cmd.Context(), env, func(db *sqldb.DB) error {
				if err := server.RevokeCredential(cmd.Context(), db, id, actor()); err != nil {
					return err
				}
				_, err := fmt.Fprintf(env.Out, "credential %s revoked\n", id)
				return err
			})
		},
	}
}

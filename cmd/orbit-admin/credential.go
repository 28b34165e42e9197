package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

func newCredential(env environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "credential",
		Short: "Make and revoke credentials",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("say what to do: create or revoke (--help explains)")}
		},
	}
	c.AddCommand(newCreate(env), newRevoke(env))
	return c
}

func newCreate(env environment) *cobra.Command {
	var r server.CredentialRequest
	var output, url string
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a credential of a namespace that exists",
		Long: "create makes a credential with the given permissions, over the given queues or, without\n--queue, over all queues of the namespace.\n\nPermissions: " +
			strings.Join(server.KnownPermissions(), ", "),
		Args: noArguments,
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

func newRevoke(env environment) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <credential id>",
		Short: "End a credential at once",
		Long: `revoke ends a credential: each later request with it is answered 401. The id is what create
and bootstrap have told, and the part of the token between its underscores.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("revoke needs the id of one credential")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sqldb.ParseID(args[0])
			if err != nil {
				return usageError{fmt.Errorf("credential id: %w", err)}
			}
			return withDatabase(cmd.Context(), env, func(db *sqldb.DB) error {
				if err := server.RevokeCredential(cmd.Context(), db, id, actor()); err != nil {
					return err
				}
				_, err := fmt.Fprintf(env.out, "credential %s revoked\n", id)
				return err
			})
		},
	}
}

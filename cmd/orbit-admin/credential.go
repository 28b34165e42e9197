package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

func newCredential(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "credential",
		Short: "Make, list, rotate and revoke credentials",
	}
	c.AddCommand(newCreate(env), newCredentialList(env), newRotate(env), newRevoke(env))
	return c
}

func newCreate(env cli.Environment) *cobra.Command {
	var r server.CredentialRequest
	file := credentialsFile{out: cli.Format{Env: env}}
	c := &cobra.Command{
		Use:   "create",
		Short: "Make a credential of a namespace that exists",
		Long: "create makes a credential with the given permissions, over the given queues or, without\n--queue, over all queues of the namespace.\n\nPermissions: " +
			strings.Join(offered(), ", "),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Actor = actor()
			return file.write(cmd.Context(), sqldb.ID{}, func(db *sqldb.DB) (orbit.Credentials, error) {
				return server.CreateCredential(cmd.Context(), db, r)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.Application, "application", "", "`name` of the application; required")
	f.StringVar(&r.Namespace, "namespace", "", "`name` of the namespace; required")
	f.StringVar(&r.Name, "name", "", "`name` of the credential, for people")
	f.StringSliceVar(&r.Permissions, "permission", nil, "`permission` to give, or several with commas between; may be repeated, at least one")
	f.StringArrayVar(&r.Queues, "queue", nil, "`name` of a queue that it may use, which may hold commas; may be repeated (default all)")
	cli.DurationVar(f, &r.ExpiresIn, "expires-in", 0, "how long it is valid, such as 90d, 1d12h or 36h (default for good)")
	registerReason(f, &r.Reason)
	file.register(f)
	return c
}

// offered are the permissions, with a mark on those that nothing asks for yet.
func offered() []string {
	names := server.KnownPermissions()
	for i, name := range names {
		if strings.HasPrefix(name, "schedules:") {
			names[i] += " (reserved)"
		}
	}
	return names
}

func newRevoke(env cli.Environment) *cobra.Command {
	var reason string
	out := cli.Format{Env: env}
	c := &cobra.Command{
		Use:   "revoke <credential id>",
		Short: "End a credential at once",
		Long: `revoke ends a credential: each later request with it is answered 401. The id is what list,
create and bootstrap tell, and the part of the token between its underscores.`,
		Args: cli.OneArgument("the id of one credential"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("credential id", args[0])
			if err != nil {
				return err
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				if err := o.Revoke(cmd.Context(), id, reason); err != nil {
					return err
				}
				return out.Print(revoked{id.String(), "revoked"}, func(w io.Writer) { fmt.Fprintf(w, "credential %s revoked\n", id) })
			})
		},
	}
	registerReason(c.Flags(), &reason)
	out.Register(c.Flags())
	return c
}

// A revoked is a credential that has been ended, in the form that --json prints.
type revoked struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

const rotateLong = `rotate makes a credential with the name, namespace, permissions and queues of another one.
The old one goes on for the overlap, so that its users can change over, or until it would
have expired anyway; --overlap 0 revokes it at once. If the old one was given an end, the
new one gets as long a life. One that is being replaced already is refused: rotate the new
one.`

func newRotate(env cli.Environment) *cobra.Command {
	var reason string
	file := credentialsFile{out: cli.Format{Env: env}}
	var overlap time.Duration
	c := &cobra.Command{
		Use:   "rotate <credential id>",
		Short: "Replace a credential by a new one",
		Long:  rotateLong,
		Args:  cli.OneArgument("the id of one credential"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID("credential id", args[0])
			if err != nil {
				return err
			}
			return file.write(cmd.Context(), id, func(db *sqldb.DB) (orbit.Credentials, error) {
				return server.NewOperator(db, actor()).Rotate(cmd.Context(), id, overlap, reason)
			})
		},
	}
	f := c.Flags()
	cli.DurationVar(f, &overlap, "overlap", 24*time.Hour, "how long the old one goes on, 0 to 90d")
	registerReason(f, &reason)
	file.register(f)
	return c
}

func newCredentialList(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	var place server.Place
	c := &cobra.Command{
		Use:   "list",
		Short: "List credentials, the oldest first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			after, err := pages.id()
			if err != nil {
				return err
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				found, err := o.Credentials(cmd.Context(), place.Application, place.Namespace, after, pages.limit+1)
				if err != nil {
					return err
				}
				return printCredentials(&out, found, pages.limit)
			})
		},
	}
	c.Flags().StringVar(&place.Application, "application", "", "`name` of the application (default all)")
	c.Flags().StringVar(&place.Namespace, "namespace", "", "`name` of the namespace (default all of the application)")
	pages.register(c.Flags(), "`id` of the last credential of the page before")
	out.Register(c.Flags())
	return c
}

func printCredentials(out *cli.Format, found []server.CredentialView, limit int) error {
	next := ""
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	const header = "ID, STATE, APPLICATION, NAMESPACE, NAME, CREATED, EXPIRES, REVOKED, REPLACES, REPLACED BY, QUEUES, PERMISSIONS"
	return list(out, found, next, header, func(c server.CredentialView) []string {
		queues := "all"
		if !c.AllQueues {
			queues = strings.Join(c.Queues, ",")
		}
		return []string{c.ID, c.State, c.Application, c.Namespace, c.Name, at(c.CreatedAt), maybeAt(c.ExpiresAt), maybeAt(c.RevokedAt),
			c.Replaces, c.ReplacedBy, queues, strings.Join(c.Permissions, ",")}
	})
}

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/server"
)

func newApplication(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "application",
		Short: "List, pause, disable and limit applications",
		Long: `application shows and changes applications. A paused one takes tasks and gives none out;
what runs goes on. To disable one refuses each request with one of its credentials, also
of its workers: what they run ends by its lease.`,
	}
	show := func(ctx context.Context, o *server.Operator, a applicationAct) (orbit.Application, error) {
		return o.Application(ctx, a.name)
	}
	c.AddCommand(newApplicationList(env),
		newApplicationAct(env, "show", "Show an application", show),
		newApplicationAct(env, "pause", "Give out no more tasks of an application", changeApplication(server.ApplicationChange{DispatchStopped: new(true)})),
		newApplicationAct(env, "resume", "Give out tasks of an application again", changeApplication(server.ApplicationChange{DispatchStopped: new(false)})),
		newApplicationAct(env, "disable", "Refuse every request of an application", changeApplication(server.ApplicationChange{Disabled: new(true)})),
		newApplicationAct(env, "enable", "Let an application in again", changeApplication(server.ApplicationChange{Disabled: new(false)})),
		newApplicationLimit(env))
	return c
}

// An applicationAct is what the flags of a command on one application say.
type applicationAct struct{ name, reason string }

func changeApplication(c server.ApplicationChange) func(context.Context, *server.Operator, applicationAct) (orbit.Application, error) {
	return func(ctx context.Context, o *server.Operator, a applicationAct) (orbit.Application, error) {
		return o.ChangeApplication(ctx, a.name, c, a.reason)
	}
}

// newApplicationAct returns a command on one application that shows it as it is afterwards.
func newApplicationAct(env cli.Environment, name, short string, act func(context.Context, *server.Operator, applicationAct) (orbit.Application, error)) *cobra.Command {
	var a applicationAct
	out := cli.Format{Env: env}
	c := &cobra.Command{
		Use:   name,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				application, err := act(cmd.Context(), o, a)
				if err != nil {
					return err
				}
				return out.Print(application, func(w io.Writer) { printApplication(w, application) })
			})
		},
	}
	c.Flags().StringVar(&a.name, "application", "", "`name` of the application; required")
	if name != "show" {
		registerReason(c.Flags(), &a.reason)
	}
	out.Register(c.Flags())
	return c
}

func newApplicationLimit(env cli.Environment) *cobra.Command {
	var unfinished, active int64
	var limit *cobra.Command
	limit = newApplicationAct(env, "limit", "Limit an application; 0 is no limit", func(ctx context.Context, o *server.Operator, a applicationAct) (orbit.Application, error) {
		var change server.ApplicationChange
		if limit.Flags().Changed("max-unfinished") {
			change.MaxUnfinished = &unfinished
		}
		if limit.Flags().Changed("max-active-attempts") {
			change.MaxActiveAttempts = &active
		}
		if change == (server.ApplicationChange{}) {
			return orbit.Application{}, cli.Usage(errors.New("say which limit: --max-unfinished or --max-active-attempts"))
		}
		return o.ChangeApplication(ctx, a.name, change, a.reason)
	})
	limit.Flags().Int64Var(&unfinished, "max-unfinished", 0, "most unfinished `tasks` over all queues, those in review included")
	limit.Flags().Int64Var(&active, "max-active-attempts", 0, "most `attempts` at one time")
	return limit
}

func printApplication(w io.Writer, a orbit.Application) {
	fields(w, "id", a.ID, "name", a.Name, "state", a.State, "dispatch stopped", yes(a.DispatchStopped),
		"max unfinished", most(a.MaxUnfinished), "unfinished", unfinished(a.Unfinished),
		"max active attempts", most(a.MaxActiveAttempts), "active attempts", count(a.ActiveAttempts),
		"revision", count(a.Revision), "created", at(a.CreatedAt), "updated", at(a.UpdatedAt))
}

func newApplicationList(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	c := &cobra.Command{
		Use:   "list",
		Short: "List applications by name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := pages.check(); err != nil {
				return err
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				applications, more, err := o.Applications(cmd.Context(), pages.after, pages.limit)
				if err != nil {
					return err
				}
				next := ""
				if more {
					next = applications[len(applications)-1].Name
				}
				const header = "ID, NAME, STATE, DISPATCH STOPPED, MAX UNFINISHED, MAX ACTIVE, ACTIVE"
				return list(&out, applications, next, header, func(a orbit.Application) []string {
					return []string{a.ID, a.Name, a.State, yes(a.DispatchStopped), most(a.MaxUnfinished), most(a.MaxActiveAttempts), count(a.ActiveAttempts)}
				})
			})
		},
	}
	pages.register(c.Flags(), "`name` of the last application of the page before")
	out.Register(c.Flags())
	return c
}

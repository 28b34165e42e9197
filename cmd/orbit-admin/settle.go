package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

// A settled is a task before and after a command, in the form that --json prints.
type settled struct {
	Before    orbit.Task `json:"before"`
	After     orbit.Task `json:"after"`
	NewTaskID string     `json:"new_task_id,omitempty"` // of a retry
}

// A settling is a command on one task.
type settling struct {
	revision uint64 // that the operator has seen; 0 means the present one
	// act gives the command on the task as seen, and returns the id of a new task if it makes
	// one.
	act func(ctx context.Context, o *server.Operator, seen orbit.Task) (newTask string, err error)
}

// command completes c by what all commands on a task have.
func (s *settling) command(env cli.Environment, c *cobra.Command) *cobra.Command {
	out := cli.Format{Env: env}
	c.Args = cli.OneArgument("the id of one task")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		// 0 is no revision: a script whose variable is empty must not lose its guard.
		if cmd.Flags().Changed("revision") && s.revision == 0 {
			return cli.Usage(errors.New("--revision: must not be 0; leave it out to act on the present one"))
		}
		return withTask(cmd.Context(), env, args[0], func(o *server.Operator, id sqldb.ID) error {
			r, err := s.run(cmd.Context(), o, id)
			if err != nil {
				return err
			}
			return out.Print(r, r.print)
		})
	}
	c.Flags().Uint64Var(&s.revision, "revision", 0, "act only if the task is still at this `revision` (default the present one)")
	out.Register(c.Flags())
	return c
}

func (s *settling) run(ctx context.Context, o *server.Operator, id sqldb.ID) (r settled, err error) {
	if r.Before, err = o.Task(ctx, id); err != nil {
		return r, err
	}
	seen := r.Before
	if s.revision != 0 {
		seen.Revision = s.revision
	}
	if r.NewTaskID, err = s.act(ctx, o, seen); err != nil {
		return r, err
	}
	r.Before = bare(r.Before)
	after, err := o.Task(ctx, id)
	r.After = bare(after)
	return r, err
}

func (r *settled) print(w io.Writer) {
	fmt.Fprintf(w, "\tSTATE\tREVISION\tEFFECT UNCERTAIN\tCANCEL REQUESTED\tUPDATED\n")
	row := func(when string, t orbit.Task) {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", when, t.State, t.Revision, yes(t.EffectUncertain), cli.Plain(maybeAt(t.CancelRequestedAt)), at(t.UpdatedAt))
	}
	row("before", r.Before)
	row("after", r.After)
	if r.NewTaskID != "" {
		fmt.Fprintf(w, "new task %s\n", r.NewTaskID)
	}
}

func newTaskCancel(env cli.Environment) *cobra.Command {
	var reason string
	s := settling{act: func(ctx context.Context, o *server.Operator, seen orbit.Task) (string, error) {
		return "", o.Cancel(ctx, seen, reason)
	}}
	c := s.command(env, &cobra.Command{
		Use:   "cancel <task id>",
		Short: "Cancel a task",
		Long: `cancel ends a task that waits, and asks the worker of one that runs to stop: its answer or
its timeout decides then. What has happened outside is not undone.`,
	})
	c.Flags().StringVar(&reason, "reason", "", "`why`; required")
	return c
}

func newTaskReview(env cli.Environment) *cobra.Command {
	var d server.Decision
	var result, evidence string
	s := settling{act: func(ctx context.Context, o *server.Operator, seen orbit.Task) (string, error) {
		d.Result, d.Evidence = []byte(result), []byte(evidence)
		return "", o.Review(ctx, seen, d)
	}}
	c := s.command(env, &cobra.Command{
		Use:   "review <task id>",
		Short: "Decide about a task in NEEDS_REVIEW",
		Long: `review ends a review: SUCCEEDED if its effect is there, FAILED if it is provably not,
CANCELLED if nobody wants it any more. Find that out at the resource first.`,
	})
	c.Flags().StringVar(&d.State, "decision", "", "SUCCEEDED, FAILED or CANCELLED; required")
	c.Flags().StringVar(&d.Note, "note", "", "`why`; required")
	c.Flags().StringVar(&result, "result", "", "`JSON` result, with SUCCEEDED only")
	c.Flags().StringVar(&evidence, "evidence", "", "`JSON` that the decision rests on, at most 4 KiB")
	return c
}

func newTaskRetry(env cli.Environment) *cobra.Command {
	var reason string
	s := settling{act: func(ctx context.Context, o *server.Operator, seen orbit.Task) (string, error) {
		return o.Retry(ctx, seen, reason)
	}}
	c := s.command(env, &cobra.Command{
		Use:   "retry <task id>",
		Short: "Make a new task out of one that is FAILED or CANCELLED",
		Long: `retry makes a new task that is linked to the old one and has its handler, payload, keys and
policies. Run twice, it makes two.`,
	})
	c.Flags().StringVar(&reason, "reason", "", "`why`; required")
	return c
}

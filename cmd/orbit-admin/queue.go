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

func newQueue(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "List, make, pause and limit queues",
		Long: `queue shows and changes the queues of a namespace. A paused queue takes tasks and gives
none out; what runs goes on. A limit below what is there takes nothing away: it lets
nothing in until enough has ended.`,
	}
	c.AddCommand(newQueueList(env),
		newQueueAct(env, "show", "Show a queue", func(ctx context.Context, o *server.Operator, a queueAct) (orbit.Queue, error) {
			return o.Queue(ctx, a.place)
		}),
		newQueueAct(env, "create", "Make a queue", func(ctx context.Context, o *server.Operator, a queueAct) (orbit.Queue, error) {
			return o.CreateQueue(ctx, a.place, a.reason)
		}),
		newQueueAct(env, "pause", "Give out no more tasks of a queue", changeQueue(server.QueueChange{Paused: new(true)})),
		newQueueAct(env, "resume", "Give out tasks of a queue again", changeQueue(server.QueueChange{Paused: new(false)})),
		newQueueLimit(env))
	return c
}

// A queueAct is what the flags of a command on one queue say.
type queueAct struct {
	place  server.Place
	reason string
}

func changeQueue(c server.QueueChange) func(context.Context, *server.Operator, queueAct) (orbit.Queue, error) {
	return func(ctx context.Context, o *server.Operator, a queueAct) (orbit.Queue, error) {
		return o.ChangeQueue(ctx, a.place, c, a.reason)
	}
}

// newQueueAct returns a command on one queue that shows the queue as it is afterwards.
func newQueueAct(env cli.Environment, name, short string, act func(context.Context, *server.Operator, queueAct) (orbit.Queue, error)) *cobra.Command {
	var a queueAct
	out := cli.Format{Env: env}
	c := &cobra.Command{
		Use:   name,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				q, err := act(cmd.Context(), o, a)
				if err != nil {
					return err
				}
				return out.Print(q, func(w io.Writer) { printQueue(w, q) })
			})
		},
	}
	registerPlace(c.Flags(), &a.place, true)
	if name != "show" {
		registerReason(c.Flags(), &a.reason)
	}
	out.Register(c.Flags())
	return c
}

func newQueueLimit(env cli.Environment) *cobra.Command {
	var backlog, concurrency int64
	var limit *cobra.Command
	limit = newQueueAct(env, "limit", "Limit a queue; 0 is no limit", func(ctx context.Context, o *server.Operator, a queueAct) (orbit.Queue, error) {
		var change server.QueueChange
		if limit.Flags().Changed("max-backlog") {
			change.MaxBacklog = &backlog
		}
		if limit.Flags().Changed("max-concurrency") {
			change.MaxConcurrency = &concurrency
		}
		if change == (server.QueueChange{}) {
			return orbit.Queue{}, cli.Usage(errors.New("say which limit: --max-backlog or --max-concurrency"))
		}
		return o.ChangeQueue(ctx, a.place, change, a.reason)
	})
	limit.Flags().Int64Var(&backlog, "max-backlog", 0, "most unfinished `tasks`, those in review included")
	limit.Flags().Int64Var(&concurrency, "max-concurrency", 0, "most `attempts` at one time")
	return limit
}

func printQueue(w io.Writer, q orbit.Queue) {
	fields(w, "id", q.ID, "name", q.Name, "paused", yes(q.Paused),
		"max backlog", most(q.MaxBacklog), "unfinished", unfinished(q.Unfinished),
		"max concurrency", most(q.MaxConcurrency), "active attempts", count(q.ActiveAttempts),
		"revision", count(q.Revision), "created", at(q.CreatedAt), "updated", at(q.UpdatedAt))
}

func unfinished(n *uint64) string {
	if n == nil {
		return "not counted without a limit"
	}
	return count(*n)
}

func newQueueList(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	var place server.Place
	c := &cobra.Command{
		Use:   "list",
		Short: "List the queues of a namespace by name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := pages.check(); err != nil {
				return err
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				queues, more, err := o.Queues(cmd.Context(), place, pages.after, pages.limit)
				if err != nil {
					return err
				}
				next := ""
				if more {
					next = queues[len(queues)-1].Name
				}
				const header = "ID, NAME, PAUSED, MAX BACKLOG, MAX CONCURRENCY, ACTIVE"
				return list(&out, queues, next, header, func(q orbit.Queue) []string {
					return []string{q.ID, q.Name, yes(q.Paused), most(q.MaxBacklog), most(q.MaxConcurrency), count(q.ActiveAttempts)}
				})
			})
		},
	}
	registerPlace(c.Flags(), &place, false)
	pages.register(c.Flags(), "`name` of the last queue of the page before")
	out.Register(c.Flags())
	return c
}

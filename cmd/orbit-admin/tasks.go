package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server"
)

func newTasks(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "tasks",
		Short: "List and show tasks, and settle them by hand",
		Long: `tasks shows tasks and gives the commands that an operator may give: cancel, review and
retry, by the rules of the HTTP interface. Each needs a reason and shows the task before
and after. Payloads and results are shown with --payload only.`,
	}
	c.AddCommand(newTaskList(env), newTaskShow(env), newTaskCancel(env), newTaskReview(env), newTaskRetry(env))
	return c
}

const taskListLong = `list shows the tasks of a queue, the newest first; --from and --before bound when they were
made.

Without --queue it shows the tasks in one --state over all queues of the namespace or,
without --namespace, of the application: queue by queue, by name, in each the newest first.
Each queue is asked by an index, also those that have none: with thousands of queues it
takes its time.`

// listOverQueues shows tasks in one state, wherever they lie.
func listOverQueues(ctx context.Context, out *cli.Format, place server.Place, filter server.TaskFilter, limit int) error {
	return withOperator(ctx, out.Env, func(o *server.Operator) error {
		found, next, err := o.TasksInState(ctx, place, filter, limit)
		if err != nil {
			return err
		}
		if out.JSON {
			tasks := []orbit.Task{}
			for _, q := range found {
				tasks = append(tasks, q.Task)
			}
			return list(out, tasks, next, "", nil)
		}
		const header = "ID, NAMESPACE, QUEUE, STATE, HANDLER, VERSION, ATTEMPTS, CREATED, UPDATED, BUSINESS KEY, CONCURRENCY KEY"
		return list(out, found, next, header, func(q server.QueuedTask) []string {
			t := q.Task
			return []string{t.ID, q.Namespace, q.Queue, t.State, t.Handler, t.HandlerVersion, count(t.AttemptCount),
				at(t.CreatedAt), at(t.UpdatedAt), t.BusinessKey, t.ConcurrencyKey}
		})
	})
}

func newTaskList(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	var place server.Place
	var filter server.TaskFilter
	var created span
	c := &cobra.Command{
		Use:   "list",
		Short: "List the tasks of a queue, the newest first",
		Long:  taskListLong,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cmd.Flags().Changed("business-key") && filter.BusinessKey == "" { // LIST-005
				return cli.Usage(errors.New("--business-key: must not be empty; leave it out for tasks of any key"))
			}
			if filter.After, err = pages.id(); err != nil {
				return err
			}
			if filter.From, filter.Before, err = created.read(); err != nil {
				return err
			}
			if place.Queue == "" {
				return listOverQueues(cmd.Context(), &out, place, filter, pages.limit)
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				tasks, next, err := o.Tasks(cmd.Context(), place, filter, pages.limit)
				if err != nil {
					return err
				}
				const header = "ID, STATE, HANDLER, VERSION, PRIORITY, ATTEMPTS, CREATED, UPDATED, BUSINESS KEY, CONCURRENCY KEY"
				return list(&out, tasks, next, header, func(t orbit.Task) []string {
					return []string{t.ID, t.State, t.Handler, t.HandlerVersion, fmt.Sprint(t.Priority), count(t.AttemptCount),
						at(t.CreatedAt), at(t.UpdatedAt), t.BusinessKey, t.ConcurrencyKey}
				})
			})
		},
	}
	c.Flags().StringVar(&place.Application, "application", "", "`name` of the application; required")
	c.Flags().StringVar(&place.Namespace, "namespace", "", "`name` of the namespace; required with --queue")
	c.Flags().StringVar(&place.Queue, "queue", "", "`name` of the queue (default all, for --state)")
	c.Flags().StringVar(&filter.State, "state", "", "only tasks in this `state`, such as NEEDS_REVIEW")
	c.Flags().StringVar(&filter.BusinessKey, "business-key", "", "only tasks with this `key`; needs --queue")
	created.register(c.Flags())
	pages.register(c.Flags(), "`id` of the last task of the page before")
	out.Register(c.Flags())
	return c
}

// withTask runs f for an operator and the task that an argument names.
func withTask(ctx context.Context, env cli.Environment, text string, f func(*server.Operator, sqldb.ID) error) error {
	id, err := parseID("task id", text)
	if err != nil {
		return err
	}
	return withOperator(ctx, env, func(o *server.Operator) error { return f(o, id) })
}

// maxShown bounds the events and attempts that show prints.
const maxShown = 100

// A shownTask is a task with its history, in the form that --json prints.
type shownTask struct {
	Task orbit.Task `json:"task"`
	server.TaskDetails
	TimeoutMS    int64            `json:"task_timeout_ms"`
	Events       []server.Event   `json:"events"`
	Attempts     []*orbit.Attempt `json:"attempts"`                // without results, the newest first
	MoreEvents   bool             `json:"more_events,omitempty"`   // there are later ones
	MoreAttempts bool             `json:"more_attempts,omitempty"` // there are older ones
}

func newTaskShow(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var payload bool
	c := &cobra.Command{
		Use:   "show <task id>",
		Short: "Show a task, its events and its attempts",
		Args:  cli.OneArgument("the id of one task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTask(cmd.Context(), env, args[0], func(o *server.Operator, id sqldb.ID) error {
				s, err := readShown(cmd.Context(), o, id)
				if err != nil {
					return err
				}
				if !payload {
					s.Task = bare(s.Task)
				}
				return out.Print(s, s.print)
			})
		},
	}
	c.Flags().BoolVar(&payload, "payload", false, "show payload and result too")
	out.Register(c.Flags())
	return c
}

func readShown(ctx context.Context, o *server.Operator, id sqldb.ID) (s shownTask, err error) {
	if s.Task, err = o.Task(ctx, id); err != nil {
		return s, err
	}
	if s.TaskDetails, err = o.Details(ctx, id); err != nil {
		return s, err
	}
	s.TimeoutMS = s.Timeout.Milliseconds()
	events, next, err := o.Events(ctx, id, 0, maxShown)
	if err != nil {
		return s, err
	}
	attempts, below, err := o.Attempts(ctx, id, 0, maxShown)
	for _, a := range attempts {
		a.Result = nil
	}
	s.Events, s.MoreEvents, s.Attempts, s.MoreAttempts = events, next != 0, attempts, below != 0
	if s.Attempts == nil {
		s.Attempts = []*orbit.Attempt{}
	}
	return s, err
}

// bare is a task without what its business has put into it.
func bare(t orbit.Task) orbit.Task {
	t.Payload, t.Result = nil, nil
	return t
}

func (s *shownTask) print(w io.Writer) {
	printTask(w, s.Task, s.TaskDetails)
	fmt.Fprintf(w, "\nEVENT\tREVISION\tAT\tREASON\tBY\tNOTE\n")
	for _, e := range s.Events {
		by := e.Actor
		if by == "" && e.Credential != "" {
			by = "credential " + e.Credential
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", cli.Plain(e.Kind), e.Revision, at(e.At), cli.Plain(e.Reason), cli.Plain(by), cli.Plain(e.Note))
	}
	if s.MoreEvents {
		fmt.Fprintln(w, "there are later events")
	}
	fmt.Fprintln(w)
	printAttempts(w, s.Attempts)
	if s.MoreAttempts {
		fmt.Fprintln(w, "there are older attempts: see orbit-admin attempts")
	}
}

func printTask(w io.Writer, t orbit.Task, d server.TaskDetails) {
	attempt := time.Duration(t.Retry.AttemptTimeoutMS) * time.Millisecond
	fields(w, "id", t.ID, "state", t.State, "effect uncertain", yes(t.EffectUncertain), "revision", count(t.Revision),
		"application", d.Application, "namespace", t.NamespaceID+" "+d.Namespace, "queue", t.QueueID+" "+d.Queue,
		"handler", t.Handler+" "+t.HandlerVersion, "payload version", t.PayloadVersion,
		"business key", t.BusinessKey, "concurrency key", t.ConcurrencyKey, "priority", fmt.Sprint(t.Priority),
		"recovery safety", t.RecoverySafety, "attempts", fmt.Sprintf("%d claimed, at most %d started", t.AttemptCount, t.Retry.MaxAttempts),
		"timeouts", fmt.Sprintf("%s of an attempt, %s of the task", cli.FormatDuration(attempt), cli.FormatDuration(d.Timeout)),
		"retry of", t.RetryOf, "created", at(t.CreatedAt), "available", at(t.AvailableAt), "start deadline", maybeAt(t.StartDeadlineAt),
		"deadline", at(t.DeadlineAt), "cancel requested", maybeAt(t.CancelRequestedAt), "completed", maybeAt(t.CompletedAt), "updated", at(t.UpdatedAt))
	if len(t.Payload) > 0 {
		fields(w, "payload", string(t.Payload))
	}
	if len(t.Result) > 0 {
		fields(w, "result", string(t.Result))
	}
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

// A rowsAct is an act on single rows, named one by one or by their target.
type rowsAct struct {
	name   string
	states []outbox.State // that all covers
	rows   []int64
	all    bool
	scope  scope
	act    outbox.Act
	do     func(*outbox.Store, context.Context, []int64, outbox.Act) error // all of the rows or none
}

func requeueRows(risks func() outbox.Risk) rowsAct {
	return rowsAct{name: "requeue", states: []outbox.State{outbox.Blocked}, do: func(s *outbox.Store, ctx context.Context, seqs []int64, act outbox.Act) error {
		return s.RequeueRows(ctx, seqs, act, risks())
	}}
}

func discardRows() rowsAct {
	return rowsAct{name: "discard", states: []outbox.State{outbox.Rejected, outbox.Blocked}, do: (*outbox.Store).DiscardRows}
}

// A risky is what an operator takes on with a requeue.
type risky struct{ duplicate, late bool }

func (k *risky) risks() (r outbox.Risk) {
	if k.duplicate {
		r |= outbox.DuplicateRisk
	}
	if k.late {
		r |= outbox.LateRisk
	}
	return r
}

// A rowActor is the command of a rowsAct.
type rowActor struct {
	*actor
	rowsAct
}

// A scope is a target, or one of its queues.
type scope struct{ target, queue string }

func (s *scope) register(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&s.target, "target", "", "`name` of the target "+what)
	cmd.Flags().StringVar(&s.queue, "queue", "", "`id` of a queue of the target")
}

func newRequeue(env environment) *cobra.Command {
	var accepted risky
	a := &rowActor{actor: newActor(env), rowsAct: requeueRows(accepted.risks)}
	cmd := a.command("Send blocked rows again, with the same key and bytes", `requeue makes BLOCKED rows PENDING and due at once. Key, bytes and target stay as they are,
so a repeat is the same command: if an earlier send was accepted, the answer tells.

A row whose key the server may no longer know needs --accept-duplicate-risk, one whose
latest time to send has passed --accept-late. Rows are named by number, or --all those
of --target that are BLOCKED; then what needs more than that is skipped. If one of the
named rows cannot be requeued, none is.`)
	cmd.Flags().BoolVar(&accepted.duplicate, "accept-duplicate-risk", false, "send a row that is too old: a second task may come of it")
	cmd.Flags().BoolVar(&accepted.late, "accept-late", false, "send a row after its latest time to send")
	return cmd
}

func newDiscard(env environment) *cobra.Command {
	a := &rowActor{actor: newActor(env), rowsAct: discardRows()}
	return a.command("Close refused rows for good", `discard closes REJECTED and BLOCKED rows for good. A row of which a send ended unknown is
refused, since a task may exist: requeue it, and the answer tells. Rows are named by
number, or --all those of --target; then rows with an unknown outcome are skipped. If one
of the named rows cannot be discarded, none is.`)
}

func (a *rowActor) command(short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   a.name + " ROW...",
		Short: short,
		Long:  long,
		Args:  anyArguments,
		RunE:  func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVar(&a.all, "all", false, "all that fit of --target instead of named rows")
	a.scope.register(cmd, "for --all")
	a.register(cmd.Flags())
	return cmd
}

func (a *rowActor) run(ctx context.Context, args []string) error {
	switch {
	case a.all != (len(args) == 0):
		return cli.Usage(fmt.Errorf("%s needs numbers of rows, or --all and --target", a.name))
	case a.all != (a.scope.target != ""):
		return cli.Usage(errors.New("--all and --target go together"))
	case a.scope.queue != "" && !a.all:
		return cli.Usage(errors.New("--queue goes with --all and --target"))
	}
	var err error
	if a.rows, err = parseSeqs(args); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	db, store, err := openOutbox(ctx, a.env)
	if err != nil {
		return err
	}
	defer db.Close()
	a.rowsAct.act = a.actor.act
	d, err := a.perform(ctx, store)
	if err != nil && d.Count == 0 {
		return flagged(err)
	}
	return errors.Join(a.report(d, fmt.Sprintf("%s: %d rows", a.name, d.Count)), err)
}

// perform acts on the rows. With an error, what it returns was done before.
func (a *rowsAct) perform(ctx context.Context, store *outbox.Store) (did, error) {
	d := did{Action: a.name, DryRun: a.act.DryRun, Target: a.scope.target, QueueID: a.scope.queue}
	if a.all {
		err := a.everything(ctx, store, &d)
		return d, err
	}
	if err := a.do(store, ctx, a.rows, a.act); err != nil {
		return d, err
	}
	d.Rows, d.Count = a.rows, int64(len(a.rows))
	return d, nil
}

// maxShown is how many skipped rows are named.
const maxShown = 100

func (a *rowsAct) everything(ctx context.Context, store *outbox.Store, d *did) error {
	filter := outbox.Filter{States: a.states, Target: a.scope.target, QueueID: a.scope.queue}
	for after := int64(0); ; {
		rows, err := store.List(ctx, filter, after, outbox.MaxRows)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, r := range rows {
			after = r.Seq
			err := a.do(store, ctx, []int64{r.Seq}, a.act)
			switch {
			case err == nil:
				d.Count++
			case isMistake(err) && !isDenied(err):
				if len(d.Skipped) < maxShown {
					d.Skipped = append(d.Skipped, r.Seq)
				}
			default:
				return err
			}
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

// A holdAct is an act on the hold of a scope.
type holdAct struct {
	name string
	do   func(*outbox.Store, context.Context, string, string, outbox.Act) error
}

var (
	holdScope    = holdAct{"hold", (*outbox.Store).Hold}
	releaseScope = holdAct{"release", (*outbox.Store).Unhold}
)

func (h holdAct) perform(ctx context.Context, store *outbox.Store, s scope, act outbox.Act) (did, error) {
	if err := h.do(store, ctx, s.target, s.queue, act); err != nil {
		return did{}, err
	}
	return did{Action: h.name, DryRun: act.DryRun, Target: s.target, QueueID: s.queue, Count: 1}, nil
}

func newHold(env environment) *cobra.Command {
	return holdCommand(env, holdScope, "Keep rows of a target or queue from being sent", `hold keeps the rows of a target, of one of its queues, or all rows from being sent until
release lifts it. It changes no row. Every relay obeys within a second; what is under way
by then is not called back.`)
}

func newRelease(env environment) *cobra.Command {
	return holdCommand(env, releaseScope, "Lift a hold", `release lifts the hold with exactly this scope, which status shows.`)
}

func holdCommand(env environment, do holdAct, short, long string) *cobra.Command {
	a := newActor(env)
	var s scope
	var all bool
	cmd := &cobra.Command{
		Use:   do.name,
		Short: short,
		Long:  long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (s.target != "") {
				return cli.Usage(errors.New("name a --target, or --all"))
			}
			if all && s.queue != "" {
				return cli.Usage(errors.New("--queue goes with --target"))
			}
			if err := a.check(); err != nil {
				return err
			}
			db, store, err := openOutbox(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer db.Close()
			d, err := do.perform(cmd.Context(), store, s, a.act)
			if err != nil {
				return flagged(err)
			}
			return a.report(d, fmt.Sprintf("%s: %s", do.name, describeScope(s.target, s.queue)))
		},
	}
	s.register(cmd, "")
	cmd.Flags().BoolVar(&all, "all", false, "every target")
	a.register(cmd.Flags())
	return cmd
}

func describeScope(target, queue string) string {
	switch {
	case target == "":
		return "every target"
	case queue == "":
		return "target " + target
	}
	return "target " + target + ", queue " + queue
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/outbox"
)

func newHold(env cli.Environment) *cobra.Command {
	return holdCommand(env, "hold", "Keep rows of a target or queue from being sent", `hold keeps the rows of a target, of one of its queues, or all rows from being sent until
release lifts it. It changes no row. Every relay obeys within a second; what is under way
by then is not called back.`, (*outbox.Store).Hold)
}

func newRelease(env cli.Environment) *cobra.Command {
	return holdCommand(env, "release", "Lift a hold", `release lifts the hold with exactly this scope, which status shows.`, (*outbox.Store).Unhold)
}

func holdCommand(env cli.Environment, name, short, long string, do func(*outbox.Store, context.Context, string, string, outbox.Act) error) *cobra.Command {
	a := newActor(env)
	var s scope
	var all bool
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all == (s.target != "") {
				return cli.Usage(errors.New("name a --target, or --all"))
			}
			if err := a.check(); err != nil {
				return err
			}
			db, store, err := openOutbox(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer db.Close()
			if err := do(store, cmd.Context(), s.target, s.queue, a.act); err != nil {
				return err
			}
			return a.report(did{Action: name, Target: s.target, QueueID: s.queue, Count: 1}, fmt.Sprintf("%s: %s", name, describeScope(s.target, s.queue)))
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
